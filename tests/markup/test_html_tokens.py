"""HTML cut into tokens: the rules of the standard by hand, the standard library's parser on random HTML, no hang."""

import itertools

import pytest
from hypothesis import given, settings

from keras_attn.markup.html_tokens import characters, tokens
from tests.markup.html_texts import PAGES, SOUP, Reader

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<b>x</b>", ["open <b>", "text x", "close </b>"]),
        ("a < b <= c <3 <é>", ["text a < b <= c <3 <é>"]),
        ("<a href=x/>y</a >", ["open <a href=x/>", "text y", "close </a >"]),
        ('<x id="1"/><br><BR />', ['void <x id="1"/>', "void <br>", "void <BR />"]),
        ("<a b='>' c = \">\">y", ["open <a b='>' c = \">\">", "text y"]),
        ('<a ="x>y">', ['open <a ="x>', 'text y">']),  # no quoted value: the name of the attribute is `="x`
        ('<a b="c"d>', ['open <a b="c"d>']),
        ('x<a b="c> <i>', ['text x<a b="c> <i>']),  # a tag that does not end
        ("x</", ["text x</"]),
        ("</></ b></é>", ["other </>", "other </ b>", "other </é>"]),
        ("<!-->a<!-- < > --!>b<!-- c", ["other <!-->", "text a", "other <!-- < > --!>", "text b", "other <!-- c"]),
        ("<!DOCTYPE html><?xml?><![a>", ["other <!DOCTYPE html>", "other <?xml?>", "other <![a>"]),
        ("<title>a<b></TITLE>c", ["open <title>", "text a<b>", "close </TITLE>", "text c"]),
        ("<script/>a</scripty></script>", ["open <script/>", "text a</scripty>", "close </script>"]),
        ("<style>a<b>", ["open <style>", "text a<b>"]),
    ],
)
def test_by_the_rules_of_the_standard(text, expected):
    assert [f"{token.kind} {text[token.start : token.end]}" for token in tokens(text)] == expected


@given(PAGES)
@settings(max_examples=100, deadline=None)
def test_the_tags_are_those_of_the_standard_librarys_parser(page):
    found = [
        page[one.start : one.end] for one in tokens(page) if one.kind != "text" and "<!D" not in page[one.start :][:3]
    ]
    assert found == Reader(page).tags


@given(SOUP)
@settings(max_examples=300, deadline=None)
def test_the_tokens_are_the_text(text):
    found = list(tokens(text))
    assert "".join(text[token.start : token.end] for token in found) == text
    assert all(one.end == other.start for one, other in itertools.pairwise(found))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("caf&eacute;", [("c", "c"), ("a", "a"), ("f", "f"), ("é", "&eacute;")]),
        ("&#60;&lt;<&", [("<", "&#60;"), ("<", "&lt;"), ("<", "&lt;"), ("&", "&amp;")]),
        ("&copy&a;", [("©", "©"), ("&", "&amp;"), ("a", "a"), (";", ";")]),
        ("&acE;", [("∾", "∾"), ("\u0333", "\u0333")]),  # two characters
        ("&#0;", [("\ufffd", "&#0;")]),
        ("&#1;", [("\ufffd", "&#1;")]),  # a number that no character has
    ],
)
def test_characters_keep_their_spelling(text, expected):
    assert list(characters(text)) == expected


def test_a_number_of_any_length_is_text():
    assert "".join(meant for meant, _ in characters(f"&#{'9' * 6000};")) == f"&#{'9' * 6000};"


@pytest.mark.parametrize(
    "part",
    [
        "<a ",
        "<!--a>",
        "<![a>",
        "<?a ",
        "</a ",
        "</1",
        "<",
        "<a b='",
        "<a\t=",
        "<a b=\">'",
        "<script>",
        "&",
        "&#",
        "<b>",
    ],
)
def test_hostile_texts_take_no_quadratic_time(part):
    text = part * 50_000
    assert sum(token.end - token.start for token in tokens(text)) == len(text)
    assert sum(1 for _ in characters(text)) <= len(text)


def test_an_attribute_says_that_nothing_is_translated():
    for tag, is_fixed in (
        ("<p translate=no>", True),
        ("<p class='a' TRANSLATE = \"No\" >", True),
        ("<p translate='yes'>", False),
        ("<p title='translate=no'>", False),
        ("<p translate>", False),
    ):
        assert next(tokens(tag)).is_fixed == is_fixed, tag
