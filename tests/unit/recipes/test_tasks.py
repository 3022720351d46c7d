"""The recipes of other tasks: data that say what they should, runs that report, and pages that quote the reports."""

import importlib
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import keras_attn
from recipes.pages import results
from recipes.tasks import corpora, pointer_network

TASKS = sorted(path.stem for path in Path(corpora.__file__).parent.glob("[a-z]*.py"))
TASKS = [name for name in TASKS if name not in ("corpora", "pictures", "task")]
REPORTS = {
    report["task"]: report for report in results.read_reports(results.FOLDER / "reports").values() if "task" in report
}


def test_a_hull_has_every_point_on_its_left():
    random = np.random.default_rng(3)
    for points in random.random((20, 9, 2)):
        ring = corpora.hull(points)
        assert ring[0] == points[:, 0].argmin()
        for one, other in zip(ring, [*ring[1:], ring[0]], strict=True):
            edge, rest = points[other] - points[one], np.delete(points, [one, other], 0) - points[one]
            assert (edge[0] * rest[:, 1] > edge[1] * rest[:, 0]).all()


def test_numbers_in_words_differ_and_are_english():
    assert len({corpora.in_words(n) for n in range(1000)}) == 1000
    words = {
        0: "zero",
        14: "fourteen",
        20: "twenty",
        71: "seventy one",
        300: "three hundred",
        909: "nine hundred and nine",
    }
    assert {n: corpora.in_words(n) for n in words} == words


def test_a_headline_is_made_of_its_report():
    texts, headlines = corpora.reports(50, seed=5)
    for text, headline in zip(texts, headlines, strict=True):
        actor, verb, *_, town = headline.split()
        assert text.count(" .") == 4
        assert f" {town} ." in text
        (did,) = [past for past, present in corpora.EVENTS.items() if present == verb]
        assert f", {did} " in text.partition(f"{actor} , ")[2]


@pytest.mark.parametrize("facts", [1, 2])
def test_the_answer_to_a_question_follows_from_the_story_read_backwards(facts):
    for story, text, answer in corpora.questions(100, seed=5, facts=facts):
        read, asked = [line.split() for line in story], text.split()[-1]
        if facts == 2:  # up to where it was dropped, or to the end
            last = max(n for n, words in enumerate(read) if words[-1] == asked)
            dropped = read[last][1] in corpora.DROP
            read, asked = read[: last if dropped else None], read[last][0]
        assert [words[-1] for words in read if words[0] == asked and words[-1] in corpora.PLACES][-1] == answer


def test_a_canvas_has_its_digits_inside_their_boxes(tmp_path, monkeypatch):
    """With digits of one grey each, so that scikit-learn, which Keras would import everywhere, is not needed."""
    monkeypatch.setattr(corpora, "folder_of", lambda *_: tmp_path)
    (tmp_path / "datasets" / "data").mkdir(parents=True)
    table = [[1 + n % 10] * 64 + [n % 10] for n in range(100)]
    np.savetxt(tmp_path / "datasets" / "data" / "digits.csv.gz", table, fmt="%d", delimiter=",")
    for canvas in corpora.canvases(20, seed=5, test=True):
        image = canvas.image[:, :, 0].copy()
        assert len(canvas.corners) == canvas.sentence.count(" at ")
        for (y, x), part in zip(canvas.corners, canvas.sentence.split(" , "), strict=True):
            grey = np.unique(image[y : y + 8, x : x + 8] * 16)
            assert [corpora.NUMBERS[int(one) - 1] for one in grey] == [part.split(" at ")[0]]
            image[y : y + 8, x : x + 8] = 0
            assert part.split(" at ")[1] == f"{corpora.ROWS[y // 12]} {corpora.COLUMNS[x // 12]}"
        assert not image.any()
        words = len(canvas.sentence.split())
        first = [max(0, 6 - y) * max(0, 6 - x) / 36 for y, x in canvas.corners]  # of the first place, 6 by 6 pixels
        np.testing.assert_allclose(canvas.inside(np.eye(1, 36).repeat(words, axis=0)), first)
        np.testing.assert_allclose(canvas.inside(np.full((words, 36), 1 / 36)), [64 / 36**2] * len(first))


def test_sentence_ids_are_cut_and_padded():
    tokenizer = keras_attn.Tokenizer.train(["a b c"], level="word")
    a, b, c = tokenizer.encode("a b c")
    texts = [["a b c", "c"], ["b"], ["a", "b", "c"]]
    after = corpora.sentence_ids(texts, tokenizer, (2, 2))
    assert after.tolist() == [[[a, b], [c, 0]], [[b, 0], [0, 0]], [[a, 0], [b, 0]]]
    assert corpora.sentence_ids(texts[1:2], tokenizer, (2, 2), padding="pre").tolist() == [[[0, 0], [b, 0]]]


def test_spoken_numbers_of_the_test_are_no_others():
    train, test = corpora.spoken_numbers(3, 3, seed=5)
    assert len({*train[1], *test[1]}) == 6


def test_an_utterance_is_as_long_as_its_number():
    (short, long, again), words = corpora.utterances([1, 777, 777], corpora.VOICES[:1], seed=5)
    assert (words[0], short.shape[1]) == ("one", 32)
    assert 20 < len(short) < len(long) / 2 < len(again)
    np.testing.assert_allclose(short.mean(0), 0, atol=1e-4)


def test_a_recipe_trains_searches_and_reports(tmp_path):
    pointer_network.main(["--epochs", "1", "--items", "64", "--out", str(tmp_path)])
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["command"] == "python -m recipes.tasks.pointer_network --seed 0 --epochs 1 --items 64"
    assert all(0 <= score <= 100 for score in report["scores"].values())
    assert (tmp_path / "picture.png").stat().st_size > 1000
    assert list(tmp_path.glob("*.keras"))


@pytest.mark.parametrize("words", [("--out", "{f}"), ("--seed", "-1"), ("--epochs", "0"), ("--items", "0")])
def test_what_would_overwrite_a_run_or_train_nothing_is_refused(words, tmp_path, capsys):
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(SystemExit, match="2"):
        pointer_network.main([word.format(f=tmp_path) for word in words])
    assert "xpected" in capsys.readouterr().err
    assert (tmp_path / "report.json").read_text() == "{}"


@pytest.mark.parametrize("name", TASKS)
def test_a_recipe_says_what_its_report_has(name):
    report, text = REPORTS[name], " ".join(importlib.import_module(f"recipes.tasks.{name}").__doc__.split())
    assert text.startswith(report["title"])
    for score in itertools.islice(report["scores"].values(), 2):
        assert f"{score:.1f}" in text
    assert f"{report['processor_seconds'] / 60:.1f} minutes of one core" in text
    assert report["processor_seconds"] < 600, "five minutes of two cores"
