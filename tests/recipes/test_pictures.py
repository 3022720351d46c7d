"""The pictures of the guides: every guide has one, and the committed files are what the command makes."""

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from keras_attn.converters.marian import describe
from keras_attn.converters.marian_file import read_model
from keras_attn.converters.marian_weights import convert
from recipes.pages import guide_diagrams, pictures
from tests import fixtures
from tests.recipes.test_gallery import OKABE_ITO, PHONE, channels, colours, is_close

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.once

DOCS = pictures.ROOT / "docs"
OF_REPORTS = ("guides/models", "guides/own-text", "guides/evaluation", "guides/backends", "guides/performance")
DRAWN = (
    "guides/extending",
    "guides/migrating-from-keras-and-joeynmt",
    "migrating-from-tfa",
    "presets",
    "without-keras",
    "marian",
    "clusters",
    "large-corpora",
)
PAGES = {f"guides/{path.stem}" for path in DOCS.glob("guides/*.md")} | {*pictures.PICTURES}


def texts(path):
    return re.findall(r"<text[^>]*>(.*?)</text>", path.read_text("utf-8"), flags=re.S)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_shows_its_picture_and_says_what_is_in_it(page):
    (alt,) = re.findall(rf"!\[(.*?)\]\({page.rpartition('/')[2]}\.svg\)", (DOCS / f"{page}.md").read_text("utf-8"))
    assert len(alt.split()) > 8
    assert (DOCS / f"{page}.svg").is_file()


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_small_and_readable_on_a_phone_and_without_colour_vision(name):
    picture = (DOCS / f"{name}.svg").read_text("utf-8")
    assert len(picture) < 40_000
    width = float(re.search(r'width="([\d.]+)pt"', picture)[1]) * 96 / 72
    smallest = min(float(size) for size in re.findall(r"font(?:-size)?:[^;]*?([\d.]+)px", picture)) * 96 / 72
    assert smallest * min(1, PHONE / width) >= 9, "pixels, on a phone"
    coloured = {one for one in colours(picture) if max(channels(one)) - min(channels(one)) > 3}
    assert coloured <= OKABE_ITO
    assert "#ffffff" in colours(picture), "the ground, also on a dark page"


def test_pictures_of_reports_and_diagrams_are_the_committed_ones_twice_the_same(tmp_path, capsys):
    for folder in ("first", "second"):
        assert pictures.main([*OF_REPORTS, *DRAWN, "--output", str(tmp_path / folder)]) == 0
    assert "13 pictures" in capsys.readouterr().out
    for name in (*OF_REPORTS, *DRAWN):
        first, second = (tmp_path / folder / f"{name}.svg" for folder in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
        assert texts(first) == texts(DOCS / f"{name}.svg")


@pytest.mark.slow
def test_pictures_of_the_preset_are_the_committed_ones(tmp_path):
    """Weights differ by a rounding between processors, so numbers may, too."""
    names = [name for name in pictures.PICTURES if name not in OF_REPORTS + DRAWN]
    assert pictures.main([*names, "--output", str(tmp_path)]) == 0
    for name in names:
        made, committed = texts(tmp_path / f"{name}.svg"), texts(DOCS / f"{name}.svg")
        assert all(is_close(*pair, 0.011) for pair in zip(made, committed, strict=True)), name


def test_the_beam_in_the_picture_ends_as_the_search_does():
    from recipes.pages import preset_pictures

    translator = pictures.translator()
    steps, finished = preset_pictures.beam_steps(translator, pictures.GIRL, 3)
    assert all(len(kept) == 3 for kept in steps)
    (found,) = translator.generate([pictures.GIRL], beam_size=3, n_best=3)
    for one, (tokens, score) in zip(found.n_best, finished, strict=True):
        assert (one.tokens, one.score) == (tokens, score)
        before_the_end = one.token_log_probs[:-1].sum()
        assert abs(steps[len(tokens) - 2][tokens[:-1]] - before_the_end) < 1e-3


def test_marians_weights_go_where_the_picture_says(tmp_path):
    """With the weights of one name alone, the layer beside it has weights other than zero, and no other layer has."""
    path = tmp_path / "s2s.npz"
    with zipfile.ZipFile(Path(fixtures.__file__).with_name("marian.zip")) as archive:
        path.write_bytes(archive.read(path.name))
    options, weights = read_model(path)
    sizes, arguments = describe(options, path)
    places, named = [], []
    for pattern, layer, _ in guide_diagrams.MARIAN:
        names = [name for name in weights if re.match(pattern, name)]
        one = {name: np.full_like(array, name in names) for name, array in weights.items()}
        found = convert(one, sizes, arguments, path)
        found["output/bias"] = found["output/bias"][: -len(("padding", "start"))]  # never produced
        filled = {place for place, array in found.items() if array.any()}
        assert filled
        assert all(place.startswith(f"{layer}/") for place in filled), (pattern, filled)
        places, named = places + sorted(filled), named + names
    assert sorted(named) == sorted(weights)
    assert {place.rpartition("/")[0] for place in places} == {place.rpartition("/")[0] for place in found}


def test_refuses_an_unknown_name(tmp_path, capsys):
    assert pictures.main(["guides/none", "--output", str(tmp_path)]) == 2
    assert "guides/none" in capsys.readouterr().err
