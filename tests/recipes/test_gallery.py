"""The gallery: what is committed is what its command makes, and is readable on a phone and without colour vision."""

import html.parser
import re

import pytest

from recipes.pages import alt_texts, gallery

pytestmark = pytest.mark.once

DOCS = gallery.ROOT / "docs"
FILES = sorted(path.name for path in (DOCS / "gallery").iterdir())
OKABE_ITO = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442"}
PHONE = 328  # pixels of 360, without the margins of the page


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    assert gallery.main(["--output", str(folder)]) == 0
    return folder


def svg(name):
    return (DOCS / "gallery" / name).read_text("utf-8")


def texts(picture):
    """The texts of a figure, which matplotlib writes beside their outlines."""
    return re.findall(r"<!-- (.*?) -->", picture)


def colours(picture):
    return re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", picture)


def is_close(first, second, tolerance):
    """Whether two texts have the same words, and numbers that differ by a rounding."""
    number = r"\d+(?:\.\d+)?"
    numbers = zip(*(map(float, re.findall(number, one)) for one in (first, second)), strict=True)
    return re.sub(number, "0", first) == re.sub(number, "0", second) and all(
        abs(a - b) <= tolerance for a, b in numbers
    )


def channels(colour):
    return [int(colour[n : n + 2], 16) for n in (1, 3, 5)]


def test_the_committed_page_is_what_the_reports_say():
    assert (DOCS / "gallery.md").read_text("utf-8") == gallery.page()


def test_a_page_by_hand_says_of_a_figure_what_its_report_says():
    alt = alt_texts.of_study(gallery.read(gallery.ATTENTION))
    assert f"![{alt}](" in (DOCS / "guides" / "attention.md").read_text("utf-8")


def test_no_alternative_text_is_a_mere_title():
    """It says what follows from a figure."""
    texts = re.findall(r"!\[(.*?)\]\(", gallery.page() + (gallery.ROOT / "recipes" / "README.md").read_text("utf-8"))
    assert min(len(alt.split()) for alt in texts) > 8


def test_the_page_shows_every_file():
    page = gallery.page()
    assert set(re.findall(r"\]\(gallery/(.*?)\)", page)) == set(FILES)
    assert all(alt for alt in re.findall(r"!\[(.*?)\]", page))


@pytest.mark.slow
def test_the_command_makes_the_committed_files(made):
    """Weights differ by a rounding between processors, so shades and percents may, too."""
    assert sorted(path.name for path in (made / "gallery").iterdir()) == FILES
    for name in FILES:
        committed, new = svg(name), (made / "gallery" / name).read_text("utf-8")
        if name.endswith(".html"):
            rows = r'(?<=data-weights=")[^"]*'
            assert re.sub(rows, "", new) == re.sub(rows, "", committed)
            pairs = zip(*("\n".join(re.findall(rows, page)).split() for page in (new, committed)), strict=True)
            assert all(is_close(*pair, 1) for pair in pairs)
        else:
            assert all(is_close(*pair, 0.011) for pair in zip(texts(new), texts(committed), strict=True)), name
            for first, second in zip(colours(new), colours(committed), strict=True):
                assert max(abs(a - b) for a, b in zip(channels(first), channels(second), strict=True)) <= 3, name


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".svg")])
def test_a_figure_is_readable_on_a_phone_and_without_colour_vision(name):
    picture = svg(name)
    width = float(re.search(r'width="([\d.]+)pt"', picture)[1]) * 96 / 72
    assert width <= 1.05 * PHONE, "smaller letters, where it is scaled down"
    coloured = {one for one in colours(picture) if max(channels(one)) - min(channels(one)) > 3}
    assert coloured <= OKABE_ITO
    assert "#ffffff" in colours(picture), "the ground, also on a dark page"


def test_frames_show_pages_that_have_a_link_too():
    class Frames(html.parser.HTMLParser):
        frames = ()

        def handle_starttag(self, tag, attributes):
            if tag == "iframe":
                self.frames += (dict(attributes),)

    page = Frames()
    page.feed(gallery.page())
    linked = {address.rpartition("/")[2] for address in re.findall(r"\]\((.*?\.html)\)", gallery.page())}
    assert {one["src"].rpartition("/")[2] for one in page.frames} == linked
    assert all(one["title"] for one in page.frames)
