"""The pictures of the pages: each guide has one, all are readable on a phone, and alternative texts are true."""

import re
from collections import Counter
from pathlib import Path

import pytest

from recipes.pages import results, studies
from recipes.studies import heads

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REPORTS = results.read_reports(ROOT / "recipes" / "reports")
OKABE_ITO = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442"}
PHONE = 328  # pixels of 360, without the margins of the page
FIGURE = re.compile(r"!\[(.*?)\]\((.*?\.svg)\)")
PAGES = [*sorted(DOCS.rglob("*.md")), *ROOT.glob("*.md"), ROOT / "recipes" / "README.md"]
NARROW = sorted([*DOCS.glob("gallery/*.svg"), *(ROOT / "recipes" / "reports").glob("*/*-narrow.svg")])


def channels(colour):
    return [int(colour[n : n + 2], 16) for n in (1, 3, 5)]


@pytest.mark.parametrize("guide", sorted(DOCS.glob("guides/*.md")), ids=lambda path: path.stem)
def test_a_guide_shows_its_picture(guide):
    assert guide.with_suffix(".svg").name in [address for _, address in FIGURE.findall(guide.read_text("utf-8"))]


def test_every_picture_is_on_a_page():
    shown = {(page.parent / at).resolve() for page in PAGES for _, at in FIGURE.findall(page.read_text("utf-8"))}
    assert {path.resolve() for path in DOCS.rglob("*.svg")} <= shown


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_an_alternative_text_says_what_is_in_the_picture(page):
    for alt, address in FIGURE.findall(page.read_text("utf-8")):
        assert len(alt.split()) > 6
        assert (page.parent / address).is_file()


@pytest.mark.parametrize("path", NARROW, ids=lambda path: path.stem)
def test_a_figure_is_readable_on_a_phone_and_without_colour_vision(path):
    picture = path.read_text("utf-8")
    width = float(re.search(r'width="([\d.]+)pt"', picture)[1]) * 96 / 72
    assert width <= 1.05 * PHONE, "smaller letters, where it is scaled down"
    colours = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", picture))
    assert {one for one in colours if max(channels(one)) - min(channels(one)) > 3} <= OKABE_ITO
    assert "#ffffff" in colours, "the ground, also on a dark page"


def test_the_gallery_says_of_a_figure_what_its_report_says():
    shown = {alt for alt, _ in FIGURE.findall((DOCS / "gallery.md").read_text("utf-8"))}
    for name in (
        "phrases-en-fr/length",
        "bible-en-es/length",
        "multi30k-de-en/score-functions",
        "tatoeba-en-fr/aligners",
    ):
        assert studies.STUDIES[REPORTS[name]["study"]].found(REPORTS[name]) in shown


@pytest.mark.parametrize(("sentence", "word"), [(0, "leur"), (1, "ne")])
def test_the_gallery_says_what_a_word_attends_to(sentence, word):
    report = REPORTS["phrases-en-fr/heads"]
    words = report["sentences"][sentence]

    def attended(attention):
        row = heads.weights(attention, sentence)[words["target"].index(word)]
        return words["source"][row.index(max(row))].rstrip(".")

    page = (DOCS / "gallery.md").read_text("utf-8")
    (alt,) = re.findall(rf"!\[.*?“{word}” attends most to (.*?)\]", page)
    said = {name: found for found, names in re.findall(r"“(\w+)” in ([\w, ]+)", alt) for name in names.split(", ")}
    assert said == {one["name"]: attended(one["attentions"][0]) for one in report["systems"]}
    if word == "ne":
        (system,) = (one for one in report["systems"] if one["name"] == "transformer")
        counts = Counter(attended(one) for one in system["attentions"][1:])
        assert counts == {"not": 4, "him": 4}
        assert "8 heads: before “ne” 4 attend most to “not” and 4 to “him”" in page


def test_the_committed_figures_are_those_of_the_reports(tmp_path):
    """Except for the coordinates, which may differ by a rounding between processors."""
    for name, report in REPORTS.items():
        if "study" in report:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            studies.draw(report, tmp_path / name)
    made = {path.relative_to(tmp_path): path for path in tmp_path.glob("*/*.svg")}
    committed = {
        path.relative_to(results.FOLDER / "reports"): path for path in (results.FOLDER / "reports").glob("*/*.svg")
    }
    assert made.keys() == committed.keys()
    for name, path in made.items():
        texts = [re.findall(r"<!-- (.*?) -->", one.read_text("utf-8")) for one in (path, committed[name])]
        assert texts[0] == texts[1]
