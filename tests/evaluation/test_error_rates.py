"""Phoneme and word error rates: solved by hand, against brute force, and through the commands."""

import functools
import json
import os
import random

import numpy as np
import pytest

from keras_attn import evaluation
from keras_attn.cli import evaluate, train
from keras_attn.evaluation import by_metric
from keras_attn.evaluation.error_rates import edit_distance
from recipes import sweep

pytestmark = pytest.mark.once

DATA = os.environ.get("KERAS_ATTN_DATA")


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "ba", 2)],
)
def test_edit_distance_by_hand(one, other, distance):
    assert edit_distance(one, other) == distance


def test_edit_distance_equals_its_definition():
    """The recurrence over prefixes as it stands in the textbook, without a table."""

    @functools.cache
    def recursive(one: str, other: str) -> int:
        if not one or not other:
            return len(one) + len(other)
        substituted = recursive(one[:-1], other[:-1]) + (one[-1] != other[-1])
        return min(substituted, recursive(one[:-1], other) + 1, recursive(one, other[:-1]) + 1)

    rng = random.Random(3)
    for _ in range(211):
        one, other = ("".join(rng.choice("abc") for _ in range(rng.randrange(8))) for _ in range(2))
        assert edit_distance(one, other) == recursive(one, other), (one, other)


def test_error_rates_by_hand():
    """Three words, of which the first is right by its second answer.

    Word 2: one edit from its first answer (3 phonemes), two from the other. Word 3: nothing was said, two deletions.
    """
    hypotheses = ["T AH", "K AE  B", ""]
    answers = [["T EY", "T AH"], ["K AE T", "K AE T S"], ["D OW"]]
    per, wer = evaluation.phoneme_error_rate(hypotheses, answers), evaluation.word_error_rate(hypotheses, answers)
    assert per.score == pytest.approx(100 * (0 + 1 + 2) / (2 + 3 + 2))
    assert wer.score == pytest.approx(100 * 2 / 3)
    assert per.signature == wer.signature == "items:3|answers:5|nearest"
    assert (str(per), wer.verbose) == ("PER|items:3|answers:5|nearest = 42.86 3 edits / 7 symbols", "2 wrong / 3")


@pytest.mark.parametrize("rate", [evaluation.phoneme_error_rate, evaluation.word_error_rate])
@pytest.mark.parametrize(
    ("hypotheses", "answers", "sentence"),
    [
        ([], [], "Received: 0 hypotheses and 0 lists"),
        (["a", "b"], [["a"]], "Received: 2 hypotheses and 1 lists"),
        (["a"], [[]], r"Received: \[\] for hypothesis 1"),
        (["a", "b"], [["a"], "b"], "Received: 'b' for hypothesis 2"),
        (["a"], [["a", " "]], "that are not blank"),
        ("a", ["a"], "Received: one string"),
    ],
)
def test_bad_input_is_a_sentence(rate, hypotheses, answers, sentence):
    with pytest.raises(ValueError, match=sentence):
        rate(hypotheses, answers)


SOURCES = ["a", "c a t", "a", "d o"]
REFERENCES = ["AH", "K AE T", "EY", "D UW"]


def test_nothing_to_score_is_a_sentence():
    with pytest.raises(ValueError, match="at least one hypothesis"):
        evaluation.all_scores("wer", [], [], [], "none")


def test_a_word_of_several_lines_counts_once():
    hypotheses = ["EY", "K AE B", "EY", "D UW"]
    assert by_metric.items(SOURCES, REFERENCES, hypotheses) == (
        ["EY", "K AE B", "D UW"],
        [["AH", "EY"], ["K AE T"], ["D UW"]],
    )
    scores = by_metric.all_scores("wer", SOURCES, REFERENCES, hypotheses, "13a")
    assert {name: one["score"] for name, one in scores.items()} == {"wer": 33.33, "per": round(100 / 6, 2)}
    assert by_metric.main_score("wer", SOURCES, REFERENCES, hypotheses, "13a") == pytest.approx(100 / 3)
    assert by_metric.is_better("wer", 3.0, 4.0)
    assert not by_metric.is_better("wer", 4.0, 4.0)
    assert by_metric.is_better("bleu", 4.0, 3.0)


def test_mcnemar_by_hand():
    """Three words that only the first gets right, one that only the second does: 2 (1 + 4) / 2^4."""
    sources = [*"abcdef"]
    result = by_metric.mcnemar_test(sources, sources, [*"abcxex"], [*"xxxdex"])
    assert result == {"only_first_right": 3, "only_second_right": 1, "p_value": 10 / 16}
    assert by_metric.mcnemar_test(sources, sources, sources, sources)["p_value"] == 1


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Words of five letters' alphabet, spelled out; every seventh has a second pronunciation."""
    folder = tmp_path_factory.mktemp("corpora") / "spelling"
    folder.mkdir()
    rng = np.random.default_rng(5)
    words = list(dict.fromkeys(tuple(rng.integers(0, 5, rng.integers(2, 4))) for _ in range(541)))
    parts = {"train": words[:97], "val": words[97:110], "test": words[110:127]}
    for split, chosen in parts.items():
        letters, phones = [], []
        for number, word in enumerate(chosen):
            for answer in range(1 + (number % 7 == 0)):
                letters.append(" ".join("abcde"[i] for i in word))
                phones.append(" ".join(("AH", "B", "K", "D", "EH")[i] for i in word[answer:]))
        (folder / f"{split}.letters").write_text("\n".join(letters) + "\n")
        (folder / f"{split}.phones").write_text("\n".join(phones) + "\n")
    return folder


@pytest.mark.slow
def test_a_run_is_scored_and_chosen_by_word_error_rate(corpus, tmp_path, capfd):
    out, where = tmp_path / "run", ["--corpus", str(corpus), "--source", "letters", "--target", "phones"]
    sizes = "units=17 embedding_size=11 readout_size=11 attention_units=5 decoder_units=31 batch_size=16"
    sizes += " embedding_dropout=0 memory_dropout=0 output_dropout=0 label_smoothing=0"
    text = "level=symbol source_vocabulary_size=none target_vocabulary_size=none metric=wer"
    options = ["--out", str(out), "--no-export", "--epochs", "11", "--set", *sizes.split(), *text.split()]
    assert train.main(["rnnsearch", *where, *options, "learning_rate=0.03"]) == 0
    report = json.loads((out / "report.json").read_text())
    rates = report["history"]["val_wer"]
    assert min(rates) < 100, "nothing was learnt: any choice would do"
    assert report["best_epoch"] == 1 + rates.index(min(rates))
    assert report["wer"]["signature"] == "items:17|answers:20|nearest"
    assert report["test_sources_in_training"] == 0
    assert "bleu" not in report
    assert "val_wer" in (out / "history.csv").read_text().splitlines()[0]

    lines = (out / "translations.txt").read_text().split("\n\n")
    hypotheses = [block.partition("translation: ")[2] for block in lines if block]
    (tmp_path / "said").write_text("".join(f"{hypothesis}\n" for hypothesis in hypotheses))
    (tmp_path / "silent").write_text("\n" * 20)
    capfd.readouterr()
    options = ["--hypotheses", str(tmp_path / "said"), "--against", str(tmp_path / "silent")]
    options += ["--output", str(tmp_path / "scores.json")]
    assert evaluate.main([str(out), *where, *options]) == 0
    printed, scored = capfd.readouterr().out, json.loads((tmp_path / "scores.json").read_text())
    for name in ("wer", "per"):
        assert f"{name} {report[name]['score']:.2f}  {report[name]['signature']}" in printed
        assert scored["systems"][0][name] == report[name]
    sources, references = ((corpus / f"test.{side}").read_text().splitlines() for side in ("letters", "phones"))
    assert scored["mcnemar"] == by_metric.mcnemar_test(sources, references, hypotheses, [""] * 20)
    assert sweep.main([str(out)]) == 2
    assert "scored by BLEU" in capfd.readouterr().err


@pytest.mark.skipif(not DATA, reason="needs the corpora")
def test_no_word_of_the_dictionary_is_in_two_splits():
    from keras_attn.training import corpora

    splits = corpora.load("cmudict", data=DATA).splits
    words = [set(splits[split][0]) for split in ("train", "val", "test")]
    assert len(set.union(*words)) == sum(map(len, words))
