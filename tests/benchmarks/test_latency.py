"""The parts of `tests.benchmarks.latency`, with rows and peers that answer at once."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_attn import Tokenizer, Translator
from tests.benchmarks import decode_throughput, latency, search_limits
from tests.benchmarks.joeynmt_sizes import EMBEDDING, UNITS, JoeyNMTSizes
from tests.benchmarks.latency_figures import figures, page_table
from tests.benchmarks.spread import with_spread

pytestmark = pytest.mark.once

LINES = {
    "de": ["ein hund", "zwei hunde laufen", "ein alter mann"],
    "en": ["a dog", "two dogs run in a park", "an old man"],
}


@pytest.fixture
def data(tmp_path):
    """A folder with the corpus."""
    folder = tmp_path / "data" / "multi30k-tok"
    folder.mkdir(parents=True)
    for split in ("train", "val", "test"):
        for language, lines in LINES.items():
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(tmp_path):
    """A run's folder, as far as the command looks at it."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "translator.json").write_text("{}")
    (folder / "report.json").write_text(json.dumps(latency.RUN | {"bleu": {"score": 17.0}, "config": {}}))
    return folder


def test_a_median_and_its_spread():
    assert with_spread("ms", range(101)) == {"ms": 50.0, "ms_spread": [10.0, 90.0]}
    assert with_spread("mb", [7.4], digits=0) == {"mb": 7, "mb_spread": [7, 7]}


def test_figures_beside_their_goals():
    found = {"single_sentence_ms": 10.0, "single_sentence_ms_spread": [9.0, 12.5], "load_average": 0.1}
    found |= {"sentences_per_second": 299.9, "share_of_gemm": 0.5, "share_of_bandwidth": 0.4}
    found["single"] = {"share_of_gemm": 0.03, "share_of_bandwidth": 0.9}
    one, batches = figures("jax", found, 16.0)
    assert one == {
        "system": "jax",
        "figure": "one sentence",
        "value": 10.0,
        "unit": "ms",
        "spread": [9.0, 12.5],
        "goal": 10,
        "met": True,
        "share_of_gemm": 0.03,
        "share_of_bandwidth": 0.9,
        "load_average": 0.1,
    }
    assert (batches["goal"], batches["met"], batches["share_of_gemm"]) == (300, False, 0.5)
    assert [row["met"] for row in figures("jax", found, 15.9)] == [None, None]
    assert [row["goal"] for row in figures("marian", found, 16.0)] == [None, None]
    first, following = figures("start-torch", {"first_seconds": 4.1, "next_seconds": 0.5}, 16.0)
    assert (first["system"], first["met"], following["met"]) == ("torch", False, True)


def test_the_table_of_the_page():
    found = {"sentences_per_second": 1234.5, "sentences_per_second_spread": [1000.0, 1300.0], "share_of_gemm": 0.5}
    rows = figures("exported", found, 20.0) + figures("marian", {"skipped": "no network"}, 20.0)
    assert page_table(rows).splitlines()[2:] == [
        "| exported | batches of 32 | 1,234.5 sentences/s | 1,000.0 to 1,300.0 | 220 | yes | 0.5 |  |",
        "| marian | one sentence | skipped |  |  |  |  |  |",
        "| marian | batches of 32 | skipped |  |  |  |  |  |",
    ]


def test_the_parts_of_the_machines_rates(monkeypatch):
    rates = iter([(90, 11), (100, 10), (110, 9)])
    copied = []

    def measured(case, settings):
        copied.append(settings["copied"])
        return dict(zip(("matrix_gflops", "copy_gigabytes_per_second"), next(rates), strict=True))

    monkeypatch.setattr(search_limits.accelerator_cases, "rates", measured)
    v, n, m = 11, UNITS, EMBEDDING
    tokenizers = [SimpleNamespace(vocabulary_size=size) for size in (7, v)]
    translator = SimpleNamespace(model=object.__new__(JoeyNMTSizes), source_tokenizer=tokenizers[0])
    translator.target_tokenizer = tokenizers[1]
    limits = search_limits.Limits(translator, beam=5)
    for _ in range(3):
        limits.measure()
    assert limits.rates() == {"gemm_gflops": 100, "copy_gigabytes_per_second": 10}
    encoder = 2 * 3 * n * (m + n)  # weights of both directions
    step = 3 * n * (m + n + n) + n * n + 3 * n * n + n * v  # of cell, query, attentional layer and output
    assert copied == [step] * 3
    lengths, flops = [(2, 3), (5, 2), (1, 1)], 0
    for s, t in lengths:
        flops += 2 * s * (encoder + n * 2 * n) + 2 * 5 * t * (step + s * n + s * 2 * n)
    moved = 0
    for b, s, t in ((2, 2, 3), (1, 5, 2)):  # two sentences a batch, the shorter ones first
        moved += 4 * (s * encoder + t * (step + b * s * 3 * n + 2 * b * 5 * v))
    assert limits.shares(lengths, 2, 0.01) == {
        "share_of_gemm": round(flops / 0.01 / 100e9, 3),
        "share_of_bandwidth": round(moved / 0.01 / 10e9, 3),
    }
    translator.model = None
    assert search_limits.Limits(translator, beam=5).shares(lengths, 2, 0.01) == {}


def test_sentences_and_batches_of_a_run(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(search_limits, "SETTINGS", {"seconds": 0.01, "matrix": 64})
    tokenizers = [Tokenizer.train(lines, level="word") for lines in LINES.values()]
    model = JoeyNMTSizes(*(tokenizer.vocabulary_size for tokenizer in tokenizers))
    Translator(model, *tokenizers).save_to_preset(tmp_path / "preset")
    call = ["--data", str(data), "--preset", str(tmp_path / "preset"), "--beam", "2", "--repeats", "1"]
    assert decode_throughput.main([*call, "--batch-size", "32"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    low, high = found["single_sentence_ms_spread"]
    assert 0 < low <= found["single_sentence_ms"] <= high
    assert found["sentences_per_second"] > 0
    shares = [one[name] for one in (found, found["single"]) for name in ("share_of_gemm", "share_of_bandwidth")]
    assert all(share > 0 for share in shares)


ECHO = """
import sys, time
time.sleep(0.2)
for line in sys.stdin:
    if line.startswith("wrong"):
        sys.exit("no such word")
    print(line.upper(), end="", flush=True)
"""


def test_the_first_answer_includes_the_start():
    first, following = latency.answer_times(ECHO, [], ["a", "b"], {})
    assert first > 0.2 > following > 0
    with pytest.raises(RuntimeError, match=r"Expected an answer to each line\..*no such word"):
        latency.answer_times(ECHO, [], ["a", "wrong"], {})


def test_starts_have_lines_of_their_own(data, run, monkeypatch):
    asked = []

    def answered(program, options, lines, environment):
        asked.append((tuple(lines), environment["KERAS_BACKEND"]))
        return [9.0 if len(asked) == 1 else 2.0, 0.25]

    many = [f"satz {n}" for n in range(40)]
    monkeypatch.setattr(latency, "texts", lambda arguments, split: (many, many))
    monkeypatch.setattr(latency, "answer_times", answered)
    arguments = latency.parser().parse_args(["--data", str(data), "--preset", str(run)])
    found = latency.ROWS["start-torch"](arguments)
    assert found["empty_cache_seconds"] == 9.0
    assert (found["first_seconds"], found["next_seconds"]) == (2.0, 0.25)
    assert asked[0] == (("satz 0", "satz 1"), "torch")
    assert len({lines for lines, _ in asked}) == 6


def test_rows_are_kept_and_skipped_ones_tried_again(data, run, tmp_path, monkeypatch, capsys):
    measured = []

    def row(name, found):
        return lambda arguments: measured.append(name) or found

    monkeypatch.setitem(latency.ROWS, "jax", row("jax", {"single_sentence_ms": 9.0}))
    monkeypatch.setitem(latency.ROWS, "joeynmt", row("joeynmt", {"skipped": "no index"}))
    call = ["--data", str(data), "--preset", str(run), "--out", str(tmp_path / "new" / "latency.json")]
    call += ["--rows", "jax", "joeynmt"]
    for _ in range(2):
        assert latency.main(call) == 0
    assert measured == ["jax", "joeynmt", "joeynmt"]
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["benchmark"], result["bleu"]) == ("latency", 17.0)
    assert [row["figure"] for row in result["rows"]] == ["one sentence", "one sentence", "batches of 32"]
    assert result["rows"][0]["met"] is True
    assert result["rows"][1]["skipped"] == "no index"

    (run / "translator.json").write_text('{"another": "preset"}')
    assert latency.main(call) == 2
    assert "to have figures of this preset. It has others: choose another --out." in capsys.readouterr().err
    (tmp_path / "new" / "latency.json").write_text("[")
    assert latency.main(call) == 2
    assert "to have figures of this preset" in capsys.readouterr().err
    assert len(measured) == 3


def test_bad_input_is_a_sentence(data, run, tmp_path, capsys):
    call = ["--data", str(data), "--out", str(tmp_path / "latency.json"), "--rows", "jax"]
    assert latency.main([*call, "--preset", str(tmp_path / "nowhere")]) == 2
    assert "Expected --preset RUN, and --data DIR with data/multi30k-tok. There is no " in capsys.readouterr().err
    assert latency.main(["--preset", str(run), "--data", str(tmp_path / "nowhere")]) == 2
    assert "There is no " in capsys.readouterr().err
    (run / "report.json").write_text(json.dumps(latency.RUN | {"recipe": "luong", "bleu": {"score": 17.0}}))
    assert latency.main([*call, "--preset", str(run)]) == 2
    assert "Expected a finished run of {'recipe': 'tests.benchmarks.joeynmt_sizes'" in capsys.readouterr().err
    assert not (tmp_path / "latency.json").exists()


def test_a_peer_that_cannot_be_installed_is_skipped(data, run, tmp_path, monkeypatch):
    def fails(*arguments, **options):
        raise subprocess.CalledProcessError(1, "pip")

    call = ["--data", str(data), "--preset", str(run), "--peers", str(tmp_path / "peers")]
    arguments = latency.parser().parse_args([*call, "--marian-python", sys.executable])
    monkeypatch.setattr(subprocess, "run", fails)
    for peer in ("joeynmt", "marian"):
        assert (
            "was not installed: Command 'pip' returned non-zero exit status 1."
            in latency.ROWS[peer](arguments)["skipped"]
        )


PYMARIAN = """
import time

class Translator:
    def __init__(self, options):
        words = options.split()
        assert {"-b", "--normalize", "-w", "--vocabs", "--cpu-threads", "--mini-batch"} <= set(words), options
        if words[words.index("-g") + 1] == "packed8" and not PACKED:
            raise RuntimeError("no such instruction")

    def translate(self, lines):
        time.sleep(0.002)
        return [dict(zip(GERMAN, ENGLISH))[line] for line in lines]
"""


@pytest.mark.parametrize("packed", [True, False])
def test_marians_figures(data, run, tmp_path, monkeypatch, packed):
    folder = tmp_path / "peers" / "marian" / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "pymarian").touch()
    words = f"PACKED, GERMAN, ENGLISH = {packed}, {LINES['de']}, {LINES['en']}\n"
    (folder / "pymarian.py").write_text(words + PYMARIAN)
    (folder / "python").write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    trained = []
    monkeypatch.setattr(latency.Marian, "train", lambda self, *arguments: trained.append(arguments))
    call = ["--data", str(data), "--preset", str(run), "--peers", str(tmp_path / "peers"), "--marian-minutes", "7"]
    found = latency.marian(latency.parser().parse_args(call))
    ((options, size, minutes, texts, _, _),) = trained
    assert "--dim-rnn 512" in options
    assert (size, minutes) == (6000, 7)
    assert [Path(path).read_text().splitlines() for path in texts] == list(LINES.values())
    assert found["products"] == ("packed8" if packed else "float32")
    assert found["bleu"] == 100
    assert found["single_sentence_ms"] > 0
    assert found["sentences_per_second"] > 0
