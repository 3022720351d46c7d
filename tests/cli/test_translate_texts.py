"""`keras-attn translate` with markup, placeholders, several sentences and whole documents."""

import json
import re
import types
from pathlib import Path

import pytest

from keras_attn.cli import text_windows
from keras_attn.translator import Translator
from tests.cli.test_translate import run
from tests.decoding.copying import Copy

pytestmark = pytest.mark.once

PAGE = (Path(__file__).parents[2] / "docs" / "markup.md").read_text("utf-8")


@pytest.fixture
def command(capfdbinary):
    """The command on some input, by a translator that turns words round: status, output and errors."""
    by = Copy("word", backwards=True)
    return lambda content, *options, by=by: (run(by, content.encode(), *options), *capfdbinary.readouterr())


def test_the_page_of_markup_says_what_becomes_of_a_page(command):
    pytest.importorskip("sentencex")
    source, expected = re.findall(r"^```text\n(<html.*?)^```", PAGE, flags=re.M | re.S)
    options = ("--markup", "html", "--split-sentences", "en", "--document")
    assert command(source, *options, by=Translator.from_preset("phrases_en_fr")) == (0, expected.encode(), b"")


def test_lines_are_texts_with_tags(command):
    lines = "two <b>dogs</b>\n\n<hr> {n} run x\n"
    assert command(lines, "--markup", "html", "--replace-unknown") == (0, b"<b>dogs</b> two\n\n<hr> x run {n}\n", b"")
    options = ("--markup", "html", "--placeholders")
    assert command("two <b>dogs</b> {n} run\n", *options)[1] == b"run <b>dogs</b> {n} two\n"
    assert command("dogs [two] run\n", "--placeholders", r"\[.*?\]")[1] == b"run dogs [two]\n"


def test_json_lines_have_the_texts_with_tags(command):
    status, out, _ = command("<b>two</b> dogs\n", "--markup", "html", "--format", "jsonl", "--fields", "text,tokens")
    line = json.loads(out)
    assert (status, line["source"]) == (0, "<b>two</b> dogs")
    assert line["translations"] == [{"text": "dogs <b>two</b>", "tokens": ["dogs", "two", "</s>"]}]
    table = command("<b>two</b> dogs\n", "--markup", "html", "--n-best", 2)[1].decode()
    assert table == "1\t-0.5000\tdogs <b>two</b>\n1\t-1.5000\tdogs <b>two</b>\n"


def test_a_document_is_one_text(command, tmp_path):
    page = "<p>two\n <b>dogs</b></p>\n\n<p>run\tx</p>"
    assert command(page, "--markup", "html", "--document")[1] == b"<p><b>dogs</b> two</p>\n\n<p>x run</p>"
    assert command("", "--markup", "html", "--document") == (0, b"", b"")
    (tmp_path / "in").write_text(page)
    files = ("--input", tmp_path / "in", "--output", tmp_path / "out")
    assert command("", "--markup", "html", "--document", *files) == (0, b"", b"")
    assert (tmp_path / "out").read_text().count("\n\n") == 1


def test_sentences_are_in_the_language_of_the_run_or_in_the_one_given(command, tmp_path, monkeypatch):
    pytest.importorskip("sentencex")
    text = "two dogs. The queen.\n"
    assert command(text, "--split-sentences", "en", "--replace-unknown")[1] == b"dogs. two queen. The\n"
    status, _, err = command(text, "--split-sentences")
    assert (status, b"--split-sentences LANGUAGE" in err) == (2, True)
    monkeypatch.setattr("keras_attn.cli.text_options.read_report", lambda run: {"source": "en"})
    assert command(text, "--split-sentences", "--replace-unknown")[1] == b"dogs. two queen. The\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--markup xml", "invalid choice: 'xml'"),
        ("--document", "Expected --markup or --split-sentences with --document"),
        ("--markup html --pharaoh {tmp}/a", "Expected no alignments with --markup"),
        ("--markup html --format jsonl --fields text,alignment", "Expected no alignments with --markup"),
        ("--markup html --samples 2", "Expected no --samples with --markup"),
        ("--samples 2 --early-stopping --beam 3", "Expected no --samples with --beam, --early-stopping"),
        ("--samples 2 --shortlist {tmp}/a", "Expected no --samples with --shortlist"),
        ("--temperature 0.5 --seed 0", "Expected --samples with --seed, --temperature"),
        ("--threshold 0.5", "Expected --pharaoh with --threshold"),
        ("--split-sentences EN-us", "has rules for: en, "),
        ("--placeholders (", "placeholders to be a regular expression"),
        ("--markup html --document --max-characters 5", "Expected sentences of at most 5 characters"),
    ],
)
def test_what_does_not_fit_together_is_refused_with_a_sentence(command, tmp_path, options, message):
    status, out, err = command("two dogs run", *options.format(tmp=tmp_path).split())
    assert (status, out) == (2, b"")
    assert message in err.decode()
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_document_that_is_too_long_is_refused(command, monkeypatch):
    monkeypatch.setattr(text_windows, "LONGEST_DOCUMENT", 40)
    for text in ("two dogs " * 5, "é" * 50, "two " * 500):
        status, out, err = command(text, "--markup", "html", "--document")
        assert (status, out) == (2, b"")
        assert b"a document of at most 40 characters" in err


def test_the_options_reach_the_translator(command):
    seen = {}
    spy = types.SimpleNamespace(generate=lambda texts, **options: seen.update(options))
    command("", *["--markup", "html", "--placeholders", "--split-sentences", "de"], by=spy)
    assert (seen["markup"], seen["split_sentences"]) == ("html", "de")
    assert re.findall(seen["placeholders"], "{name} {{ a b }} ${x} %s %(n)s %1$d %.2f 100% sure 5%discount { a }") == [
        *("{name}", "{{ a b }}", "${x}", "%s", "%(n)s", "%1$d", "%.2f")
    ]
