"""The study of pronunciation: what is trained and combined, its scores, means, page and figure, refusals."""

import json
import statistics
from types import SimpleNamespace

import numpy as np
import pytest

from keras_attn import Translator
from keras_attn.evaluation import phoneme_error_rate, word_error_rate
from keras_attn.translation import vote
from recipes import named_corpora
from recipes.pages import studies as study_sections
from recipes.studies import g2p

pytestmark = pytest.mark.once

SIZES = ["units=7", "embedding_size=8", "decoder_units=9", "readout_size=6", "rnnsearch.attention_units=5"]
SIZES += ["hard_monotonic.num_layers=1", "batch_size=16", "validate_every=30", "learning_rate=0.03", "warmup_steps=1"]
SIZES += ["embedding_dropout=0", "memory_dropout=0", "output_dropout=0", "ema_decay=0", "label_smoothing=0"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Words of four letters, of which one is two phones."""
    folder = tmp_path_factory.mktemp("corpora") / "small"
    rng = np.random.default_rng(3)
    words = list(dict.fromkeys(tuple(rng.integers(0, 4, rng.integers(2, 4))) for _ in range(400)))
    (folder / "ady").mkdir(parents=True)
    for split, chosen in (("train", words[:48]), ("val", words[48:58]), ("test", words[58:75])):
        letters = "".join(" ".join("abcd"[i] for i in word) + "\n" for word in chosen)
        phones = "".join(" ".join(("AH", "B", "K", "D IY")[i] for i in word) + "\n" for word in chosen)
        (folder / "ady" / f"{split}.letters").write_text(letters)
        (folder / "ady" / f"{split}.phones").write_text(phones)
    return folder


def command_line(corpus, out, *more):
    where = ["--corpus", str(corpus), "--languages", "ady", "--out", str(out), "--max-steps", "60", "--minutes", "9"]
    return [*where, "--beam", "2", *more, "--set", *SIZES]


@pytest.fixture(scope="module")
def report():
    """Of all languages but one, with figures that are easily averaged."""

    def scored(name, kind, wer, **more):
        return {"name": name, "kind": kind, "wer": {"mean": wer, "interval": None, **more}, "per": wer / 4}

    rows = []
    for amount, names in named_corpora.G2P_LANGUAGES.items():
        for n, name in enumerate(names[: None if amount == "medium" else 7]):
            run = {"parameters": 7, "updates": 6, "train_seconds": 90.0, "command": f"train {name}"}
            single = scored("hard_monotonic", "single", 10.0 + n, scores=[9.0 + n, 11.0 + n]) | run
            scores = [single, scored("hard_monotonic", "vote", 8.0), scored("hard_monotonic", "probability", 7.0 + n)]
            scores += [scored("rnnsearch", "single", 20.0, scores=[20.0]) | run] * (name != "kor")
            row = {"language": name, "amount": amount, "baseline": g2p.BASELINE[name], "training_pairs": 8000}
            rows.append(row | {"scores": scores})
    shared = {"study": "g2p_study", "corpus": "g2p", "source": "letters", "target": "phones", "command": "the command"}
    shared |= {"seeds": 2, "beam_size": 5, "confidence": 0.95, "minutes": 7.0, "jobs": 2, "hardware": {"cores": 2}}
    return shared | {"languages": rows, "means": g2p.means(rows)}


def test_the_baseline_has_the_means_of_the_task():
    assert list(g2p.BASELINE) == g2p._languages("all")
    medium, low = ([g2p.BASELINE[name] for name in named_corpora.G2P_LANGUAGES[amount]] for amount in ("medium", "low"))
    assert statistics.mean(medium) == pytest.approx(10.0)
    assert statistics.mean(low) == pytest.approx(22.6, abs=0.05)


def test_means_are_over_all_languages_of_an_amount_by_hand(report):
    """One of the low languages is missing, and of the medium ones one has no rnnsearch."""
    (mean,) = report["means"]
    assert (mean["amount"], mean["languages"], mean["baseline"]) == ("medium", 7, 10.0)
    found = {(one["name"], one["kind"]): (one["wer"]["mean"], one["per"]) for one in mean["scores"]}
    expected = {"single": (13.0, 3.25), "vote": (8.0, 2.0), "probability": (10.0, 2.5)}
    assert found == {("hard_monotonic", kind): pair for kind, pair in expected.items()}


def test_the_page_has_the_means_and_the_figure(report, tmp_path):
    study_sections.draw(report, tmp_path / "drawn")
    assert (tmp_path / "drawn.svg").read_text().startswith("<?xml")
    text, figure = study_sections.section("g2p/languages", report | {"starts": ["rnnsearch=low"]})
    found = f"Word error rates of {len(report['languages'])} languages; on average hard_monotonic has 8.0 %"
    assert text.startswith("**Languages, fine-tuned.** ")
    assert f"{found} and the baseline 10.0 %" in text
    assert figure == f"![{found} and the baseline 10.0 %](reports/g2p/languages.svg)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kor,high", ["eng_us", "kor"]),
        ("low", [*named_corpora.G2P_LANGUAGES["low"]]),
        ("all", [*g2p.BASELINE]),
        ("fre,fre", ["fre"]),
    ],
)
def test_languages_are_chosen_by_name_or_amount(text, expected):
    assert g2p._languages(text) == expected


def test_korean_syllables_are_decomposed_unless_the_text_is_ones_own():
    parsed = {"corpus": "g2p", "source": "letters", "target": "phones"}
    sides = [g2p._sides(SimpleNamespace(**parsed), language) for language in ("kor", "fre")]
    assert sides == [("decomposed", "phones"), ("letters", "phones")]
    for own in ({"corpus": "mine"}, {"source": "phones", "target": "letters"}):
        arguments = SimpleNamespace(**parsed | own)
        assert g2p._sides(arguments, "kor") == (arguments.source, arguments.target)


def test_a_system_goes_on_from_its_multilingual_run():
    starts = g2p._starts(["nematus=runs/low=2"], ["nematus", "luong"])
    arguments = SimpleNamespace(corpus="g2p", source="letters", target="phones", max_steps=7)
    changes = {"nematus": ["ema_decay=0"], "luong": []}
    begun, new = (g2p._variant(arguments, "ady", system, changes, starts) for system in ("nematus", "luong"))
    assert begun.options == ("--from", "runs/low=2", "--tags", "corpus")
    assert (begun.changes, new.options) == (("max_steps=7", "ema_decay=0"), ())


@pytest.mark.slow
def test_models_are_trained_combined_and_never_repeated(corpus, tmp_path, in_process):
    out = tmp_path / "out"
    line = command_line(corpus, out, "--systems", "hard_monotonic", "--seeds", "2")
    runs = ["ady-hard_monotonic-seed-0", "ady-hard_monotonic-seed-1"]
    ensembles = [f"ady-hard_monotonic-{kind}-seeds-0-1" for kind in ("probability", "vote")]
    killed = in_process(most=3)
    assert g2p.main(line) == 130, "killed before the second ensemble"
    continued = in_process()
    assert g2p.main(line) == 0
    assert [name for _, name in killed.done + continued.done] == runs + ensembles
    assert g2p.main(line) == 0
    assert len(continued.done) == 1

    report = json.loads((out / "report.json").read_text())
    assert str(tmp_path) not in (out / "report.json").read_text()
    assert report["command"] == (
        "python -m recipes.studies.g2p --corpus small --source letters --target phones --max-steps 60 --beam 2 "
        f"--seed 0 --seeds 2 --systems hard_monotonic --languages ady --minutes 9.0 --set {' '.join(SIZES)}"
    )
    trained = [json.loads((out / run / "report.json").read_text()) for run in runs]
    assert [(one["seed"], one["minutes"], one["updates"]) for one in trained] == [(0, 9, 60), (1, 9, 60)]
    assert all((one["config"]["level"], one["config"]["metric"]) == ("symbol", "wer") for one in trained)

    sources, targets = ((corpus / "ady" / f"test.{side}").read_text().splitlines() for side in ("letters", "phones"))
    answers = [[target] for target in targets]
    presets = [out / run for run in runs]
    alone = [Translator.from_preset(preset).generate(sources, beam_size=2) for preset in presets]
    together = Translator.from_presets(presets).generate(sources, beam_size=2)
    texts = {"probability": together, "vote": vote(alone)}
    (language,) = report["languages"]
    assert report["means"] == []
    assert (language["language"], language["baseline"]) == ("ady", 22)
    assert (language["training_pairs"], language["test_sentences"]) == (48, 17)
    for one in language["scores"]:
        if one["kind"] == "single":
            assert one["wer"]["scores"] == [run["wer"]["score"] for run in trained]
            assert one["wer"]["mean"] == round(statistics.mean(one["wer"]["scores"]), 2)
            assert one["per"] == round(statistics.mean(run["per"]["score"] for run in trained), 2)
        else:
            said = [translation.text for translation in texts.pop(one["kind"])]
            assert one["wer"]["mean"] == round(word_error_rate(said, answers).score, 2)
            assert one["per"] == round(phoneme_error_rate(said, answers).score, 2)
            assert one["models"] == 2
    assert texts == {}
    assert statistics.mean(run["per"]["score"] for run in trained) < 80, "nothing was learnt: any choice would do"


@pytest.mark.slow
def test_systems_are_added_and_combined_with_each_other(corpus, tmp_path, in_process):
    out, work = tmp_path / "out", in_process()
    for systems in ("hard_monotonic", "rnnsearch,hard_monotonic"):
        assert g2p.main(command_line(corpus, out, "--systems", systems)) == 0
    both = [f"ady-hard_monotonic+rnnsearch-{kind}-seeds-0-0" for kind in ("probability", "vote")]
    assert [name for _, name in work.done] == ["ady-hard_monotonic-seed-0", "ady-rnnsearch-seed-0", *both]
    report = json.loads((out / "report.json").read_text())
    assert "--systems hard_monotonic,rnnsearch --languages ady" in report["command"]
    scores = report["languages"][0]["scores"]
    assert [(one["name"], one["kind"]) for one in scores] == [
        ("hard_monotonic", "single"),
        ("rnnsearch", "single"),
        ("hard_monotonic+rnnsearch", "probability"),
        ("hard_monotonic+rnnsearch", "vote"),
    ]
    study_sections.draw(report, tmp_path / "drawn")
    assert (tmp_path / "drawn.svg").read_bytes() == (out / "g2p.svg").read_bytes()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--languages", "fre,french"], "--languages among: all,high,medium,low,eng_us"),
        (["--languages", "fre"], "fre"),  # which the folder has not
        (["--from", "nematus=runs/low"], "SYSTEM=RUN with a system of: hard_monotonic,rnnsearch. Received: 'nematus="),
        (["--from", "rnnsearch=a", "rnnsearch=b"], "one run for each system. Received: rnnsearch=a rnnsearch=b"),
        (["--minutes", "0"], "--minutes above 0"),
        (["--set", "lstm.units=3"], "recipe among: hard_monotonic, rnnsearch, nematus, luong"),
        (["--set", "metric=bleu"], "scored by WER. Received: bleu"),
    ],
)
def test_bad_options_are_refused_before_anything_is_begun(more, message, corpus, tmp_path, capfd):
    try:
        code = g2p.main(command_line(corpus, tmp_path / "out", *more))
    except SystemExit as ended:  # the parser's
        code = ended.code
    err = capfd.readouterr().err
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()
