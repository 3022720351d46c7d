"""Tags in a translation: solved by hand, and properties of random HTML with random alignments."""

import html
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from keras_attn.markup import TargetWord, read_html, with_tags, words_of
from keras_attn.markup.html_tokens import escape, tokens
from tests.markup.html_texts import ANY, SOUP, TEXTS, Reader, numbered

pytestmark = pytest.mark.once


def unit_of(text):
    (unit,) = read_html(text).units
    return unit


def placed(source: str, target: str, links: str, starts=(0,)) -> str:
    """The target with the tags of the source; links "i-j" are of words of the source and the target."""
    source_of = dict(reversed(list(map(int, link.split("-")))) for link in links.split())
    words, last = [], 0
    for n, (start, end) in enumerate(words_of(target)):
        sentence = n if n in starts else -1
        words.append(TargetWord(target[start:end], source_of.get(n, -1), target[last:start], sentence))
        last = end
    return with_tags(unit_of(source), words, escape)


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("the <b>black</b> dog", "le chien noir", "0-0 1-2 2-1", "le chien <b>noir</b>"),
        ("the <b>black <i>dog</i></b>", "le chien noir", "0-0 1-2 2-1", "le <b><i>chien</i> noir</b>"),
        ("<b>the</b> <i>dog</i>", "chien le", "0-1 1-0", "<i>chien</i> <b>le</b>"),
        # An element covers everything between the words that are aligned to it.
        ("<b>does not</b> run", "ne court pas", "1-0 2-1 1-2", "<b>ne court pas</b>"),
        # Two elements side by side stay so: the one whose words another interrupts loses some.
        ("<b>does not</b> <i>run</i>", "ne court pas", "1-0 2-1 1-2", "<b>ne</b> <i>court</i> pas"),
        ("<b>does not</b> <i>run</i> .", "il ne court pas .", "0-0 1-1 2-2 1-3 3-4", "<b>il ne</b> <i>court</i> pas ."),
        # An element whose words have no translation is empty, after the word before it.
        ("a <b>big</b> dog", "un chien", "0-0 2-1", "un<b></b> chien"),
        # Points: after the word before them, at the start and at the end, and before a word that they are attached to.
        ("the dog <img> runs", "court le chien", "0-1 1-2 2-0", "court le chien <img>"),
        ("<img> the dog", "chien le", "0-1 1-0", "<img> chien le"),
        ("the dog <img>", "chien le", "0-1 1-0", "chien le <img>"),
        ("black <img>dog runs", "chien noir court", "0-1 1-0 2-2", "<img>chien noir court"),
        ("the dog<img> runs", "court le chien .", "0-1 1-2 2-0", "court le chien<img> ."),
        ("<b>the <img>big dog</b>", "dog big the", "0-2 1-1 2-0", "<b>dog <img>big the</b>"),
        # A point that has blanks around it does not tear a word, or its signs from it.
        ("the <img> dog", "l'os-dur, .", "0-0 1-1", "l'os-dur <img>, ."),
        # A tag inside a word: of a copied word it stays there, of another it is around the word.
        ("H<sub>2</sub>O is", "est H2O", "0-1 1-0", "est H<sub>2</sub>O"),
        ("un<b>real</b> dog", "chien irréel", "0-1 1-0", "chien <b>irréel</b>"),
        ("<b>re</b>turned", "rendu", "0-0", "<b></b>rendu"),
        # Text is escaped; what is copied is written as it was.
        ("caf&eacute; <b>&lt;</b> x", "< café & x", "0-1 1-0 2-3", "<b>&lt;</b> caf&eacute; &amp; x"),
        ("&lt;b&gt; x", "<b> x", "0-0 1-1 2-2 3-3", "&lt;b&gt; x"),
        # Blanks: those of the source between words that still follow each other, and at the ends.
        (" two \n dogs&nbsp;run ", "deux chiens courent", "0-0 1-1 2-2", " deux \n chiens&nbsp;courent "),
        (" two\n <b> dogs</b>", "chiens deux", "0-1 1-0", " <b>chiens</b> deux"),
        # Tags that do not nest are points.
        ("the <b>dog <i>runs</b> now</i>", "le chien court", "0-0 1-1 2-2", "le <b>chien <i>court</b></i>"),
        ("</b>dog<b>", "chien", "0-0", "</b>chien<b>"),
        ("<b>dog</b>", "", "", "<b></b>"),
        (" dog<img> ", "", "", " <img> "),
    ],
)
def test_solved_by_hand(source, target, links, expected):
    assert placed(source, target, links) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<ul><li translate="no">ACME Dog<li>Two dogs</ul>', ["Two dogs"]),
        ("<p translate=no>ACME <b>one</b><p>Two dogs</p>", ["Two dogs"]),
        ("<div><p translate=no>ACME</div>Two dogs", ["Two dogs"]),
        ("<ul><li translate=no>ACME<ul><li>one</ul><li>Two</ul> dogs", ["Two", "dogs"]),
        ("<table><tr><td translate=no>ACME<td>Two<tr><td>dogs</table>", ["Two", "dogs"]),
        ("Two <img translate=no> dogs", ["Two dogs"]),
        ("<p translate=no>ACME", []),
    ],
)
def test_what_is_left_alone_ends_where_the_standard_ends_it(text, expected):
    document = read_html(text)
    assert [unit.text.strip() for unit in document.units] == expected


def test_a_tag_around_several_sentences_is_around_their_translations():
    source = "<b>Two dogs.  The <i>cat</i></b> runs."
    target = "Chiens deux. Court le chat."
    links = "0-1 1-0 2-2 3-4 4-5 5-3 6-6"
    expected = "<b>Chiens deux.  Court le <i>chat</i></b>."
    assert placed(source, target, links, starts=(0, 3)) == expected
    assert placed("你好。你是", "Hello. You", "0-0 2-1 3-2", starts=(0, 2)) == "Hello.You", "word 2 is the sign"
    assert placed("你好。你是", "Hello. You", "0-0 2-1 3-2", starts=(0, 3)) == "Hello. You"


@given(source=TEXTS, data=st.data())
@settings(max_examples=300, deadline=None)
def test_every_tag_occurs_once_and_the_output_is_well_formed_whatever_the_alignment(source, data):
    source = numbered(source)
    for unit in read_html(source).units:
        words = data.draw(st.lists(st.sampled_from(["<b>", "deux", "l'or", "&amp;", "é", "你", "]]>"]), max_size=12))
        target = [
            TargetWord(word, data.draw(st.integers(-1, len(unit.words) - 1)), data.draw(st.sampled_from(["", " "])), -1)
            for word in words
        ]
        output, known = with_tags(unit, target, escape), Reader(source)
        found = Reader(output)
        assert Counter(found.tags) == Counter(known.tags), output
        assert found.is_nested, output
        assert found.parents == known.parents, "elements contain each other as in the source"
        kept = "".join("".join(found.texts).split())
        assert kept == "".join("".join(words).split()) or "<code>" in source
        document = output
        for ours, xml in (("<wbr>", ""), ("&nbsp;", " "), ("&eacute;", "é"), ("lang=en", ""), ("b=1&c", "b=1")):
            document = document.replace(ours, xml)
        etree.fromstring(f"<html>{document}</html>".encode())


@given(source=st.one_of(ANY, SOUP), data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_text_becomes_a_tag_and_no_tag_is_lost_in_any_soup(source, data):
    tags = Counter(source[one.start : one.end] for one in tokens(source) if one.kind != "text")
    output = []
    for part in read_html(source).parts:
        if isinstance(part, str):
            output.append(part)
            continue
        words = data.draw(st.lists(st.sampled_from(["<b", "x>", "&lt", ";", "é"]), max_size=6))
        links = [data.draw(st.integers(-1, len(part.words) - 1)) for _ in words]
        output.append(with_tags(part, [TargetWord(*pair, " ", -1) for pair in zip(words, links, strict=True)], escape))
    output = "".join(output)
    known = Counter(output[one.start : one.end] for one in tokens(output) if one.kind != "text")
    assert known == tags, output


@pytest.mark.parametrize("inner", ["word ", "<img>", "x<img/>"])
def test_a_hundred_thousand_nested_tags_take_no_quadratic_time(inner):
    source = "<b>" * 30_000 + inner * 1_000 + "</b>" * 30_000
    for part in read_html(source).units:
        target = [TargetWord("w", len(part.words) - 1 - n, " ", -1) for n in range(len(part.words))]
        output = with_tags(part, target, escape)
        assert output.count("<b>") == 30_000
        assert output.startswith("<b>" * 30_000)
        assert output.endswith("</b>" * 30_000)


def test_what_is_escaped_is_read_back():
    text = "<b> & &amp; ]]> \"x\" 'y'"
    assert html.unescape(escape(text)) == text
    assert [token.kind for token in tokens(escape(text))] == ["text"]
