"""The study of pronunciation: runs and their combinations, scores, means, page and figure."""

import json
import statistics
from types import SimpleNamespace

import numpy as np
import pytest

from keras_attn import Translator
from keras_attn.evaluation import phoneme_error_rate, word_error_rate
from keras_attn.translation import vote
from recipes import named_corpora
from recipes.studies import g2p

SIZES = ["units=7", "embedding_size=8", "decoder_units=9", "readout_size=6", "rnnsearch.attention_units=5"]
SIZES += ["hard_monotonic.num_layers=1", "batch_size=16", "validate_every=30", "learning_rate=0.03", "warmup_steps=1"]
SIZES += ["embedding_dropout=0", "memory_dropout=0", "output_dropout=0", "ema_decay=0", "label_smoothing=0"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Words of two or three letters, one of which is two phones."""
    folder = tmp_path_factory.mktemp("corpora") / "small"
    rng = np.random.default_rng(3)
    words = list(dict.fromkeys(tuple(rng.integers(0, 4, rng.integers(2, 4))) for _ in range(400)))
    (folder / "ady").mkdir(parents=True)
    for split, chosen in (("train", words[:48]), ("val", words[48:58]), ("test", words[58:75])):
        for side, symbols in (("letters", "abcd"), ("phones", ("AH", "B", "K", "D IY"))):
            lines = [" ".join(symbols[i] for i in word) for word in chosen]
            (folder / "ady" / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_means_are_over_all_languages_of_an_amount_by_hand():
    """One of the low languages is missing, and of the medium ones one has no rnnsearch."""

    def scored(name, kind, wer):
        return {"name": name, "kind": kind, "wer": {"mean": wer}, "per": wer / 4}

    rows = []
    for amount, names in named_corpora.G2P_LANGUAGES.items():
        for n, name in enumerate(names[: None if amount == "medium" else 7]):
            scores = [scored("hard_monotonic", "single", 10.0 + n), scored("hard_monotonic", "vote", 8.0)]
            scores += [scored("hard_monotonic", "probability", 7.0 + n)]
            scores += [scored("rnnsearch", "single", 20.0)] * (name != "kor")
            rows.append({"amount": amount, "baseline": g2p.BASELINE[name], "scores": scores})
    (mean,) = g2p.means(rows)
    assert (mean["amount"], mean["languages"], mean["baseline"]) == ("medium", 7, 10.0)
    found = {(one["name"], one["kind"]): (one["wer"]["mean"], one["per"]) for one in mean["scores"]}
    expected = {"single": (13.0, 3.25), "vote": (8.0, 2.0), "probability": (10.0, 2.5)}
    assert found == {("hard_monotonic", kind): pair for kind, pair in expected.items()}
    assert list(g2p.BASELINE) == g2p._languages("all")
    low = [g2p.BASELINE[name] for name in named_corpora.G2P_LANGUAGES["low"]]
    assert statistics.mean(low) == pytest.approx(22.6, abs=0.05), "that of the task"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("kor,high", ["eng_us", "kor"]), ("low", [*named_corpora.G2P_LANGUAGES["low"]]), ("fre,fre", ["fre"])],
)
def test_languages_are_chosen_by_name_or_amount(text, expected):
    assert g2p._languages(text) == expected


def test_korean_syllables_are_decomposed_unless_the_text_is_ones_own():
    def sides(language, **own):
        return g2p._sides(SimpleNamespace(**{"corpus": "g2p", "source": "letters", "target": "phones"} | own), language)

    assert (sides("kor"), sides("fre")) == (("decomposed", "phones"), ("letters", "phones"))
    assert sides("kor", corpus="mine") == ("letters", "phones")
    assert sides("kor", source="phones", target="letters") == ("phones", "letters")


def test_a_system_goes_on_from_its_multilingual_run():
    starts = g2p._starts(["nematus=runs/low=2"], ["nematus", "luong"])
    arguments = SimpleNamespace(corpus="g2p", source="letters", target="phones", max_steps=7)
    changes = {"nematus": ["ema_decay=0"], "luong": []}
    begun, new = (g2p._variant(arguments, "ady", system, changes, starts) for system in ("nematus", "luong"))
    assert begun.options == ("--from", "runs/low=2", "--tags", "corpus")
    assert (begun.changes, new.options) == (("max_steps=7", "ema_decay=0"), ())


@pytest.mark.nightly
def test_models_are_trained_combined_and_never_repeated(words, tmp_path, in_process):
    """Two seeds of a system, killed before the second ensemble."""
    out, work = tmp_path / "out", in_process(most=3)
    line = ["--corpus", str(words), "--languages", "ady", "--out", str(out), "--max-steps", "60", "--minutes", "9"]
    line += ["--beam", "2", "--set", *SIZES, "--seeds", "2", "--systems"]
    assert g2p.main([*line, "hard_monotonic"]) == 130
    work.most = 4
    for _ in range(2):
        assert g2p.main([*line, "hard_monotonic"]) == 0
    runs = [f"ady-hard_monotonic-seed-{seed}" for seed in (0, 1)]
    assert work.done == runs + [f"ady-hard_monotonic-{kind}-seeds-0-1" for kind in ("probability", "vote")]

    report = json.loads((out / "report.json").read_text())
    assert str(tmp_path) not in (out / "report.json").read_text()
    assert report["command"] == (
        "python -m recipes.studies.g2p --corpus small --source letters --target phones --max-steps 60 --beam 2 "
        f"--seed 0 --seeds 2 --systems hard_monotonic --languages ady --minutes 9.0 --set {' '.join(SIZES)}"
    )
    trained = [json.loads((out / run / "report.json").read_text()) for run in runs]
    assert [(one["seed"], one["minutes"], one["updates"]) for one in trained] == [(0, 9, 60), (1, 9, 60)]
    assert all((one["config"]["level"], one["config"]["metric"]) == ("symbol", "wer") for one in trained)

    sources, targets = ((words / "ady" / f"test.{side}").read_text().splitlines() for side in ("letters", "phones"))
    presets = [out / run for run in runs]
    alone = [Translator.from_preset(preset).generate(sources, beam_size=2) for preset in presets]
    together = Translator.from_presets(presets).generate(sources, beam_size=2)
    (language,) = report["languages"]
    assert (language["language"], language["baseline"], report["means"]) == ("ady", 22, [])
    assert (language["training_pairs"], language["test_sentences"]) == (48, 17)
    single, *combined = language["scores"]
    assert single["wer"]["scores"] == [run["wer"]["score"] for run in trained]
    assert single["wer"]["mean"] == round(statistics.mean(single["wer"]["scores"]), 2)
    assert single["per"] == round(statistics.mean(run["per"]["score"] for run in trained), 2) < 80, "nothing was learnt"
    for one, kind, said in zip(combined, ("probability", "vote"), (together, vote(alone)), strict=True):
        assert (one["kind"], one["models"]) == (kind, 2)
        texts, answers = [translation.text for translation in said], [[target] for target in targets]
        assert one["wer"]["mean"] == round(word_error_rate(texts, answers).score, 2)
        assert one["per"] == round(phoneme_error_rate(texts, answers).score, 2)
