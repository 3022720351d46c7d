"""Alignments between words, as links and as a page; the page in a real browser, with a mouse and with keys."""

import html
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn import plots
from keras_attn.plots import WordAlignment
from keras_attn.text import END_ID, UNKNOWN_ID, Tokenizer
from keras_attn.translation import Translation
from tests import browser

# (T, S) = (4, 5), </s> last on both sides.
WEIGHTS = np.array(
    [
        [0.70, 0.25, 0.05, 0.00, 0.00],
        [0.10, 0.10, 0.10, 0.10, 0.60],
        [0.02, 0.40, 0.18, 0.40, 0.00],
        [0.00, 0.00, 0.00, 0.07, 0.93],
    ]
)
SOURCE = ["der", "<b>&", "alte", "Mann", "</s>"]
TARGET = ["the", "old", "man", "</s>"]
PANEL = WordAlignment(WEIGHTS, SOURCE, TARGET)


def test_merge_sums_source_pieces_and_averages_target_pieces():
    weights = [[0.5, 0.5, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0.25, 0.5, 0.25]]
    merged = plots.merge_alignment(weights, [[0, 1], [2], [3, 4]], [[0], [1, 2]])
    np.testing.assert_allclose(merged, [[1, 0, 0], [0, 0.625, 0.375]])
    for sources, targets, sentence in (
        ([[0], [5]], [[0]], r"source_groups to have indices from 0 to 4\. Received: \[5\]"),
        ([[0]], [[0], []], r"target_groups to have indices from 0 to 3\. Received: \[\]"),
        ([[-1]], [[0]], r"Received: \[-1\]"),
    ):
        with pytest.raises(ValueError, match=sentence):
            plots.merge_alignment(WEIGHTS, sources, targets)
    with pytest.raises(ValueError, match="an alignment of finite numbers"):
        plots.merge_alignment([[np.nan]], [[0]], [[0]])


def translation(tokenizers, source: str, target: str, alignment=None) -> Translation:
    ids = [[*tokenizer.encode(text), END_ID] for tokenizer, text in zip(tokenizers, (source, target), strict=True)]
    if alignment is None:
        alignment = np.full((len(ids[1]), len(ids[0])), 1 / len(ids[0]))
    return Translation(
        text=target,
        tokens=tuple(tokenizers[1].tokens(ids[1])),
        token_ids=tuple(ids[1]),
        alignment=np.asarray(alignment),
        source_tokens=tuple(tokenizers[0].tokens(ids[0])),
        source_token_ids=tuple(ids[0]),
    )


def test_pieces_become_words_and_unknown_words_keep_their_letters():
    source = Tokenizer.train(["ein Hund"], level="word")
    target = Tokenizer.train(["a dog"], level="character")
    # Letters of "a dog": the blank belongs to the word after it.
    rows = [[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5], [0, 1, 0], [0, 1, 0], [0, 0, 1]]
    one = translation((source, target), "ein Dackel", "a dog", rows)
    assert UNKNOWN_ID in one.source_token_ids
    panel = plots.align_words(one, source, target, "ein Dackel")
    assert panel.source_tokens == ["ein", "Dackel", "</s>"]
    assert panel.target_tokens == ["a", "dog", "</s>"]
    np.testing.assert_allclose(panel.alignment, [[1, 0, 0], [0, 3.5 / 4, 0.5 / 4], [0, 0, 1]])
    assert plots.to_pharaoh(panel) == "0-0 1-1"
    assert plots.align_words(one, source, target).source_tokens == ["ein", "<unk>", "</s>"]


def test_a_blank_translation_has_no_words_and_one_without_alignment_is_refused():
    tokenizers = [Tokenizer.train(["a"], level="word")] * 2
    panel = plots.align_words(Translation(""), *tokenizers)
    assert plots.to_pharaoh(panel) == ""
    assert list(panel.source_tokens) == []
    with pytest.raises(ValueError, match="return_alignments=False"):
        plots.align_words(Translation("a", token_ids=(4, END_ID)), *tokenizers)


@pytest.fixture(scope="module")
def levels():
    text = ["der Hund läuft im Park", "die Hunde laufen in den Park"]
    options = {"bpe": {"vocabulary_size": 300}, "word": {}, "character": {}}
    return {level: Tokenizer.train(text, level=level, **more) for level, more in options.items()}


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["bpe", "word", "character"]), st.text("Hundx ß", min_size=1, max_size=23))
def test_the_words_are_those_of_the_line(levels, level, text):
    """A reader of Pharaoh lines splits the text at blanks: the indices have to mean the same words."""
    panel = plots.align_words(translation([levels[level]] * 2, text, text), *[levels[level]] * 2, text)
    words = text.split() or ([""] if panel.source_tokens[1:] else [])
    assert panel.source_tokens == [*words, "</s>"]
    assert len(panel.target_tokens) == len(words) + 1


def test_links():
    # "old" attends to the end most: no link. "man" attends to two alike: the first. The end has none.
    assert plots.to_pharaoh(PANEL) == "0-0 1-2"
    assert plots.to_pharaoh(PANEL, threshold=0.25) == "0-0 1-0 1-2 3-2"
    assert plots.to_pharaoh(PANEL, threshold=1) == ""
    assert plots.to_pharaoh(PANEL, threshold=0).split() == [f"{i}-{j}" for j in range(3) for i in range(4)]
    without_ends = WordAlignment([[0.2, 0.8], [0.9, 0.1]], ("a", "b"), ("c", "d"))
    assert plots.to_pharaoh(without_ends) == "1-0 0-1"


def found(page: str, attribute: str) -> list[str]:
    return [html.unescape(value) for value in re.findall(rf' {attribute}="([^"]*)"', page)]


def words_of(page: str) -> list[str]:
    return [html.unescape(word) for word in re.findall(r'<span class="word[^>]*>([^<]*)</span>', page)]


def test_page_holds_text_as_text_and_weights_as_percent():
    title = "<title> & <!--articles--> </title>"
    page = plots.html_page([(7, PANEL)], title=title, source_language="de", target_language="en")
    assert words_of(page) == SOURCE + TARGET
    assert found(page, "data-weights") == ["70 25 5 0 0;10 10 10 10 60;2 40 18 40 0;0 0 0 7 93"]
    assert found(page, "lang") == ["en", "de", "en"]
    assert page.count("&lt;title&gt; &amp; &lt;!--articles--&gt; &lt;/title&gt;") == 2
    assert page.count("<script") == 1
    assert not re.search(r"https?:|//[a-z]|url\(|@import|\b(src|href)=", page)  # it needs no other file
    assert "No sentences." in plots.html_page([], title="x")
    with pytest.raises(ValueError, match=r"4 target and 4 source words. Received: shape \(4, 5\)"):
        plots.html_page([(1, WordAlignment(WEIGHTS, SOURCE[1:], TARGET))], title="x")


def test_systems_stand_side_by_side_with_their_own_weights():
    other = WordAlignment(WEIGHTS[:2], SOURCE, TARGET[:2])
    lines = [("reference", "a <b> & c")]
    comparison = plots.SentenceComparison("test 7", lines, [("first <1>", PANEL), ("second", other)])
    page = plots.comparison_page([comparison, comparison], title="x", source_language="de", target_language="en")
    assert words_of(page) == 2 * (SOURCE + TARGET + SOURCE + TARGET[:2])
    weights = "70 25 5 0 0;10 10 10 10 60"
    assert found(page, "data-weights") == 2 * [f"{weights};2 40 18 40 0;0 0 0 7 93", weights]
    labels = ["source test 7, first <1>", "target test 7, first <1>", "source test 7, second"]
    assert found(page, "aria-label")[:3] == labels
    assert page.count("<b>reference</b>a &lt;b&gt; &amp; c</p>") == 2
    assert page.count("<h2>") == 2


HEBREW = WordAlignment(np.eye(3), ["שלום", "עולם", "</s>"], ["hello", "world", "</s>"])


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    if reason := browser.missing():
        pytest.skip(f"no browser: {reason}")
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(plots.html_page([(1, PANEL), (2, HEBREW)], title="Two"), encoding="utf-8")
    with browser.Browser() as opened:
        opened.set_media(prefers_reduced_motion="reduce")  # colours change at once
        opened.post("/url", url=path.as_uri())
        yield opened


@pytest.fixture
def page(window):
    window.post("/refresh")
    window.point("h1")
    return window


def word(side: str, index: int, article: int = 1) -> str:
    return f"article:nth-of-type({article}) .{side} .word:nth-child({index + 1})"


def lights(page, article: int = 1) -> dict[str, list[float]]:
    """How strongly each word is lit, from 0 to 1, as the browser computed it."""
    script = """
    return [...document.querySelectorAll(arguments[0] + ' .word')].map(w => getComputedStyle(w).backgroundColor)"""
    strengths = {}
    for side in ("source", "target"):
        colours = page.run(script, f"article:nth-of-type({article}) .{side}")
        alphas = [re.fullmatch(r"rgba\(0, 0, 0, (0)\)|color\(srgb [\d. ]+?(?: / ([\d.]+))?\)", c) for c in colours]
        assert None not in alphas, colours
        strengths[side] = [0.0 if a[1] else float(a[2] or 1) for a in alphas]
    return strengths


def said(page) -> str:
    text = page.run("return [...document.querySelectorAll('.said')].map(p => p.textContent).join('')")
    return re.sub("[\u2068\u2069]", "", text).replace("\u00a0", " ")


def focused(page) -> str:
    return page.run("return document.activeElement.textContent")


def test_pointing_at_a_word_lights_its_partners_in_proportion(page):
    nothing = {"source": [0] * 5, "target": [0] * 4}
    assert lights(page) == nothing
    for row, name in enumerate(TARGET):
        page.point(word("target", row))
        lit = lights(page)
        np.testing.assert_allclose(lit["source"], WEIGHTS[row], atol=0.006)
        assert lit["target"] == [0] * 4
        assert said(page).startswith(f"{name} ← ")
    assert said(page) == "</s> ← </s> 93 %, Mann 7 %"
    page.point("h1")
    assert lights(page) == nothing
    assert said(page) == ""
    for column in range(5):
        page.point(word("source", column))
        lit = lights(page)
        np.testing.assert_allclose(lit["target"], WEIGHTS[:, column], atol=0.006)
        assert lit["source"] == [0] * 5
    page.point(word("source", 1))
    assert said(page) == "<b>& → man 40 %, the 25 %, old 10 %"
    assert lights(page, article=2) == {"source": [0] * 3, "target": [0] * 3}


def test_keys_do_all_that_the_mouse_does(page):
    page.press("Tab")
    assert focused(page) == "der"
    np.testing.assert_allclose(lights(page)["target"], WEIGHTS[:, 0], atol=0.006)
    page.point(word("target", 2))  # the mouse has precedence
    assert said(page).startswith("man ← ")
    page.point("h1")
    assert said(page).startswith("der → ")
    page.press("Right", "Right", "Right")
    assert focused(page) == "Mann"
    page.press("Down")  # to the target word that weighs most
    assert focused(page) == "man"
    np.testing.assert_allclose(lights(page)["source"], WEIGHTS[2], atol=0.006)
    page.press("Up")
    assert focused(page) == "<b>&"
    page.press("End", "Right")
    assert focused(page) == "</s>"
    page.press("Home", "Left")
    assert focused(page) == "der"
    page.press("Tab")  # each row is one stop, and remembers its word
    assert focused(page) == "man"
    page.press("Escape")
    assert lights(page) == {"source": [0] * 5, "target": [0] * 4}
    page.press("Tab")
    assert focused(page) == "שלום"
    page.press("Left")  # goes on in a row from right to left
    assert focused(page) == "עולם"
    page.press("Right")
    assert focused(page) == "שלום"


def test_nothing_is_loaded_and_no_other_script_runs(page):
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    page.run("const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)")
    assert page.run("return window.ran ?? null") is None


def test_the_page_follows_the_theme(page):
    for scheme in ("light", "dark"):
        page.set_media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
        paper = page.run("return getComputedStyle(document.body).backgroundColor")
        assert (max(map(int, re.findall(r"\d+", paper))) < 60) == (scheme == "dark")
