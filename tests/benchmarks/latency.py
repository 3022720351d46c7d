"""The 13.0 M configuration at work, beside its goals: a sentence, batches, a cold start, an export.

    python -m tests.benchmarks.latency --data DIR --preset RUN [--rows jax exported] [--out FILE.json]

RUN is a run of `tests.benchmarks.joeynmt_sizes` (its docstring has the command that trains one); the goals are for one
of at least 16 BLEU. The search has a beam of 5, the sentences are those of Multi30k test 2016: the first 100 one at a
time, and all 1,000 in batches of 32. Rows, one after the other, on all cores of a machine that does nothing else:

- jax, tensorflow, torch: `tests.benchmarks.decode_throughput` in a process of the backend.
- jax-int8, jax-shortlist, jax-int8-shortlist and so on: the same with `keras_attn.quantize`, with a `Shortlist` of the
  training text, and with both; BLEU with and without, and the share of translations that differ.
- exported, exported-shortlist: `tests.benchmarks.serving_latency`, the SavedModel in the C loader; each with
  `-intra-op-1`, too, one thread for an operation. exported-compiled and so on: the same with `--jit-compile`.
- start-jax, start-tensorflow, start-torch: the seconds from the start of Python to the first line that `keras-attn
  translate RUN` prints, and from one line to the next. First with an empty cache of compiled programs, then five times
  with that cache; every start has two lines of its own.

Figures are medians, with the 10th and the 90th percentile as `spread`. What a row measured is kept in FILE, and not
measured again. A table stands above the last line, which is JSON. All rows take about 25 minutes. JoeyNMT and Marian
have programs of their own, `tests.benchmarks.joeynmt_peer` and `tests.benchmarks.marian_peer`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from keras_attn import files
from keras_attn.training import read_report
from tests.benchmarks.measuring import ROOT, parser_of, run_process, sentences, with_spread

BACKENDS = ("jax", "tensorflow", "torch")
BEAM, BATCH, STARTS = 5, 32, 5
LEAST_BLEU = 16  # below, no goal is met or missed, because the quality decides the lengths
FASTER = {"int8": ["--int8"], "shortlist": ["--shortlist"], "int8-shortlist": ["--int8", "--shortlist"]}
EXPORTED = {
    "exported": [],
    "exported-intra-op-1": ["--intra-op", "1"],
    "exported-shortlist": ["--shortlist"],
    "exported-shortlist-intra-op-1": ["--shortlist", "--intra-op", "1"],
    "exported-compiled": ["--jit-compile"],
    "exported-compiled-shortlist": ["--jit-compile", "--shortlist"],
    "exported-compiled-int8-shortlist": ["--jit-compile", "--int8", "--shortlist"],
}
# Whose model is no part of the package: it is registered first, after Keras is imported as the command imports it.
START = """
import sys
from keras_attn.cli import command, main
command.import_keras()
import tests.benchmarks.joeynmt_sizes
sys.exit(main.main(["translate", *sys.argv[1:]]))
"""


class Figure(NamedTuple):
    """A figure: its key in what a row measured, its unit, and the goals of the systems."""

    name: str
    key: str
    unit: str
    goals: dict[str, float]


FIGURES = (
    Figure("one sentence", "single_sentence_ms", "ms", {"jax": 10, "tensorflow": 15, "torch": 25, "exported": 12}),
    Figure(
        f"batches of {BATCH}",
        "sentences_per_second",
        "sentences/s",
        {"jax": 300, "tensorflow": 250, "torch": 170, "exported": 220},
    ),
    Figure("first translation", "first_seconds", "s", dict.fromkeys(BACKENDS, 4)),
    Figure("next line", "next_seconds", "s", dict.fromkeys(BACKENDS, 0.5)),
    Figure("first translation, nothing compiled", "empty_cache_seconds", "s", {}),
    Figure("export", "export_seconds", "s", {"exported": 10}),
    Figure("load", "load_seconds", "s", {"exported": 0.4}),
    Figure("resident memory", "resident_mb", "MB", {"exported": 500}),
    Figure("graph", "graph_bytes", "bytes", {}),
)


def translated(program: str, backend: str, options: Sequence[str], arguments: argparse.Namespace) -> dict:
    """Sentences and batches, on a backend or exported in the C loader, by the benchmark of this name."""
    return run_process("-m", f"tests.benchmarks.{program}", *shared(arguments), *options, KERAS_BACKEND=backend)


def shared(arguments: argparse.Namespace) -> list[str]:
    """Options of all benchmarks."""
    where = ["--data", str(arguments.data.resolve()), "--preset", str(arguments.preset.resolve())]
    return [*where, "--beam", str(BEAM), "--batch-size", str(BATCH)]


def started(backend: str, arguments: argparse.Namespace) -> dict:
    """Cold starts of the command, each with two lines."""
    lines, _ = sentences(arguments.data, "test")
    pairs = list(zip(lines[::2], lines[1::2], strict=False))[: 1 + STARTS]
    options = [str(arguments.preset.resolve()), "--beam", str(BEAM)]
    with tempfile.TemporaryDirectory() as home:  # whose cache is empty
        environment = {"KERAS_BACKEND": backend, "KERAS_HOME": home}
        (first, _), *others = [answer_times(options, pair, environment) for pair in pairs]
    firsts, following = zip(*others, strict=True)
    found = with_spread("first_seconds", firsts, 2) | with_spread("next_seconds", following, 3)
    return found | {"empty_cache_seconds": round(first, 2)}


def answer_times(options: Sequence[str], lines: Sequence[str], environment: dict) -> list[float]:
    """Seconds to the answer of each line, the first from the start of Python.

    Raises:
        RuntimeError: if the program ends before.
    """
    times = []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    with tempfile.TemporaryFile("w+") as errors:
        begin, call = time.perf_counter(), [sys.executable, "-c", START, *options]
        with subprocess.Popen(call, **pipes, stderr=errors, env=os.environ | environment) as process:
            for line in lines:
                print(line, file=process.stdin, flush=True)
                if not process.stdout.readline():
                    break
                times.append(time.perf_counter() - begin)
                begin = time.perf_counter()
            process.stdin.close()
        errors.seek(0)
        if process.returncode or len(times) < len(lines):
            raise RuntimeError(f"Expected an answer to each line. The process ended: {errors.read().strip()[-400:]}")
    return times


in_python, exported = partial(translated, "decode_throughput"), partial(translated, "serving_latency", "tensorflow")
ROWS: dict[str, Callable[[argparse.Namespace], dict]] = {one: partial(in_python, one, ()) for one in BACKENDS}
ROWS |= {f"{one}-{name}": partial(in_python, one, flags) for one in BACKENDS for name, flags in FASTER.items()}
ROWS |= {name: partial(exported, flags) for name, flags in EXPORTED.items()}
ROWS |= {f"start-{backend}": partial(started, backend) for backend in BACKENDS}


def figures(row: str, found: dict, bleu: float) -> list[dict]:
    """The figures of a row, with their goals.

    Args:
        row: Its name.
        found: What it measured.
        bleu: Of the run.
    """
    system, shown = row.removeprefix("start-"), []
    for name, key, unit, goals in FIGURES:
        if key in found:
            value, goal = found[key], goals.get(system.partition("-")[0])
            one = {"system": system, "figure": name, "value": value, "unit": unit, "goal": goal, "met": None}
            if goal is not None and bleu >= LEAST_BLEU:
                one["met"] = value >= goal if unit.endswith("/s") else value <= goal
            shown.append(one | {"spread": found.get(f"{key}_spread")})
    return shown


def main(argv=None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--preset", type=Path, required=True, metavar="RUN")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), help="default: all")
    parser.add_argument("--out", type=Path, default=Path("runs/latency.json"), metavar="FILE.json")
    arguments = parser.parse_args(argv)
    score, preset = read_report(arguments.preset)["bleu"]["score"], files.sha256(arguments.preset / "translator.json")
    kept = json.loads(arguments.out.read_text("utf-8")) if arguments.out.exists() else {"preset": preset, "rows": {}}
    if kept["preset"] != preset:
        parser.error(f"Expected --out with figures of this preset. Received: {arguments.out}, of another")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for row in arguments.rows:
        if row not in kept["rows"]:
            print(f"{row} ...", file=sys.stderr, flush=True)
            load = round(os.getloadavg()[0], 1)
            kept["rows"][row] = ROWS[row](arguments) | {"load_average": load}
            with files.replacing(arguments.out) as partial_file:
                partial_file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    rows = [one for row in arguments.rows for one in figures(row, kept["rows"][row], score)]
    print("| system | figure | measured | 10 % to 90 % | goal | met |\n|---|---|---|---|---|---|")
    for one in rows:
        spread = " to ".join(f"{value:,}" for value in one["spread"] or ())
        met = {None: "", True: "yes", False: "no"}[one["met"]]
        measured = f"{one['value']:,} {one['unit']}"
        print(f"| {one['system']} | {one['figure']} | {measured} | {spread} | {one['goal'] or ''} | {met} |")
    print(json.dumps({"benchmark": "latency", "beam": BEAM, "bleu": score, "cores": os.cpu_count(), "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
