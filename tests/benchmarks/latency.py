"""The 13.0 M configuration at work, beside its goals and its peers: a sentence, batches, a cold start, an export.

    python -m tests.benchmarks.latency --data DIR --preset RUN [--rows jax exported] [--out FILE.json] [--peers DIR]

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
- joeynmt: `tests.benchmarks.joeynmt_peer`, the same weights, in the environment DIR/joeynmt.
- marian: `tests.benchmarks.marian_program` in DIR/marian, with 512 units. It trains for `--marian-minutes` on the
  first call. Products are of packed int8 (packed8) where it can, else float32: the figure's `products`.

A peer whose environment cannot be installed is skipped, with the reason. Figures are medians, with the 10th and the
90th percentile as `spread`. `share_of_gemm` and `share_of_bandwidth` are explained in `tests.benchmarks.search_limits`.
What a row measured is kept in FILE, and not measured again; a skipped one is tried again. The last line is JSON, a
table for the page stands above it. By estimate this takes 25 minutes, and 40 more where the peers are installed first.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from keras_attn import files
from keras_attn.cli import command
from keras_attn.text import read_parallel
from keras_attn.training import read_report
from tests.benchmarks import joeynmt_peer
from tests.benchmarks.latency_figures import BACKENDS, BATCH, figures, page_table
from tests.benchmarks.marian_peer import write_texts
from tests.benchmarks.marian_program import PRESETS, VERSION, Marian, merged
from tests.benchmarks.processes import ROOT, run_process
from tests.benchmarks.spread import with_spread

BEAM, SINGLES, ROUNDS, STARTS = 5, 100, 3, 5
RUN = {"recipe": "tests.benchmarks.joeynmt_sizes", "corpus": "multi30k-tok", "source": "de", "target": "en"}
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


def translated(backend: str, arguments: argparse.Namespace, *options: str) -> dict:
    """Sentences and batches on a backend."""
    sizes = ["--beam", str(BEAM), "--batch-size", str(BATCH), *options]
    return run_process("-m", "tests.benchmarks.decode_throughput", *shared(arguments), *sizes, KERAS_BACKEND=backend)


def exported(arguments: argparse.Namespace, *options: str) -> dict:
    """The same of the exported model in the C loader."""
    sizes = ["--beam", str(BEAM), "--batch-size", str(BATCH), "--singles", str(SINGLES), "--rounds", str(ROUNDS)]
    line = ["-m", "tests.benchmarks.serving_latency", *shared(arguments), *sizes, *options]
    return run_process(*line, KERAS_BACKEND="tensorflow")


def shared(arguments: argparse.Namespace) -> list[str]:
    """Options of all benchmarks."""
    return ["--data", str(arguments.data.resolve()), "--preset", str(arguments.preset.resolve())]


def started(backend: str, arguments: argparse.Namespace) -> dict:
    """Cold starts of the command, each with two lines."""
    lines, _ = texts(arguments, "test")
    pairs = list(zip(lines[::2], lines[1::2], strict=False))[: 1 + STARTS]
    options = [str(arguments.preset.resolve()), "--beam", str(BEAM)]
    with tempfile.TemporaryDirectory() as home:  # whose cache is empty
        environment = {"KERAS_BACKEND": backend, "KERAS_HOME": home}
        (first, _), *others = [answer_times(START, options, pair, environment) for pair in pairs]
    firsts, following = zip(*others, strict=True)
    found = with_spread("first_seconds", firsts, 2) | with_spread("next_seconds", following, 3)
    return found | {"empty_cache_seconds": round(first, 2)}


def texts(arguments: argparse.Namespace, split: str) -> tuple[list[str], list[str]]:
    """Both sides of a split."""
    return read_parallel(arguments.data / "data" / RUN["corpus"], split, RUN["source"], RUN["target"])


def answer_times(program: str, options: Sequence[str], lines: Sequence[str], environment: dict) -> list[float]:
    """Seconds to the answer of each line, the first from the start of the Python program.

    Raises:
        RuntimeError: if it ends before.
    """
    times = []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with tempfile.TemporaryFile("w+") as errors:
        begin = time.perf_counter()
        call = [sys.executable, "-c", program, *options]
        with subprocess.Popen(
            call, **pipes, stderr=errors, text=True, cwd=ROOT, env=os.environ | environment
        ) as process:
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


def joeynmt(arguments: argparse.Namespace) -> dict:
    """JoeyNMT with the same weights."""
    work = (arguments.peers / "joeynmt").resolve()
    try:
        joeynmt_peer.install(work)
    except (subprocess.CalledProcessError, OSError) as error:
        return {"skipped": f"JoeyNMT was not installed: {error}"}
    sizes = ["--batch-size", str(BATCH), "--singles", str(SINGLES), "--repeats", str(ROUNDS)]
    return run_process("-m", "tests.benchmarks.joeynmt_peer", str(work), *shared(arguments), *sizes)


def marian(arguments: argparse.Namespace) -> dict:
    """Marian with a model of its own, of about the same size."""
    from keras_attn.evaluation import bleu

    work = (arguments.peers / "marian").resolve()
    with files.locked(work):
        try:
            program = Marian(work, arguments.marian_python, len(os.sched_getaffinity(0)))
        except (subprocess.CalledProcessError, OSError) as error:
            return {"skipped": f"{VERSION} was not installed: {error}"}
        splits = {split: texts(arguments, split) for split in ("train", "val", "test")}
        sources, references = splits["test"]
        paths = write_texts(work, splits, len(sources))
        options = merged(PRESETS["plain"], "--dim-rnn 512 --seed 1")
        program.train(options, 6000, arguments.marian_minutes, paths["train"], paths["val"])
        sizes = {"singles": SINGLES, "batch": BATCH, "rounds": ROUNDS, "beam_size": BEAM}
        try:
            products = "packed8"
            found = program.times(sources, **sizes, products=products)
        except RuntimeError:  # processors without its instructions
            products = "float32"
            found = program.times(sources, **sizes, products=products)
    score = bleu(found["translations"], references, tokenize="none").score
    result = {"products": products, "bleu": round(score, 2)}
    for name in ("single_sentence_ms", "sentences_per_second"):
        result |= with_spread(name, found[name])
    return result


ROWS = {backend: lambda arguments, backend=backend: translated(backend, arguments) for backend in BACKENDS}
ROWS |= {
    f"{backend}-{name}": lambda arguments, backend=backend, flags=flags: translated(backend, arguments, *flags)
    for backend in BACKENDS
    for name, flags in FASTER.items()
}
ROWS |= {name: lambda arguments, flags=flags: exported(arguments, *flags) for name, flags in EXPORTED.items()}
ROWS |= {f"start-{backend}": lambda arguments, backend=backend: started(backend, arguments) for backend in BACKENDS}
ROWS |= {"joeynmt": joeynmt, "marian": marian}


def measure(arguments: argparse.Namespace) -> None:
    """Measures what is not kept yet, and prints all of it."""
    report = checked(arguments)
    state = kept_rows(arguments.out, files.sha256(arguments.preset / "translator.json"))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    score = report["bleu"]["score"]
    for row in arguments.rows:
        if "skipped" in state["rows"].get(row, {"skipped": None}):
            print(f"{row} ...", file=sys.stderr, flush=True)
            load = round(os.getloadavg()[0], 1)
            state["rows"][row] = ROWS[row](arguments) | {"load_average": load}
            with files.replacing(arguments.out) as partial:
                partial.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    rows = [one for row in arguments.rows for one in figures(row, state["rows"][row], score)]
    print(page_table(rows))
    result = {"benchmark": "latency", "beam": BEAM, "bleu": score, "cores": len(os.sched_getaffinity(0))}
    print(json.dumps(result | {"rows": rows}))


def kept_rows(path: Path, preset: str) -> dict:
    """What earlier calls measured of the preset with this digest.

    Raises:
        ValueError: if the file has figures of another one, or something else.
    """
    if not path.exists():
        return {"preset": preset, "rows": {}}
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        is_this = state["preset"] == preset and isinstance(state["rows"], dict)
    except (ValueError, LookupError, TypeError):
        is_this = False
    if not is_this:
        raise ValueError(f"Expected {str(path)!r} to have figures of this preset. It has others: choose another --out.")
    return state


def checked(arguments: argparse.Namespace) -> dict:
    """The run's report.

    Raises:
        ValueError: if it is a run of something else.
        FileNotFoundError: if there is no preset or no corpus.
    """
    for path in (arguments.preset / "translator.json", arguments.data / "data" / RUN["corpus"]):
        if not path.exists():
            expected = f"Expected --preset RUN, and --data DIR with data/{RUN['corpus']}."
            raise FileNotFoundError(f"{expected} There is no {path}.")
    report = read_report(arguments.preset)
    found = {name: report.get(name) for name in RUN}
    if found != RUN or "bleu" not in report:
        raise ValueError(f"Expected a finished run of {RUN}. Received: {found} in {str(arguments.preset)!r}")
    return report


def parser() -> argparse.ArgumentParser:
    made = command.Parser("tests.benchmarks.latency", description=__doc__.splitlines()[0])
    option = made.add_argument
    data = os.environ.get("KERAS_ATTN_DATA", ".")
    option("--data", type=Path, default=Path(data), help="folder with data/multi30k-tok (default: $KERAS_ATTN_DATA)")
    option("--preset", type=Path, required=True, metavar="RUN")
    option("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), help="default: all")
    option("--out", type=Path, default=Path("runs/latency.json"), metavar="FILE.json", help="default: %(default)s")
    option("--peers", type=Path, default=Path("runs/latency-peers"), metavar="DIR", help="default: %(default)s")
    option("--marian-python", default="python3.11", help="for Marian's environment (default: %(default)s)")
    minutes = command.between(float, 0.001, 10_000)
    option("--marian-minutes", type=minutes, default=30.0, help="of its training (default: %(default)s)")
    return made


def main(argv=None) -> int:
    return command.run(measure, parser(), argv, prepare=None)


if __name__ == "__main__":
    sys.exit(main())
