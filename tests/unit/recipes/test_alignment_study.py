"""The alignment study: tokenization, the gold, the rows of a model, a whole tiny study, figure 3 of the paper."""

import json
import random
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from keras_attn import evaluation, plots
from keras_attn.text.tokenizer import Tokenizer
from keras_attn.training import plan
from keras_attn.translation import Translator
from recipes.studies import aligners, alignment, figure3, hansards
from recipes.studies.study import read_earlier
from tests.unit.recipes.small_study import write_gold


@pytest.mark.parametrize(
    ("cut", "line", "expected"),
    [
        (hansards.english, "I can't say it's Tom's, Mr. Smith!", "i cannot say it is tom 's , mr. smith !"),
        (hansards.english, "You’re $1,200.50 short - don't go...", "you are $ 1,200.50 short - do not go ..."),
        (hansards.french, "L'État n’est qu'à moitié prêt.", "le état ne est que à moitié prêt ."),
        (
            hansards.french,
            "S'il va au bout du pont, aujourd'hui…",
            "si il va à le bout de le pont , aujourd' hui …",
        ),
        (hansards.french, "Aux enfants des Canadiens : d'accord ?", "à les enfants de les canadiens : de accord ?"),
    ],
)
def test_text_is_tokenized_as_the_gold(cut, line, expected):
    assert cut(line) == cut(expected) == expected


def test_gold_is_read(tmp_path):
    result = hansards.read_gold(write_gold(tmp_path, ["The dog  ||| le  Chien  ", "no ||| non"], ["1-1 2p2", "1-1"]))
    assert (result.sources, result.targets) == (["the dog", "no"], ["le chien", "non"])
    assert result.links == [evaluation.parse_links("0-0 1p1"), evaluation.parse_links("0-0")]


@pytest.mark.parametrize(
    ("text", "gold", "sentence"),
    [
        (["a ||| b", "c ||| d"], ["1-1"], r"as many lines in .*src-tgt\.gz as in .*gold\.gz.* [Rr]eceived:? 2 and 1"),
        (["a ||| b", "a b"], ["1-1", "1-1"], r"'source \|\|\| target' in line 2 .* Received: 'a b'"),
        (["a ||| b", "a ||| b"], ["1-1", "1~1"], r"Received: '1~1' in line 2 of .*gold\.gz"),
        (["a ||| b", "a ||| b"], ["1-2", "1-1"], "target words from 1 to 1. Received: the link '1-2' in line 1"),
    ],
)
def test_bad_gold_is_refused(text, gold, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        hansards.read_gold(write_gold(tmp_path, text, gold))


def test_links_by_hand():
    """The diagonal, and of an alignment the largest weight, but not that of the end."""
    assert aligners.diagonal("a b c", "v w x y z w") == {(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5)}
    assert aligners.diagonal("a b c d", "v w") == {(1, 0), (3, 1)}
    weights = [[0.2, 0.7, 0.1], [0.1, 0.2, 0.7], [0, 0, 1]]
    assert aligners.links(plots.WordAlignment(weights, ["a", "b", "</s>"], ["v", "w", "</s>"])) == {(1, 0)}


def untrained(name, sides, **sizes):
    """A translator of a recipe whose vocabulary is the words of these lines."""
    tokenizers = [Tokenizer.train(lines, level="word") for lines in sides]
    recipe = plan.load_recipe(name)
    model = recipe.build(recipe.Config(**sizes), *(tokenizer.vocabulary_size for tokenizer in tokenizers))
    return Translator(model, *tokenizers)


@pytest.mark.parametrize("kind", ["rnnsearch", "transformer"])
def test_every_row_of_a_model(kind):
    """A word's next row is that of the word after it; the Transformer's layers have the whole as their mean."""
    sides = sources, targets = ["a b c", "b", "c a b a c"], ["v w", "x y z", "w w v z"]
    sizes = {"units": 6, "num_layers": 3, "num_heads": 2} if kind == "transformer" else {"units": 5}
    result = aligners.candidates(untrained(kind, sides, **sizes), sources, targets)
    layers = [f"layer {number}" for number in (1, 2, 3)] if kind == "transformer" else []
    assert set(result) == {(attention, row) for attention in ("all", *layers) for row in ("own", "next", "next-word")}
    for sentence in range(3):
        for attention in ("all", *layers):
            own, following = (result[attention, row][sentence].alignment for row in ("own", "next"))
            assert own.shape == (len(targets[sentence].split()) + 1, len(sources[sentence].split()) + 1)
            np.testing.assert_allclose(own.sum(axis=1), 1, rtol=1e-5)
            np.testing.assert_array_equal(own[1:], following[:-1])
            by_word = result[attention, "next-word"][sentence].alignment
            np.testing.assert_array_equal(by_word, following)  # of words that are one piece each
        if layers:
            weights = [result[layer, "own"][sentence].alignment for layer in layers]
            assert np.abs(weights[0] - weights[1]).max() > 1e-3
            np.testing.assert_allclose(np.mean(weights, axis=0), result["all", "own"][sentence].alignment, atol=1e-5)


@pytest.fixture
def eflomal(monkeypatch):
    """Stands in for the module of that name: its links are right. A list of its calls."""
    calls = []

    class Aligner:
        def align(self, sources, targets, links_filename_fwd, links_filename_rev):
            assert len(sources) == len(targets)
            calls.append("align")
            for path in (links_filename_fwd, links_filename_rev):
                Path(path).write_text("0-0 1-2 2-1 3-3\n" * len(sources))

    module = ModuleType("eflomal")
    module.__spec__, module.Aligner = ModuleSpec("eflomal", None), Aligner
    monkeypatch.setitem(sys.modules, "eflomal", module)
    return calls


# English words and their French, where the adjective follows the noun.
ARTICLES, ENDS = {"the": "le", "a": "un", "this": "ce"}, ".!"
NOUNS = {"dog": "chien", "cat": "chat", "house": "maison", "bird": "oiseau"}
ADJECTIVES = {"red": "rouge", "small": "petit", "old": "vieux"}
RIGHT = {(0, 0), (1, 2), (2, 1), (3, 3)}


@pytest.fixture
def toy(tmp_path):
    """A corpus of "the old dog." with "le chien vieux.", and gold of 13 sentences."""
    rng = random.Random(7)

    def pair():
        article, adjective, noun = (rng.choice(list(words)) for words in (ARTICLES, ADJECTIVES, NOUNS))
        end = rng.choice(ENDS)
        french = f"{ARTICLES[article]} {NOUNS[noun]} {ADJECTIVES[adjective]}{end}"
        return f"{article} {adjective} {noun}{end}", french

    (tmp_path / "toy").mkdir()
    for split, count in (("train", 211), ("val", 11), ("test", 11)):
        for language, lines in zip(("en", "fr"), zip(*(pair() for _ in range(count)), strict=True), strict=True):
            (tmp_path / "toy" / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))
    cut = [
        f"{hansards.english(source)} ||| {hansards.french(target)}" for source, target in (pair() for _ in range(13))
    ]
    write_gold(tmp_path / "gold", cut, ["1-1 2-3 3-2 4-4 3p3"] * 13)
    return tmp_path


@pytest.mark.nightly
def test_a_whole_study(toy, in_process, eflomal, monkeypatch):
    sizes = ("units=13", "embedding_size=17", "readout_size=17", "attention_units=11", "decoder_units=23")
    shared = ("level=word", "source_vocabulary_size=none", "target_vocabulary_size=none", "batch_size=32")
    monkeypatch.setattr(alignment, "SYSTEMS", {"tiny": ("rnnsearch", sizes)})
    monkeypatch.setattr(alignment, "_SHARED", (*shared, "learning_rate=0.03"))
    work, out = in_process(), toy / "study"
    options = ["--corpus", str(toy / "toy"), "--gold", str(toy / "gold"), "--max-steps", "27", "--development", "3"]
    options += ["--beam", "1", "--out"]
    assert alignment.main([*options, str(out)]) == 0
    report = json.loads((out / "report.json").read_text())
    assert str(toy) not in (out / "report.json").read_text()
    assert report["gold"] == {"sentences": 13, "development": 3, "sure": 52, "possible": 65}
    assert (out / "alignment.svg").exists()
    rows = {row["name"]: row for row in [*report["baselines"], *report["systems"]]}
    # Of four words the diagonal has two that are sure and one that is possible.
    assert rows["diagonal"]["test"]["aer"] == pytest.approx(100 * (1 - (2 + 3) / (4 + 4)))
    assert rows["diagonal"]["test"]["recall"] == 50
    assert rows["IBM Model 1"]["all"]["aer"] == rows["IBM Model 1, gold text added"]["all"]["aer"] == 0
    system = rows["tiny"]
    best = min(system["candidates"], key=lambda one: one["development"])
    assert system == system | best
    gold = hansards.read_gold(toy / "gold")
    panels = aligners.candidates(Translator.from_preset(out / "tiny"), gold.sources, gold.targets)
    found = [link for panel in panels[best["attention"], best["row"]][3:] for link in aligners.links(panel)]
    sure, possible = (sum(link in links for link in found) for links in (RIGHT, RIGHT | {(2, 2)}))
    assert best["test"]["aer"] == pytest.approx(100 * (1 - (sure + possible) / (len(found) + 40)), abs=0.005)
    start = "python -m recipes.studies.alignment --corpus toy --source en --target fr --max-steps 27"
    assert report["command"].startswith(start)
    assert alignment.main([*options, str(out)]) == 0
    assert work.done == ["tiny"], "nothing is trained twice"
    assert json.loads((out / "report.json").read_text())["systems"] == report["systems"]

    # Another study, of a guided system in both directions, which takes over the rows of the first.
    sizes = ("units=15", "embedding_size=18", "attention_units=11", "guided_alignment=9.0", "shift_alignment=true")
    monkeypatch.setitem(alignment.SYSTEMS, "aligner", ("nematus", sizes))
    monkeypatch.setattr(alignment, "EFLOMAL", ("aligner",))
    chosen = ["--systems", "aligner", "--both-ways", "aligner", "--earlier"]
    assert alignment.main([*options, str(toy / "second"), *chosen, str(out / "report.json")]) == 0
    assert work.done == ["tiny", "aligner", "aligner-backward"]
    assert len(eflomal) == 2, "once for each study"
    second = json.loads((toy / "second" / "report.json").read_text())
    assert str(toy) not in (toy / "second" / "report.json").read_text()
    assert second["earlier"][0]["command"] == report["command"]
    assert second["command"].endswith("--systems aligner --both-ways aligner --earlier report.json")
    rows = {row["name"]: row for row in [*second["baselines"], *second["systems"]]}
    assert rows["tiny"] == system
    both = [f"aligner, {method}" for method in ("intersection", "grow-diag-final-and")]
    assert [row["name"] for row in second["systems"]] == ["tiny", "aligner", "aligner-backward", *both]
    assert "alignment_links=eflomal/en-fr.links" in rows["aligner"]["command"]
    assert "--source fr --target en" in rows["aligner-backward"]["command"]
    by_row = {one["row"]: one["all"]["aer"] for one in rows["aligner"]["candidates"]}
    assert min(by_row, key=by_row.get) in ("next", "next-word"), "the rows that were guided"
    assert {row["all"]["aer"] for name, row in rows.items() if name.startswith("eflomal")} == {0}
    links = []
    for run, sides in (("aligner", gold[:2]), ("aligner-backward", gold[1::-1])):
        panels = aligners.candidates(Translator.from_preset(toy / "second" / run), *sides)
        links.append([aligners.links(one) for one in panels["all", rows[run]["row"]]])
    turned = [{(j, i) for i, j in one} for one in links[1]]
    for name, expected in zip(both, (set.intersection, evaluation.grow_diag_final_and), strict=True):
        made = [expected(set(one), other) for one, other in zip(links[0], turned, strict=True)]
        aer = evaluation.alignment_error_rate(made, gold.links).aer
        assert aer == pytest.approx(rows[name]["all"]["aer"], abs=0.005)


def test_figure_3_has_the_papers_sentences(tmp_path, monkeypatch, capfd):
    """A model that was never trained draws them; every word has its label, in the gold's tokenization."""
    sides = [[cut(pair[n]) for pair in figure3.SENTENCES] for n, cut in enumerate((hansards.english, hansards.french))]
    run = tmp_path / "run"
    untrained("rnnsearch", sides, units=5).save_to_preset(run)
    assert figure3.main([str(run)]) == 2
    assert "from en to fr" in capfd.readouterr().err
    (run / "report.json").write_text('{"source": "en", "target": "fr"}')
    assert figure3.main([str(run), "--output", "figure.txt"]) == 2
    assert ".svg" in capfd.readouterr().err
    drawn = []
    monkeypatch.setattr(plots, "alignments", lambda panels, path: drawn.append((panels, path)))
    assert figure3.main([str(run), "--row", "next-word"]) == 0
    ((panels, path),) = drawn
    assert path == run / "figure3.svg"
    for panel, source, target in zip(panels, *sides, strict=True):
        assert list(panel.source_tokens) == [*source.split(), "</s>"]
        assert list(panel.target_tokens) == [*target.split(), "</s>"]
        np.testing.assert_array_equal(panel.alignment[-1], panel.alignment[-2])


def test_an_earlier_report_may_have_other_products_and_no_other_setting(tmp_path):
    past = dict.fromkeys(("command", "minutes", "jobs", "backend", "versions", "hardware"))
    report = past | {"rows": [], "seed": 0, "backend": "jax", "changes": ["units=7"]}
    (tmp_path / "report.json").write_text(json.dumps(report))

    def read(*changes):
        arguments = SimpleNamespace(earlier=tmp_path / "report.json")
        return read_earlier(arguments, {"seed": 0, "backend": "tensorflow", "changes": list(changes)}, ["rows"])

    assert read("units=7", "bfloat16_products=true") == report
    with pytest.raises(ValueError, match="another changes"):
        read("units=8", "bfloat16_products=true")
