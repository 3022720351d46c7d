"""Training from a preset, tags, and several corpora with weights."""

import contextlib
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from keras_attn import Tokenizer, Translator, files
from keras_attn.cli import evaluate, train
from keras_attn.training import config, corpora, fitting
from keras_attn.training.starting_point import StartingPoint, check_tags
from recipes import luong, named_corpora, rnnsearch, sweep
from tests.hostile import sentence_of
from tests.training.small_run import Stopped, interrupted

TINY = ["units=3", "embedding_size=5", "readout_size=5", "attention_units=7", "decoder_units=4"]
TINY += ["tie_embeddings=none"]
RUN = ["max_steps=2", "validate_every=1", "batch_size=8", "validation_sentences=3"]
NAMES = {"fr": ["zéro", "un", "deux", "trois"], "es": ["cero", "uno", "dos", "tres"]}


def write(folder: Path, target: str, digits: list[str], seed: int) -> Path:
    folder.mkdir()
    random = np.random.default_rng(seed)
    for split, size in (("train", 24), ("val", 5), ("test", 4)):
        rows = random.integers(0, 4, (size, 3)).tolist()
        (folder / f"{split}.de").write_text("".join(" ".join(digits[i] for i in row) + "\n" for row in rows))
        (folder / f"{split}.{target}").write_text(
            "".join(" ".join(NAMES[target][i] for i in row) + "\n" for row in rows)
        )
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Digits in two languages; those of the second are letters on the source side."""
    folder = tmp_path_factory.mktemp("corpora")
    return write(folder / "french", "fr", list("0123"), 1), write(folder / "spanish", "es", list("abcd"), 2)


def line(out: Path, corpus, target: str, *more: str) -> list[str]:
    where = ["--corpus", str(corpus), "--source", "de", "--target", target, "--out", str(out)]
    return ["rnnsearch", *where, "--beam", "1", "--no-export", *more]


@pytest.fixture(scope="module")
def run(folders, tmp_path_factory):
    """A finished run of symbols, from digits to French."""
    out = tmp_path_factory.mktemp("runs") / "first"
    assert train.main(line(out, folders[0], "fr", "--set", *TINY, *RUN, "level=symbol")) == 0
    return out


def started(preset, corpus, **changes):
    """A translator of the recipe's model, with a preset's weights."""
    start = StartingPoint(str(preset))
    chosen = start.configured(config.override(rnnsearch.Config(), [f"{k}={v}" for k, v in changes.items()]), "x", ())
    tokenizers = start.tokenizers(chosen, corpus)
    model = start.build(rnnsearch, chosen, [one.vocabulary_size for one in tokenizers], changes)
    start.give_weights(model)
    return Translator(model, *tokenizers, **start.length_arguments)


def test_means_are_at_the_end_of_each_axis_of_a_vocabulary(run, folders):
    new = started(run, corpora.load(folders[1], "de", "es"), extend_vocabulary="true")
    old = Translator.from_preset(run).model
    vocabularies = [Translator.from_preset(run).target_tokenizer.vocabulary, new.target_tokenizer.vocabulary]
    assert vocabularies[1][: len(vocabularies[0])] == vocabularies[0]
    assert (old.source_vocabulary_size, new.model.source_vocabulary_size) == (8, 12)
    assert (old.target_vocabulary_size, new.model.target_vocabulary_size) == (8, 12)
    grown = 0
    for before, after in zip(old.get_weights(), new.model.get_weights(), strict=True):
        if before.shape == after.shape:
            np.testing.assert_array_equal(after, before)
            continue
        axis = before.shape.index(8)
        kept, added = np.split(after, [8], axis=axis)
        np.testing.assert_array_equal(kept, before)
        mean = np.broadcast_to(before.mean(axis=axis, keepdims=True), added.shape)
        np.testing.assert_allclose(added, mean, atol=1e-6)
        grown += 1
    assert grown == 4, "two embeddings, the output and its bias"


def test_a_run_goes_on_from_another_and_says_so(run, folders, tmp_path):
    before = Translator.from_preset(run)
    out = tmp_path / "second"
    changes = ["learning_rate=1e-9", "output_dropout=0.1", "extend_vocabulary=true"]
    assert train.main(line(out, folders[1], "es", "--from", str(run), "--set", *RUN, *changes)) == 0
    report = json.loads((out / "report.json").read_text())
    assert report["from_preset"] == {
        "name": "first",
        "digest": files.sha256(run / "translator.json"),
        "corpus": "french",
    }
    assert "--from first" in report["command"]
    assert str(run) not in (out / "report.json").read_text()
    assert (report["config"]["units"], report["config"]["level"]) == (3, "symbol"), "the preset's"
    assert report["config"]["output_dropout"] == 0.1, "the command's"
    assert report["config"]["embedding_dropout"] == 0.4
    titles = [origin.name for origin in named_corpora.origins(report["corpus"], report["from_preset"])]
    assert titles == ["spanish", "french"]
    assert "began from `first`" in (out / "README.md").read_text()
    after = Translator.from_preset(out)
    for old, new in zip(before.model.get_weights(), after.model.get_weights(), strict=True):
        np.testing.assert_allclose(new[tuple(map(slice, old.shape))], old, atol=1e-7)
    third = StartingPoint(str(out))
    assert third.identity["corpus"] == "spanish+french"


def test_a_resumed_run_refuses_another_start(run, folders, tmp_path, capfd):
    """One of the same name with another digest, and none."""
    other, out = shutil.copytree(run, tmp_path / run.name), tmp_path / "out"
    manifest = json.loads((other / "translator.json").read_text())
    (other / "translator.json").write_text(json.dumps(manifest, indent=4))
    with interrupted(1, Stopped), contextlib.suppress(Stopped):
        train.main(line(out, folders[0], "fr", "--from", str(run), "--set", *RUN))
    assert (out / "checkpoint.npz").exists()
    capfd.readouterr()
    for another in (["--from", str(other), "--set", *RUN], ["--set", *RUN, *TINY, "level=symbol"]):
        assert train.main(line(out, folders[0], "fr", *another, "--resume")) == 2
        assert "It was begun with another from_preset" in capfd.readouterr().err


def test_the_attention_of_a_preset_is_not_replaced_by_one_of_the_same_weights(tmp_path):
    """Local attention with monotonic positions has the weights of global attention."""
    sizes = {"units": 3, "embedding_size": 5, "readout_size": 5, "num_layers": 1}
    chosen = luong.Config(**sizes, attention="local_m", window=2)
    tokenizer = Tokenizer.train(["a b c"], level="symbol")
    Translator(luong.build(chosen, 7, 7), tokenizer, tokenizer).save_to_preset(tmp_path / "local")
    start = StartingPoint(str(tmp_path / "local"))
    assert start.identity["corpus"] is None
    (origin,) = named_corpora.origins("phrases", start.identity)[1:]
    assert origin.licence is None
    with pytest.raises(ValueError, match="It has another attention"):
        start.build(luong, start.configured(luong.Config(), "luong", ()), (7, 7), ())
    (tmp_path / "local" / "report.json").write_text(
        json.dumps({"recipe": "luong", "config": {"attention": "local_m", "score": None, "window": 2}})
    )
    start = StartingPoint(str(tmp_path / "local"))
    assert start.configured(luong.Config(), "luong", ()).window == 2
    start.build(luong, start.configured(luong.Config(), "luong", ()), (7, 7), ())


@pytest.fixture(scope="module")
def tagged(folders, tmp_path_factory):
    """A run with the tags of two languages."""
    both, out = f"{folders[0]}:1+{folders[1]}:3", tmp_path_factory.mktemp("runs") / "both"
    assert train.main(line(out, both, "fr+es", "--tags", "target", "--set", *TINY, *RUN, "level=symbol")) == 0
    return out


def test_tags_and_weights_through_a_run(tagged, folders, tmp_path):
    report = json.loads((tagged / "report.json").read_text())
    assert report["corpus"] == "french:1+spanish:3"
    assert (report["source"], report["target"], report["tags"]) == ("de", "fr+es", "target")
    assert "--corpus french:1+spanish:3 --source de --target fr+es --tags target" in report["command"]
    assert report["training_pairs"] == 24 + 72, "each pair of the first once, of the second three times"
    parts = report["by_corpus"]
    assert [(part["corpus"], part["test_sentences"]) for part in parts] == [("french", 4), ("spanish", 4)]
    assert all(set(part["bleu"]) == {"score", "signature"} for part in parts)
    card = (tagged / "README.md").read_text()
    assert 'language: ["de", "fr", "es"]' in card
    assert "tag such as `<2fr>`, of its target language" in card
    assert Translator.from_preset(tagged).source_tokenizer.encode("<2es> 1 2")[0] == 5
    assert "source:      <2fr> " in (tagged / "translations.txt").read_text()
    where = ["--corpus", str(folders[1]), "--source", "de", "--target", "es", "--output", str(tmp_path / "scores")]
    assert evaluate.main([str(tagged), *where, "--beam", "1"]) == 0
    assert json.loads((tmp_path / "scores").read_text())["systems"][0]["bleu"] == parts[1]["bleu"], "it is tagged, too"


def test_a_language_that_a_run_has_no_tag_for_is_refused(tagged, folders, tmp_path, capfd):
    out, italian = shutil.copytree(tagged, tmp_path / "tagged"), shutil.copytree(folders[0], tmp_path / "italian")
    for path in italian.glob("*.fr"):
        path.rename(path.with_suffix(".it"))
    where = ["--corpus", italian, "--source", "de", "--target", "it"]
    assert "with the tag <2it>" in sentence_of(evaluate.main, [out, *where], capfd)
    report = json.loads((out / "report.json").read_text())
    (out / "report.json").write_text(json.dumps(report | {"corpus": str(italian), "target": "it"}))
    assert "with the tag <2it>" in sentence_of(sweep.main, [out], capfd)


def test_an_epoch_has_corpora_in_the_ratio_of_their_weights(tmp_path):
    for name, size in (("a", 10), ("b", 7)):
        (tmp_path / name).mkdir()
        for split, lines in (("train", size), ("val", size)):
            for side in ("de", "fr"):
                (tmp_path / name / f"{split}.{side}").write_text("".join(f"{name}{n} {side}\n" for n in range(lines)))

    def load(weights, seed=0):
        name = "+".join(f"{tmp_path / part}:{weight}" for part, weight in zip("ab", weights, strict=True))
        return corpora.load(name, "de", "fr", seed=seed).splits

    sources, targets = load((1, 1))["train"]
    assert [one.replace("de", "fr") for one in sources] == targets
    counts = Counter(sources)
    assert Counter(one[0] for one in sources) == {"a": 10, "b": 10}
    assert sorted(counts.values()) == [1] * 14 + [2] * 3, "all once, and three of the smaller corpus twice"
    assert load((1, 1)) == load((1, 1))
    assert load((1, 1))["train"] != load((1, 1), seed=1)["train"]
    assert load((0.5, 0.5)) == load((1, 1)), "the ratio alone counts"
    assert Counter(one[0] for one in load((3, 1))["train"][0]) == {"a": 21, "b": 7}
    assert Counter(one[0] for one in load((1, 2.5))["train"][0]) == {"a": 10, "b": 25}
    first = [one[0] for one in load((1, 1))["val"][0][:9]]
    assert abs(first.count("a") - first.count("b")) <= 2, "lines of val alternate"


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("{0}:0+{1}:1", {}, "weight of '.*french' to be a positive number. Received: '0'"),
        ("{0}:many+{1}:1", {}, "Received: 'many'"),
        ("{0}:2+{1}", {}, "Expected a weight for each corpus"),
        ("{0}:2+{1}:1", {"stream": True}, "Expected --no-stream with weights"),
        ("{0}", {"stream": True, "tags": "target"}, "Expected --no-stream with tags"),
        ("{0}", {"tags": "both"}, "Expected tags from: target, corpus. Received: 'both'"),
        ("{0}+{1}", {"target": "fr+es+fr"}, "one for each of 2 corpora. Received: 'fr\\+es\\+fr'"),
    ],
)
def test_wrong_weights_and_tags_are_refused(name, options, sentence, folders):
    with pytest.raises(ValueError, match=sentence):
        corpora.load(name.format(*folders), **{"source": "de", "target": "fr"} | options)


def test_tags_are_of_the_target_language_or_the_corpus(folders, tmp_path):
    joined = corpora.load(f"{folders[0]}+{folders[1]}", "de", "fr+es", tags="corpus")
    assert joined.tags == ("<2french>", "<2spanish>")
    assert {one.split()[0] for one in joined.splits["train"][0]} == set(joined.tags)
    shutil.copytree(folders[0], tmp_path / "A b")
    shutil.copytree(folders[0], tmp_path / "other" / "A b")
    with pytest.raises(ValueError, match=r"Expected a tag for each corpus\. Received: <2a_b> of .*, <2a_b> of "):
        corpora.load(f"{tmp_path / 'A b'}+{tmp_path / 'other' / 'A b'}", "de", "fr", tags="corpus")
    (tmp_path / "A b" / "test.de").write_text("0\n\n1\n2\n")
    corpus = corpora.load(tmp_path / "A b", "de", "fr", tags="corpus")
    assert corpus.splits["test"][0] == ["<2a_b> 0", "", "<2a_b> 1", "<2a_b> 2"], "a blank line stays one"
    with pytest.raises(ValueError, match="no tags for the level character"):
        fitting.train_tokenizers(rnnsearch.Config(level="character"), ["a"], ["b"], corpus.tags)
    with pytest.raises(ValueError, match=r"with the tag <2a_b>; .* Received: one of level 'symbol' without it"):
        check_tags(corpus, Tokenizer.train(["a"], level="symbol"))
