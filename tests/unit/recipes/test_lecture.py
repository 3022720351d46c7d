"""The study of the lecture and its pictures."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from recipes.pages import lecture as pictures
from recipes.studies import lecture

LECTURE = Path(__file__).parents[3] / "docs" / "lecture"


@pytest.mark.parametrize("task", lecture.TASKS)
def test_a_query_names_the_value_that_is_asked_for(task):
    queries, memory, values = lecture.pairs(task, 23, np.random.default_rng(0))
    for query, sentence, answers in zip(queries.argmax(-1), memory, values, strict=True):
        keys, own = (part.argmax(-1) for part in np.split(sentence, [lecture.KEYS], axis=1))
        for t, (named, answer) in enumerate(zip(query, answers, strict=True)):
            sought = (named - (task == "other code")) % lecture.KEYS
            found = [j for j, key in enumerate(keys) if key == sought and (task != "near" or abs(j - t) <= 1)]
            assert [own[j] for j in ([named] if task == "position" else found)] == [answer]


def test_the_study_writes_its_report(tmp_path, monkeypatch):
    monkeypatch.setattr(lecture, "SCORES", ("dot",))
    monkeypatch.setattr(lecture, "TASKS", ("key",))
    assert lecture.main(["--items", "64", "--out", str(tmp_path / "run")]) == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text("utf-8"))
    assert report["scores"][0].keys() == {"name", "key"}
    assert [len(one["per_mille"]) for one in report["heads"]] == [1, 2, 4]
    assert len(report["transformer"]["per_mille"]) == 3


def test_the_committed_pictures_are_those_of_the_command(tmp_path):
    assert pictures.main(["--out", str(tmp_path)]) == 0
    made = {path.name: re.findall(r"<!-- (.*?) -->", path.read_text("utf-8")) for path in tmp_path.iterdir()}
    assert made == {name: re.findall(r"<!-- (.*?) -->", (LECTURE / name).read_text("utf-8")) for name in made}
    assert made.keys() == {path.name for path in LECTURE.glob("*.svg")}
