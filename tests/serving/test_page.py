"""The page of a server in a headless Chromium: typing, pointing, and input that is no sentence."""

import re
import time

import keras
import pytest

from tests import browser

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the server runs on TensorFlow"),
    pytest.mark.skipif(browser.missing() is not None, reason=f"no browser: {browser.missing()}"),
]


@pytest.fixture(scope="module")
def window(live):
    with browser.Browser() as opened:
        opened.set_media(prefers_reduced_motion="reduce")  # colours change at once
        yield opened


@pytest.fixture
def page(window, live):
    window.post("/url", url=live.rest + "/")
    return window


def text_of(page, selector: str) -> str:
    return page.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)


def translate(page, text: str) -> str:
    """Types a text and sends it, as a hand would; what the page then says."""
    page.run("document.getElementById('text').value = arguments[0]", text)
    page.post(f"/element/{page.find('button')[browser.ELEMENT]}/click")
    return wait(page)


def wait(page) -> str:
    end = time.monotonic() + 20
    while page.run("return document.querySelector('button').disabled"):
        assert time.monotonic() < end
        time.sleep(0.02)
    return text_of(page, "#message")


def words(page, side: str) -> list[str]:
    return page.run("return [...document.querySelectorAll(arguments[0])].map(w => w.textContent)", f".{side} .word")


def said(page) -> str:
    return re.sub("[\u2068\u2069]", "", text_of(page, ".said")).replace("\u00a0", " ")


def test_a_sentence_is_translated_and_its_words_light_up(page):
    assert re.fullmatch(r"[\d,]+ ms", translate(page, "ein Hund läuft"))
    assert text_of(page, "#result .plain") == "läuft Hund ein"
    assert words(page, "source") == ["ein", "Hund", "läuft", "</s>"]
    assert words(page, "target") == ["läuft", "Hund", "ein", "</s>"]
    assert text_of(page, "#note") == ""
    assert text_of(page, "#help").count("Point at a word") == 1
    page.point(".target .word:nth-child(1)")
    assert said(page) == "läuft ← läuft 75 %, </s> 25 %"  # tests/unit/plots/test_word_alignment.py has the rest
    translate(page, "zwei Hunde")  # while a word is lit
    assert words(page, "target") == ["Hunde", "zwei", "</s>"]
    assert said(page) == ""


def test_pieces_are_merged_into_words(page):
    translate(page, "▁ein ▁Hu nd ▁")
    assert words(page, "source") == ["ein", "Hund", "</s>"]
    assert words(page, "target") == ["nd", "Hu", "ein", "</s>"]
    # "nd" is the mean of its pieces "▁" and "nd", of which each gives 3/4 to a piece of "Hund" and 1/4 to the end.
    page.point(".target .word:nth-child(1)")
    assert said(page) == "nd ← Hund 75 %, </s> 25 %"


def test_the_enter_key_sends(page):
    page.post(f"/element/{page.find('#text')[browser.ELEMENT]}/value", text="drei\ue007")
    wait(page)
    assert text_of(page, "#result .plain") == "drei"
    assert translate(page, " \n\t ") == "Type a sentence first."


def test_too_long_a_text_is_a_sentence_and_the_result_stays(page):
    translate(page, "ein Hund")
    said = translate(page, "x" * 2001)
    assert said == "This is too long: 2,001 characters, where 2,000 are taken. Cut it."
    assert text_of(page, "#result .plain") == "Hund ein"
    assert re.fullmatch(r"[\d,]+ ms", translate(page, "😀" * 2000)), "characters count, not bytes"


def test_text_is_text(page):
    strange = "<img src=x onerror=document.title='gone'> &amp; <b>x</b> </script>"
    translate(page, strange)
    assert text_of(page, "#result .plain") == " ".join(reversed(strange.split()))
    assert words(page, "source")[:-1] == strange.split()
    assert page.run("return document.querySelectorAll('#result img, #result b').length") == 0
    assert text_of(page, "title") == "mirror"
    page.run("const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)")
    assert page.run("return window.ran ?? null") is None, "no script but its own"


def test_a_server_that_refuses_or_has_gone_is_a_sentence(page):
    page.run('window.fetch = async () => new Response(\'{"error": "It is <b>full</b>."}\', {status: 429})')
    assert translate(page, "ein Hund") == "It is <b>full</b>."
    page.run("window.fetch = async () => { throw new TypeError('failed') }")
    assert translate(page, "ein Hund") == "The server does not answer. Is it still running?"
    page.run("window.fetch = async () => new Response('<html>', {status: 502})")
    assert translate(page, "ein Hund") == "The server gave an answer that cannot be read (status 502)."
    assert text_of(page, "#result") == ""


def test_without_the_signature_the_page_says_why_there_is_no_alignment(page):
    script = """
const model = window.fetch;
window.fetch = async (path, more) => {
  const answer = await model(path, more);
  if (more) return answer;
  const text = await answer.text();
  return new Response(text.replace('"translate_n_best"', '"other"'), {status: answer.status});
};
"""
    # Before the page's own script: what it learns of the signatures is what this hands on.
    page.post("/goog/cdp/execute", cmd="Page.addScriptToEvaluateOnNewDocument", params={"source": script})
    page.post("/refresh")
    translate(page, "ein Hund")
    assert text_of(page, "#result .plain") == "EIN HUND"
    assert words(page, "target") == []
    assert text_of(page, "#note").startswith("No alignment is shown: this model has no signature translate_n_best.")
