"""`keras-attn translate`: a line out for every line in, in order, whatever the windows; alignments beside it."""

import dataclasses
import io
import json
import os
import select
import sys
import threading
import types

import numpy as np
import pytest

from keras_attn.cli import output_formats, translate
from keras_attn.text import END_ID, Tokenizer
from keras_attn.translation import Translation, Translator

LINES = ["eins", "", "zwei drei", "eins zwei drei", "   ", "vier", "drei zwei", "zwei eins vier", "vier vier"]


class Backwards:
    """Translates into the words of a line in capitals, the last first; the second best lacks the first of these."""

    source_tokenizer = Tokenizer.train(LINES, level="word")
    target_tokenizer = Tokenizer.train([line.upper() for line in LINES], level="word")

    def generate(self, texts, *, n_best=1, return_alignments=True, **options):
        return [self.translate(text.split(), n_best, return_alignments) for text in texts]

    def sample(self, texts, *, row_ids, num_samples, seed, **options):
        return [
            Translation("", n_best=tuple(Translation(f"{row} {seed} {n}") for n in range(num_samples)))
            for row in row_ids
        ]

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
        beam = [] if "--samples" in options else ["--beam", "3"]
        return translate.main(["runs/backwards", *beam, *map(str, options)])


@pytest.fixture
def command(capfdbinary):
    """The command on some input: status, output and errors."""
    return lambda content, *options, by=None: (run(by or Backwards(), content, *options), *capfdbinary.readouterr())


def joined(lines) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def test_bytes_that_are_not_text_and_overlong_lines_are_counted(command):
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
def test_a_line_longer_than_training_is_reported_in_one_line(preset, tmp_path, capsys):
    translator = Translator.from_preset(preset)
    translator.trained_length = 2
    translator.save_to_preset(tmp_path / "short")
    (tmp_path / "lines").write_text("eins zwei drei vier\n")
    for more in ([], ["--max-length", "9"]):
        assert translate.main([str(tmp_path / "short"), str(tmp_path / "lines"), *more]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keras-attn translate: Expected sources of at most 4 tokens for a model trained with up to")


def test_a_line_is_cut_by_characters_whatever_their_bytes(command):
    """`--max-characters` characters of four bytes each: the last is whole, and one more is seen to be too many."""
    for extra in ("", "x"):
        status, out, err = command(("😀" * 6 + extra).encode(), "--max-characters", 6, "--format", "jsonl")
        assert status == 0
        assert json.loads(out)["source"] == "😀" * 6
        assert err == (b"1 of 1 lines were cut: see --max-characters.\n" if extra else b"")
    status, out, _ = command(b"eins\r\nzwei\r\n\r\n", "--format", "jsonl")
    assert status == 0
    assert [json.loads(line)["source"] for line in out.splitlines()] == ["eins", "zwei", ""]


def test_no_lines_in_no_lines_out(command, tmp_path):
    page = tmp_path / "page.html"
    assert command(b"", "--html", page) == (0, b"", b"")
    assert "No sentences." in page.read_text()


def test_n_best_and_samples_are_tables(command):
    assert command(joined(LINES[:3]), "--n-best", 3) == (
        0,
        b"1\t-1.3333\tEINS\n2\t0.0000\t\n3\t-2.3333\tDREI ZWEI\n3\t-3.3333\tZWEI\n",
        b"",
    )
    expected = joined(f"{n}\t0.0000\t{n} 5 {sample}" for n in range(1, 4) for sample in range(2))
    for window in (2, 4096):  # a sample depends on the number of the line, and not on the window
        assert command(joined(LINES[:3]), "--samples", 2, "--seed", 5, "--window", window) == (0, expected, b"")


def test_json_lines_have_the_chosen_fields(command):
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
    awkward = Translation(
        'a\n\r\x85\u2028\u2029\x0b\x1c"\\\t\x00', score=-np.inf, token_log_probs=np.array([np.nan, -0.5])
    )
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
        line = forms[name](1, "x\r", awkward)
        assert len(line.splitlines()) == 1
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


def test_links_above_a_threshold(command, tmp_path):
    for threshold, links in ((0.7, "1-0 0-1"), (0.71, ""), (0, "0-0 1-0 0-1 1-1")):
        path = tmp_path / str(threshold)
        assert command(b"eins zwei\n", "--pharaoh", path, "--threshold", threshold)[0] == 0
        assert path.read_text() == links + "\n"


def test_every_option_of_search_reaches_the_translator(command, preset, tmp_path, monkeypatch):
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
    (tmp_path / "table").write_text("eins\tone\nzwei\ttwo\n")
    for flags, replaced in (([], True), ([tmp_path / "table"], {"eins": "one", "zwei": "two"})):
        command(b"", "--replace-unknown", *flags, by=spy)
        assert seen["replace_unknown"] == replaced

    def together(runs, average):
        seen.update(runs=runs, average=average)
        return spy

    monkeypatch.setattr(Translator, "from_presets", together)
    command(b"", "--ensemble", preset, "--average", "weights", by=spy)
    assert ([run.name for run in seen["runs"]], seen["average"]) == (["backwards", "preset"], "weights")


def test_a_typed_line_is_answered_at_once_and_a_closed_pipe_is_named(monkeypatch, capfd):
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
def test_a_full_disk_is_named_and_the_end_is_quiet(monkeypatch, capfd):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(Backwards(), b"eins zwei\n") == 1
        full.flush()  # as Python does when it ends, with a traceback of its own if that fails
    assert capfd.readouterr().err == (
        "keras-attn translate: Expected stdout to take what is written. Received: No space left on device.\n"
    )


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
    monkeypatch.setitem(sys.modules, "sentencex", None)
    status, _, error = command(b"One.\n", "--split-sentences", "en")
    assert status == 2
    assert b'"keras_attn[sentences]"' in error
