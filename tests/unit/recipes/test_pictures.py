"""The pictures of the pages: each guide has one, all are readable on a phone, and alternative texts are true."""

import re
from pathlib import Path

import pytest

from recipes.pages import results, studies

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
REPORTS = results.read_reports(ROOT / "recipes" / "reports")
OKABE_ITO = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442"}
PHONE = 328  # pixels of 360, without the margins of the page
FIGURE = re.compile(r"!\[(.*?)\]\((.*?\.svg)\)")
PAGES = [*sorted(DOCS.rglob("*.md")), *ROOT.glob("*.md"), ROOT / "recipes" / "README.md"]
NARROW = [path for folder in ("gallery", "lecture") for path in DOCS.glob(f"{folder}/*.svg")]
NARROW = sorted([*NARROW, *(ROOT / "recipes" / "reports").glob("*/*-narrow.svg")])


def channels(colour):
    return [int(colour[n : n + 2], 16) for n in (1, 3, 5)]


def figures_of(page):
    return FIGURE.findall(page.read_text("utf-8"))


def test_every_guide_has_its_picture_and_every_picture_its_page():
    shown = {(page.parent / address).resolve() for page in PAGES for _, address in figures_of(page)}
    assert {path.resolve() for path in DOCS.rglob("*.svg")} <= shown
    for guide in DOCS.glob("guides/*.md"):
        assert guide.with_suffix(".svg").name in [address for _, address in figures_of(guide)]


@pytest.mark.parametrize("path", NARROW, ids=lambda path: path.stem)
def test_a_figure_is_readable_on_a_phone_and_without_colour_vision(path):
    picture = path.read_text("utf-8")
    width = float(re.search(r'width="([\d.]+)pt"', picture)[1]) * 96 / 72
    assert width <= 1.05 * PHONE, "smaller letters, where it is scaled down"
    colours = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", picture))
    assert {one for one in colours if max(channels(one)) - min(channels(one)) > 3} <= OKABE_ITO
    assert "#ffffff" in colours, "the ground, also on a dark page"


def test_the_gallery_describes_a_figure_as_its_report_does():
    shown = {alt for alt, _ in figures_of(DOCS / "gallery.md")}
    names = "phrases-en-fr/length", "bible-en-es/length", "multi30k-de-en/score-functions", "tatoeba-en-fr/aligners"
    assert {studies.STUDIES[REPORTS[name]["study"]].found(REPORTS[name]) for name in names} <= shown


def test_the_committed_figures_are_those_of_the_reports(tmp_path):
    """Except for the coordinates, which may differ by a rounding between processors."""
    for name, report in REPORTS.items():
        if "study" in report:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            studies.draw(report, tmp_path / name)
    made, committed = (
        {
            path.relative_to(folder): re.findall(r"<!-- (.*?) -->", path.read_text("utf-8"))
            for path in folder.glob("*/*.svg")
        }
        for folder in (tmp_path, results.FOLDER / "reports")
    )
    assert made == committed
