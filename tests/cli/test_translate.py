"""`keras-attn translate`: a line out for every line in, in order, whatever the windows; alignments beside it."""

import dataclasses
import io
import json
import os
import select
import subprocess
import sys
import threading
import types
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn import quantize
from keras_attn.backend import int8_products
from keras_attn.cli import output_formats, translate
from keras_attn.models import RNNSearch
from keras_attn.text import END_ID, Tokenizer
from keras_attn.translation import Translation, Translator

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
LINES = ["eins", "", "zwei drei", "eins zwei drei", "   ", "vier", "drei zwei", "zwei eins vier", "vier vier"]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    keras.utils.set_random_seed(3)
    source = Tokenizer.train(LINES, level="word")
    target = Tokenizer.train(["a b c d e f g h i j k l m"], level="word")
    sizes = {"units": 5, "embedding_size": 7, "readout_size": 11, "attention_units": 3, "decoder_units": 13}
    model = RNNSearch(
        source.vocabulary_size,
        target.vocabulary_size,
        **sizes,
        initializer=keras.initializers.RandomNormal(stddev=0.8),
    )
    translator = Translator(model, source, target, max_length_ratio=1.5, max_length_constant=3)
    folder = tmp_path_factory.mktemp("presets") / "tiny"
    translator.save_to_preset(folder)
    return folder


class Backwards:
    """Says the words of a line in capitals, the last first, and the second best without the first of these."""

    source_tokenizer = Tokenizer.train(LINES, level="word")
    target_tokenizer = Tokenizer.train([line.upper() for line in LINES], level="word")

    def generate(self, texts, *, n_best=1, return_alignments=True, **options):
        return [self.translate(text.split(), n_best, return_alignments) for text in texts]

    def translate(self, words, n_best, return_alignments):
        if not words:
            return Translation("")
        length = len(words)
        alignment = np.zeros((length + 1, length + 1))
        alignment[range(length), range(length)[::-1]] = 0.7
        alignment[:, -1] += 0.3  # on the end, which for itself has no rival
        found = []
        for n in range(min(n_best, length)):
            text = " ".join(words[::-1][n:]).upper()
            ids = (*self.target_tokenizer.encode(text), END_ID)
            found.append(
                Translation(
                    text=text,
                    tokens=tuple(self.target_tokenizer.tokens(ids)),
                    token_ids=ids,
                    score=-length - n - 1 / 3,
                    token_log_probs=np.linspace(-1, 0, len(ids), dtype="float32"),
                    alignment=alignment[n:] if return_alignments else None,
                    source_tokens=(*words, "</s>"),
                    source_token_ids=(*self.source_tokenizer.encode(" ".join(words)), END_ID),
                )
            )
        return found[0] if n_best == 1 else dataclasses.replace(found[0], n_best=tuple(found))


def run(translator, content: bytes, *options):
    """Runs the command with this translator in place of the preset's; returns its status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Translator, "from_preset", classmethod(lambda cls, folder: translator))
        patch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(content))))
        try:
            beam = [] if "--samples" in options else ["--beam", "3"]
            return translate.main(["runs/backwards", *beam, *map(str, options)])
        except SystemExit as ended:  # argparse's own
            return ended.code


@pytest.fixture
def command(capfdbinary):
    """The command on some input: status, output and errors."""
    return lambda content, *options, by=None: (run(by or Backwards(), content, *options), *capfdbinary.readouterr())


def joined(lines) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def test_a_line_out_for_every_line_in_whatever_the_windows(command):
    expected = joined(" ".join(line.split()[::-1]).upper() for line in LINES)
    for window in (1, 2, 4096):
        assert command(joined(LINES), "--window", window, "--batch-size", 2) == (0, expected, b"")


@pytest.mark.not_once
def test_a_model_says_the_same_whatever_the_windows(command, preset):
    translator = Translator.from_preset(preset)
    expected = joined(t.text for t in translator.generate(LINES, beam_size=3, batch_size=4, return_alignments=False))
    assert len(set(expected.split(b"\n"))) > 4, "the model must not say the same of everything"
    for window in (1, 4096):
        status, out, _ = command(joined(LINES), "--window", window, "--batch-size", 4, by=translator)
        assert (status, out) == (0, expected)


def test_bytes_that_are_not_text_and_overlong_lines_are_said(command):
    status, out, err = command(b"eins\n\n   \nvier \xff\nzwei\r\n\xe2\x80\xa8\nzwei drei", "--max-characters", 8)
    lines = out.split(b"\n")
    assert status == 0
    assert len(lines) == 8
    assert lines[7] == b""
    assert lines[1] == lines[2] == lines[5] == b""
    assert lines[0]
    assert err.decode().splitlines() == [
        "1 of 7 lines contained bytes that are not UTF-8, read as U+FFFD.",
        "1 of 7 lines were cut: see --max-characters.",
    ]


@pytest.mark.filterwarnings("default:Expected sources of")
def test_a_line_longer_than_training_is_said_in_one_line(preset, tmp_path, capsys):
    translator = Translator.from_preset(preset)
    translator.trained_length = 2
    translator.save_to_preset(tmp_path / "short")
    (tmp_path / "lines").write_text("eins zwei drei vier\n")
    for more in ([], ["--max-length", "9"]):
        assert translate.main([str(tmp_path / "short"), "--input", str(tmp_path / "lines"), *more]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keras-attn translate: Expected sources of at most 4 tokens for a model trained with up to")


def test_lines_of_windows_are_the_same(command):
    status, out, _ = command(b"eins\r\nzwei\r\n\r\n", "--format", "jsonl")
    assert status == 0
    assert [json.loads(line)["source"] for line in out.splitlines()] == ["eins", "zwei", ""]


@pytest.mark.parametrize("extra", ["", "x"])
def test_a_line_is_cut_by_characters_whatever_their_bytes(command, extra):
    """`--max-characters` characters of four bytes each: the last is whole, and one more is seen to be too many."""
    status, out, err = command(("😀" * 6 + extra).encode(), "--max-characters", 6, "--format", "jsonl")
    assert status == 0
    assert json.loads(out)["source"] == "😀" * 6
    assert err == (b"1 of 1 lines were cut: see --max-characters.\n" if extra else b"")


def test_no_lines_in_no_lines_out(command, tmp_path):
    page = tmp_path / "page.html"
    assert command(b"", "--html", page) == (0, b"", b"")
    assert "No sentences." in page.read_text()


def test_n_best_is_a_table(command):
    assert command(joined(LINES[:3]), "--n-best", 3) == (
        0,
        b"1\t-1.3333\tEINS\n2\t0.0000\t\n3\t-2.3333\tDREI ZWEI\n3\t-3.3333\tZWEI\n",
        b"",
    )


def test_json_lines_say_what_is_asked_for(command):
    asked = "text,score,tokens,token_log_probs,alignment"
    status, out, err = command(joined(LINES[:3]), "--format", "jsonl", "--fields", asked, "--n-best", 2)
    one, blank, two = (json.loads(line) for line in out.decode().splitlines())
    assert (status, err) == (0, b"")
    assert (one["line"], one["source"], one["source_tokens"]) == (1, "eins", ["eins", "</s>"])
    assert blank["translations"] == [{"text": "", "score": 0.0, "tokens": [], "token_log_probs": [], "alignment": []}]
    assert two["translations"] == [
        {
            "text": "DREI ZWEI",
            "score": -2.33333,
            "tokens": ["DREI", "ZWEI", "</s>"],
            "token_log_probs": [-1.0, -0.5, 0.0],
            "alignment": [[0.0, 0.7, 0.3], [0.7, 0.0, 0.3], [0.0, 0.0, 0.3]],
        },
        {
            "text": "ZWEI",
            "score": -3.33333,
            "tokens": ["ZWEI", "</s>"],
            "token_log_probs": [-1.0, 0.0],
            "alignment": [[0.7, 0.0, 0.3], [0.0, 0.0, 0.3]],
        },
    ]
    (line,) = command(b"eins\n", "--format", "jsonl")[1].splitlines()
    assert json.loads(line) == {"line": 1, "source": "eins", "translations": [{"text": "EINS", "score": -1.33333}]}


def test_json_lines_are_lines_and_json():
    awkward = Translation('a\n\x85\u2028\u2029\x0b"\\\t\x00', score=-np.inf, token_log_probs=np.array([np.nan, -0.5]))
    chosen = {
        name: types.SimpleNamespace(format=name, fields=fields)
        for name, fields in (("jsonl", "text,score,token_log_probs"), ("text", None), ("tsv", None))
    }
    forms = {name: output_formats.of_translations(arguments, 1)[0] for name, arguments in chosen.items()}
    line = forms["jsonl"](1, "x", awkward)
    assert len(line.splitlines()) == 1
    (found,) = json.loads(line, parse_constant=pytest.fail)["translations"]
    assert found == {"text": awkward.text, "score": None, "token_log_probs": [None, -0.5]}
    for name, columns in (("text", 1), ("tsv", 3)):
        line = forms[name](1, "x", awkward)
        assert line.count("\n") == 1
        assert len(line.split("\t")) == columns


def test_alignments_stand_beside_the_lines(command, tmp_path):
    files = {name: tmp_path / name for name in ("out.txt", "links", "page.html", "pictures")}
    options = ["--output", files["out.txt"], "--pharaoh", files["links"], "--html", files["page.html"]]
    options += ["--png", files["pictures"], "--max-plots", 2, "--window", 2]
    drawn = b"The first 2 of 7 sentences are plotted; --max-plots N plots more.\n"
    assert command(joined(LINES), *options) == (0, b"", drawn)
    assert sorted(os.listdir(tmp_path)) == sorted(files)

    assert files["out.txt"].read_text() == joined(" ".join(line.split()[::-1]).upper() for line in LINES).decode()
    links = ["0-0", "", "1-0 0-1", "2-0 1-1 0-2", "", "0-0", "1-0 0-1", "2-0 1-1 0-2", "1-0 0-1"]
    assert files["links"].read_text() == joined(links).decode()
    page = files["page.html"].read_text()
    assert page.count("<article") == 2
    assert "<h2>1</h2>" in page
    assert "<h2>3</h2>" in page, "the number of the line, of which the second is blank"
    assert "Alignments of backwards" in page
    assert sorted(os.listdir(files["pictures"])) == ["000001.png", "000003.png"]
    assert (files["pictures"] / "000003.png").read_bytes().startswith(b"\x89PNG")


def test_a_threshold_says_which_links_count(command, tmp_path):
    for threshold, links in ((0.7, "1-0 0-1"), (0.71, ""), (0, "0-0 1-0 0-1 1-1")):
        path = tmp_path / str(threshold)
        assert command(b"eins zwei\n", "--pharaoh", path, "--threshold", threshold)[0] == 0
        assert path.read_text() == links + "\n"


def test_a_failure_leaves_the_lines_that_were_finished(command, tmp_path):
    class Mortal(Backwards):
        calls = 0

        def generate(self, texts, **options):
            self.calls += 1  # the first of them tries the options
            if self.calls == 4:
                raise RuntimeError("the device has gone")
            return super().generate(texts, **options)

    files = ["--output", tmp_path / "out.txt", "--html", tmp_path / "page"]
    status, _, err = command(joined(LINES), *files, "--window", 3, by=Mortal())
    assert status == 1
    assert b"the device has gone" in err
    assert b"out.txt.part" in err
    assert os.listdir(tmp_path) == ["out.txt.part"]
    assert (tmp_path / "out.txt.part").read_bytes().count(b"\n") == 6, "two windows"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam", "0"], "--beam: expected a whole number from 1 to 1,000. Received: '0'"),
        (["--n-best", "7"], "n_best to be at most beam_size=3"),
        (["--n-best", "2", "--format", "text"], "--format tsv or jsonl"),
        (["--fields", "text"], "--format jsonl with --fields"),
        (["--format", "jsonl", "--fields", "text,tone"], "Received: tone"),
        (["--length-penalty", "nan"], "--length-penalty: expected a number from 0 to 10. Received: 'nan'"),
        (["--input", "{tmp}/none"], "No such file"),
        (["--output", "{tmp}/taken"], "to be a new file"),
        (["--output", "{tmp}/none/out"], "No such file or directory"),
        (["--html", "{tmp}/new", "--pharaoh", "{tmp}/new"], "There is already"),
        (["--png", "{tmp}"], "new or empty"),
        (["--samples", "2", "--early-stopping", "--beam", "3"], "Expected no --samples with --beam, --early-stopping"),
        (["--samples", "2", "--shortlist", "a"], "Expected no --samples with --shortlist"),
        (["--temperature", "0.5", "--seed", "0"], "Expected --samples with --seed, --temperature"),
        (["--threshold", "0.5"], "Expected --pharaoh with --threshold"),
        (["--replace-unknown", "{tmp}/taken"], "expected lines of a word, a tab and a word. Received: ['precious']"),
        (["--replace-unknown", "{tmp}/none"], "Received: a path that does not exist"),
        (["--split-sentences", "english"], "uk. Received: 'english'"),
        (["--split-sentences"], "uk. Received: None"),
        (["--split-sentences", "en", "--n-best", "2"], "Received: n_best=2"),
        (["--split-sentences", "en", "--pharaoh", "{tmp}/new"], "alignments: True"),
    ],
)
def test_bad_options_are_refused_with_a_sentence(command, preset, tmp_path, arguments, message):
    (tmp_path / "taken").write_text("precious")
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    status, out, err = command(b"eins\n", *arguments, by=Translator.from_preset(preset))
    assert (status, out) == (2, b"")
    assert message in err.decode()
    assert len(err.splitlines()) == 1
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("taken", "precious")]


def test_every_option_of_search_reaches_the_translator(command):
    seen = {}
    spy = types.SimpleNamespace(generate=lambda texts, **options: seen.update(options))
    wanted = "--length-penalty 0.5 --normalization average --coverage-penalty 0.25 --max-length 9 --no-repeat 2"
    wanted += " --no-unknown --early-stopping --tokens-per-batch 77 --n-best 2"
    command(b"", *wanted.split(), by=spy)
    assert seen == {
        "beam_size": 3,
        "n_best": 2,
        "length_penalty": 0.5,
        "normalization": "average",
        "coverage_penalty": 0.25,
        "max_length": 9,
        "no_repeat_ngram_size": 2,
        "banned_tokens": ("<unk>",),
        "early_stopping": True,
        "tokens_per_batch": 77,
        "batch_size": 64,
        "return_alignments": False,
    }
    command(b"", "--beam", 100, by=spy)
    assert seen["batch_size"] == 10


class Lines(io.RawIOBase):
    """Blocks of a thousand lines."""

    block = b"a line of some ten words as they are in newspapers\n" * 1024

    def __init__(self, blocks):
        self.blocks = blocks

    def read1(self, size):
        self.blocks -= 1
        return self.block if self.blocks >= 0 else b""


def translated(stream, n_best, return_alignments) -> list[int]:
    """The sizes of the windows of a stream, with a translator that answers at once."""

    def echo(texts, numbers):
        return [types.SimpleNamespace(text=text) for text in texts]

    arguments = types.SimpleNamespace(window=4096, max_characters=5000)
    options = {"batch_size": 64, "n_best": n_best, "return_alignments": return_alignments}
    progress, sizes = types.SimpleNamespace(add=lambda lines, done: None), []
    for _, texts, found in translate.translated_windows(echo, stream, options, arguments, progress):
        assert [one.text for one in found] == texts
        sizes.append(len(texts))
    return sizes


def test_memory_does_not_grow_with_the_input():
    """A million lines through the command's own loop."""
    script = """
from keras_attn.training.report import peak_memory_mb
from tests.cli.test_translate import Lines, translated
few = sum(translated(Lines(1 << 5), 1, True))
before = peak_memory_mb()
print(few, sum(translated(Lines(1 << 10), 1, True)), peak_memory_mb() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    few, many, growth = map(float, done.stdout.split())
    assert (few, many) == (1 << 15, 1 << 20)
    assert growth < 4, "megabytes, of 54 MB of text"


def test_windows_of_long_lines_are_smaller():
    """What a window's alignments take is bounded, not only how many lines it has."""
    long = (b"x" * 4999 + b"\n") * 200
    plain, aligned = (translated(io.BufferedReader(io.BytesIO(long)), 5, has) for has in (False, True))
    assert sum(plain) == sum(aligned) == 200
    assert max(aligned) < max(plain) < 200
    assert max(aligned) * 5 * 4 * 2500**2 < 2 * 2**27


def test_a_typed_line_is_answered_at_once_and_a_closed_pipe_ends_with_a_sentence(monkeypatch, capfd):
    (stdin, feed), (answers, stdout) = os.pipe(), os.pipe()
    feed, answers = os.fdopen(feed, "wb", 0), os.fdopen(answers, "rb", 0)
    seen = []

    def user():
        with feed, answers:
            for line in (b"eins zwei\n", b"\n"):
                feed.write(line)
                seen.append(answers.read(99) if select.select([answers], [], [], 20)[0] else b"no answer")
            answers.close()
            feed.write(b"eins\n")
            gone.wait(20)  # with stdin still open: it is the output that ends it

    gone, typing = threading.Event(), threading.Thread(target=user)
    typing.start()
    monkeypatch.setattr(Translator, "from_preset", classmethod(lambda cls, folder: Backwards()))
    with os.fdopen(stdin) as stdin, os.fdopen(stdout, "w") as stdout:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        status = translate.main(["runs/backwards"])
        gone.set()
        typing.join()
    assert seen == [b"ZWEI EINS\n", b"\n"]
    assert status == 1
    assert capfd.readouterr().err == "keras-attn translate: the reader of the output has gone before all was written.\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_is_a_sentence_and_the_end_is_quiet(monkeypatch, capfd):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(Backwards(), b"eins zwei\n") == 1
        full.flush()  # as Python does when it ends, with a traceback of its own if that fails
    assert capfd.readouterr().err == (
        "keras-attn translate: Expected stdout to take what is written. Received: No space left on device.\n"
    )


def test_unknown_words_are_replaced_by_source_words_or_a_table(command, preset, tmp_path):
    translator = Translator.from_preset(preset)
    words = {word: f"{word}{word}" for line in LINES for word in line.split()}
    (tmp_path / "table.tsv").write_text("".join(f"{word}\t{other}\n" for word, other in words.items()))
    for flags, replaced in (([], True), ([tmp_path / "table.tsv"], words)):
        expected = joined(t.text for t in translator.generate(LINES, beam_size=3, replace_unknown=replaced))
        assert command(joined(LINES), "--replace-unknown", *flags, by=translator) == (0, expected, b"")


@pytest.mark.not_once
def test_an_ensemble_of_runs(preset, tmp_path):
    first = Translator.from_preset(preset)
    second = Translator.from_preset(preset)
    second.model.set_weights([weight[..., ::-1] for weight in first.model.get_weights()])
    second.save_to_preset(tmp_path / "second")
    source = tmp_path / "source.txt"
    source.write_bytes(joined(LINES))
    texts = set()
    for average in ("probability", "weights"):
        output = tmp_path / average
        line = [preset, "--ensemble", tmp_path / "second", "--average", average, "--input", source, "--output", output]
        assert translate.main([*map(str, line), "--beam", "3"]) == 0
        together = Translator.from_presets([preset, tmp_path / "second"], average=average)
        assert output.read_bytes() == joined(t.text for t in together.generate(LINES, beam_size=3))
        texts.add(output.read_bytes())
    assert len(texts) == 2


@pytest.mark.once
def test_products_in_int8(preset, tmp_path, monkeypatch):
    monkeypatch.setattr(int8_products, "MIN_WIDTH", 1)
    source, outputs = tmp_path / "source.txt", [tmp_path / name for name in ("float32", "int8")]
    source.write_bytes(joined(LINES))
    for output, flags in zip(outputs, ([], ["--int8"]), strict=True):
        line = [preset, "--input", source, "--output", output, "--format", "jsonl", "--fields", "text,score"]
        assert translate.main([*map(str, line), *flags]) == 0
    exact, rounded = ([json.loads(line) for line in output.read_text().splitlines()] for output in outputs)
    expected = quantize(Translator.from_preset(preset)).generate(LINES)
    assert [(line["translations"][0]["text"], line["translations"][0]["score"]) for line in rounded] == [
        (t.text, pytest.approx(t.score, rel=1e-5)) for t in expected
    ]
    assert rounded != exact


def test_sentences_of_a_line_are_translated_alone_and_joined(command, monkeypatch):
    pytest.importorskip("sentencex")
    text = b"Mr. Smith ran.  So did he.\n\nOne.\n"
    assert command(text, "--split-sentences", "en") == (0, b"RAN. SMITH MR. HE. DID SO\n\nONE.\n", b"")
    _, out, _ = command(
        text, "--split-sentences", "en", "--format", "jsonl", "--fields", "score,tokens,token_log_probs"
    )
    first, blank, _ = map(json.loads, out.splitlines())
    assert first["source"] == "Mr. Smith ran.  So did he."
    (found,) = first["translations"]
    assert found["score"] == round(-6 - 2 / 3, 5)
    assert len(found["tokens"]) == len(found["token_log_probs"]) == 8
    assert blank["translations"] == [{"score": 0, "tokens": [], "token_log_probs": []}]
    monkeypatch.setattr(translate, "read_report", lambda run: {"source": "en", "target": "ja"})
    assert command(text, "--split-sentences")[1].splitlines()[0] == b"RAN. SMITH MR.HE. DID SO"


def test_sentences_need_sentencex(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    status, _, error = command(b"One.\n", "--split-sentences", "en")
    assert status == 2
    assert b'"keras_attn[sentences]"' in error


def test_samples_depend_on_the_line_and_not_on_the_window(command, preset):
    translator = Translator.from_preset(preset)
    rows = [command(joined(LINES), "--samples", 3, "--seed", 5, "--window", n, by=translator)[1] for n in (2, 4096)]
    # Scores have the rounding of their batch's shape; numbers and texts have not.
    columns = [[line.split("\t")[::2] for line in out.decode().splitlines()] for out in rows]
    assert columns[0] == columns[1]
    drawn = translator.sample(LINES, num_samples=3, seed=5, row_ids=range(1, len(LINES) + 1))
    texts = [t.text for one in drawn for t in (one.n_best or (one,))]
    assert [text for _, text in columns[0]] == texts
    other = command(joined(LINES), "--samples", 3, "--seed", 6, by=translator)[1]
    assert other != rows[0]
