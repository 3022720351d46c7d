"""`generate` with markup, placeholders and several sentences: a translator that copies returns the text as it was."""

import re

import pytest
from hypothesis import given, settings

from keras_attn.markup import PLACEHOLDERS, read_text, sentences_of
from tests.decoding.copying import Copy
from tests.markup.html_texts import PAGES, TEXTS

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def copies():
    return {level: Copy(level) for level in ("bpe", "character")} | {"pieces": Copy("bpe", vocabulary_size=320)}


def text_of(translator, text, **options):
    return translator.generate([text], **options)[0].text


@given(page=PAGES)
@settings(max_examples=100, deadline=None)
@pytest.mark.parametrize("level", ["bpe", "pieces", "character"])
def test_the_copy_of_a_page_is_the_page(copies, level, page):
    options = {"markup": "html", "placeholders": PLACEHOLDERS, "return_alignments": False}
    if level == "character":  # whose vocabulary lacks some characters; they are replaced by those of the source
        options["replace_unknown"] = True
    assert text_of(copies[level], page, **options) == page


@given(text=TEXTS)
@settings(max_examples=50, deadline=None)
def test_the_copy_of_several_sentences_is_the_text(copies, text):
    pytest.importorskip("sentencex")
    text = f" {text}.  The <b>queen. Is\tit</b> so?\n\n{text}"
    assert text_of(copies["bpe"], text, markup="html", split_sentences="en") == text
    plain = text.replace("<", "")
    assert text_of(copies["bpe"], plain, split_sentences="en", placeholders=PLACEHOLDERS) == plain


def test_words_turn_round_with_their_tags():
    backwards = Copy("word", backwards=True)
    source = "<p><b>two</b> dogs <i class=x>run</i></p><p>dogs {n} run</p>"
    expected = "<p><i class=x>run</i> dogs <b>two</b></p><p>run dogs {n}</p>"
    assert text_of(backwards, source, markup="html", placeholders=PLACEHOLDERS) == expected


def test_an_unknown_word_has_its_tags_and_its_letters():
    backwards = Copy("word", backwards=True)
    options = {"markup": "html", "replace_unknown": True}
    assert text_of(backwards, "two <b>Zo&euml;</b> dogs", **options) == "dogs <b>Zo&euml;</b> two"
    options["replace_unknown"] = {"Zoë": "Zoë Z", "dogs": "les chiens"}  # other words are not unknown
    assert text_of(backwards, "two <b>Zo&euml;</b> dogs", **options) == "dogs <b>Zo&euml; Z</b> two"


def test_without_attention_words_are_linked_by_their_place():
    blind = Copy("word", backwards=True, attends=False)
    assert text_of(blind, "two <b>dogs</b> run", markup="html") == "run <b>dogs</b> two"


def test_what_is_not_text_is_left_as_it_is(copies):
    page = "<title>dogs</title><style>a<b></style><pre>x <b>&</b></pre><p translate=no>a & b</p><hr> 。<br/>&nbsp;"
    backwards = Copy("word", backwards=True)
    assert text_of(backwards, page, markup="html") == page
    assert text_of(backwards, "two <code>dogs run</code> x", markup="html") == "x two <code>dogs run</code>"
    assert text_of(backwards, "two <span translate=no>x run</span> dogs", markup="html").startswith("dogs two <span")


def test_sentences_are_translated_alone_and_the_blanks_between_them_stay():
    pytest.importorskip("sentencex")
    backwards = Copy("word", backwards=True)
    text = "two dogs.   dogs run?\n The queen  forgot Mr. x  \n\n\n dogs run "
    (found,) = backwards.generate([text], split_sentences="en", replace_unknown=True)
    assert found.text == "dogs. two   run? dogs\n x Mr. forgot queen The  \n\n\n run dogs "
    assert [one.text for one in found.sentences] == ["dogs. two", "run? dogs", "x Mr. forgot queen The", "run dogs"]
    assert found.alignment is None
    assert found.tokens == sum((one.tokens for one in found.sentences), ())
    assert found.token_log_probs.shape == (len(found.tokens),)
    assert found.score == sum(one.score for one in found.sentences)


def test_a_single_sentence_has_an_alignment_if_it_is_asked_for(copies):
    texts = ["two <b>dogs</b>", "", "<br>"]
    found = copies["bpe"].generate(texts, markup="html")
    assert found[0].alignment.shape == (len(found[0].tokens), len(found[0].source_tokens))
    assert [one.text for one in found] == texts
    assert [one.score for one in found[1:]] == [0, 0]
    (found,) = copies["bpe"].generate(texts[:1], markup="html", return_alignments=False)
    assert (found.alignment, found.sentences[0].alignment) == (None, None)
    assert found.sentences[0].text == "two dogs"


def test_the_best_texts_are_the_best_choices_of_sentences(copies):
    (found,) = copies["bpe"].generate(["<p>two</p> <p>dogs</p>"], markup="html", beam_size=3, n_best=3)
    assert [one.score for one in found.n_best] == [-1, -2, -2]  # of 3 x 3 choices
    assert found.n_best[0].text == found.text == "<p>two</p> <p>dogs</p>"
    assert found.n_best[0].n_best == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"markup": "xml"}, "markup to be \"html\" or None. Received: 'xml'"),
        ({"placeholders": "("}, "placeholders to be a regular expression"),
        ({"placeholders": 3}, "placeholders to be a string or None. Received: 3"),
        (
            {"split_sentences": "english"},
            "split_sentences to be the code of a language that sentencex has rules for: en, ",
        ),
        ({"split_sentences": "pt-br"}, "has rules for: pt, "),
        ({"split_sentences": "cs"}, "uk. Received: 'cs'"),
        ({"split_sentences": True}, "split_sentences to be a string or None. Received: True"),
        ({"markup": "html", "prefixes": ["a"]}, "no prefixes with markup"),
    ],
)
def test_bad_options_are_refused(copies, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        copies["bpe"].generate(["two"], **options)


@pytest.mark.parametrize("options", [{"markup": "html"}, {"placeholders": "x"}, {"split_sentences": "en"}])
@pytest.mark.parametrize("text", [None, 5, "<b title='\ud800'>two</b>"])
def test_a_text_that_is_none_is_refused(copies, text, options):
    with pytest.raises(ValueError, match="Expected text"):
        copies["bpe"].generate([text], **options)


@pytest.mark.parametrize("text", ["%" + "0" * 50_000, " " * 50_000 + "a", "\n " * 50_000, "{" * 50_000, "$" * 50_000])
def test_hostile_texts_take_no_quadratic_time(text):
    document = read_text(text, re.compile(PLACEHOLDERS))
    assert sum(len(unit.text) for unit in document.units) <= len(text)


def test_without_the_splitter_a_sentence_says_what_to_install(copies, monkeypatch):
    monkeypatch.setattr("keras_attn.requirements.is_installed", lambda module: False)
    with pytest.raises(ModuleNotFoundError, match=r'sentencex to be installed .*"keras_attn\[sentences\]"'):
        copies["bpe"].generate([], split_sentences="en")


def test_sentences_end_by_the_rules_of_their_language():
    pytest.importorskip("sentencex")
    text = "Er kam am 3. Oktober. Ja."
    assert [text[slice(*span)] for span in sentences_of(text, "de")] == ["Er kam am 3. Oktober.", "Ja."]
    assert len(sentences_of(text, "en")) == 3
