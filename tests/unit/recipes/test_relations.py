"""The study of pronouns: its language, the measures of a head by hand, its report and page."""

import itertools
import json
from pathlib import Path

import numpy as np

from recipes.studies import relations

ROOT = Path(__file__).parents[3]


def test_the_adjective_decides_the_pronoun_and_the_test_has_new_pairs():
    every = relations.sentences()
    noun_of = {one.source: one.source.split()[1 if one.is_first else 6] for one in every}
    assert len(noun_of) == len(every)
    known, new = (
        {(noun_of[one.source], one.source.split()[11]) for one in every if one.is_new == is_new}
        for is_new in (False, True)
    )
    assert (len(known), len(new)) == (72, 24)
    assert not known & new
    test = [one for one in every if one.is_new and one.has_both_genders]
    counts = np.array([(one.is_first, " elle " in one.target) for one in test])
    for case in itertools.product((0, 1), (0, 1)):
        assert (counts == case).all(axis=1).mean() == 1 / 4
    assert {one.target for one in every if one.source in relations.SHOWN} == {
        "l' animal n' a pas traversé la rue parce qu' il était trop fatigué .",
        "l' animal n' a pas traversé la rue parce qu' elle était trop large .",
    }
    for one in every:
        source, target = one.source.split(), one.target.split()
        assert (source[8], target[9], len(source), len(target)) == ("it", "qu'", 13, 15)
        article, _ = target[:2] if one.is_first else target[6:8]
        ending = "e" if article == "la" or target[13] == "large" else "é" if target[13].endswith("é") else "t"
        assert (target[10] == "elle", target[13][-1]) == (article == "la", ending)


def test_the_measures_of_a_head_by_hand():
    weights = np.zeros((1, 2, 1, 13, 13))
    weights[0, :, 0, 8, [1, 6, 8]] = [0.6, 0.4], [0.1, 0.3], [0.7, 0.1]  # in two sentences: the nouns, and "it"
    weights[0, :, 0, 11, [1, 6, 8]] = [0.2, 0.2], [0.6, 0.7], [0.1, 0.1]
    (row,) = relations.heads({"encoder": weights}, np.array([True, False]))
    it = {"it: found": 50, "it: wrong": 50, "it: above": 50, "it: right": 45, "it: other": 25}
    adjective = {"adjective: right": 45, "adjective: other": 40, "adjective: pronoun": 10}
    assert row == {"name": "encoder 1, head 1"} | it | adjective


def test_the_study_writes_its_report(tmp_path):
    assert relations.main(["--items", "64", "--seeds", "1", "--out", str(tmp_path / "run")]) == 0
    (run,) = json.loads((tmp_path / "run" / "report.json").read_text("utf-8"))["runs"]
    assert [row["name"] for row in run["rows"]] == [
        f"{kind} {layer}, head {head}" for kind in relations.ROWS for layer in (1, 2) for head in (1, 2, 3, 4)
    ]
    # "it" of the first layer has not read the adjective: the nouns keep their proportion
    np.testing.assert_allclose([row["it: above"] for row in run["rows"][:4]], 50, atol=0.5)
    assert [len(rows.split(";")) for rows in run["per_mille"]] == [8] * 4


def best(run, kind, key, less=None):
    """The head of a kind with the largest measure, or difference of two, and its name in the tables."""
    row = max((row for row in run["rows"] if row["name"].startswith(kind)), key=lambda row: row[key] - row.get(less, 0))
    layer, head = row["name"].removeprefix(f"{kind} ").split(", ")
    return row | {"name": f"{head} of layer {layer}"}


def test_the_tables_of_the_lecture_are_those_of_the_report():
    report = json.loads((ROOT / "recipes/reports/generated-pairs/relations.json").read_text("utf-8"))
    pages = [(ROOT / "docs" / "lecture" / f"{name}.md").read_text("utf-8") for name in ("relations", "heads")]
    runs, it, adjective = report["runs"], ("it: right", "it: other"), ("adjective: right", "adjective: other")
    rows = [["right pronouns", *(f"{run['pronouns']:.1f}" for run in runs)]]
    for kind, title in (("encoder", "encoder, from “it”"), ("cross", "cross attention, before the pronoun")):
        heads = [best(run, kind, *it) for run in runs]
        rows.append([title, *(f"{row['name']}: {row[it[0]]:.1f} and {row[it[1]]:.1f}" for row in heads)])
        shares = [100 * row["it: found"] / (row["it: found"] + row["it: wrong"]) for row in heads]
        assert "{:.0f}, {:.0f} and {:.0f} %".format(*shares) in pages[0]
        rows.append(["its largest weight", *(f"{row['it: found']:.1f} and {row['it: wrong']:.1f}" for row in heads)])
    heads = [best(run, "encoder", *adjective) for run in runs]
    cells = [f"{row['name']}: {row[adjective[0]]:.1f} and {row[adjective[1]]:.1f}" for row in heads]
    rows.append(["encoder, from the adjective", *cells])
    heads = [best(run, "decoder", "adjective: pronoun") for run in runs]
    rows.append(["decoder", *(f"{row['name']}: {row['adjective: pronoun']:.1f}" for row in heads)])
    found = [f"| {' | '.join(row)} |" for row in rows]
    assert [row for row in found[:5] if row not in pages[0]] == []
    assert [row for row in found[5:] if row not in pages[1]] == []
    above = max(row["it: above"] for run in runs for row in run["rows"])
    assert f"the highest is {above:.1f} %" in pages[0]
