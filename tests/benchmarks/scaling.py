"""Time and memory of training against sentence length, vocabulary and batch, and of data against the size of a corpus.

    python -m tests.benchmarks.scaling [--out FILE.json] [--figure FILE.svg] [--backend jax] [--pairs N ...]
    python -m tests.benchmarks.scaling --draw FILE.json --figure FILE.svg

Trains an `RNNSearch` of 256 units with Adam on random ids: one length S = T, one vocabulary size V on both sides, and B
sentences a batch, of which one differs from the middle case (16, 8,000, 32) at a time. The last case has the paper's
sizes: n = 1000, m = 620, l = 500, V = 30,000, of which B = 16 fit these machines. `flops` counts the matrix products of
an update (`tests.benchmarks.accelerator_work`). Then synthetic text of each number of `--pairs` is encoded by one
process, and its token files are opened again (`tests.benchmarks.data_at_size`). Every case is a process of its own;
`megabytes` are those of its peak above the imports. A run takes some 10 minutes on two cores; the last line is JSON.
`--draw` draws the figure of an earlier run. Linux only.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from keras_attn.cli import command, environment
from keras_attn.training import surroundings
from keras_attn.training.memory import memory_mb
from tests.benchmarks.accelerator_work import SIZES, Sizes, training_flops
from tests.benchmarks.processes import run_process

LENGTHS, VOCABULARIES, BATCHES = (8, 16, 32, 64), (2_000, 8_000, 32_000), (8, 32, 128)
MIDDLE = {"length": 16, "vocabulary": 8_000, "batch": 32}
UPDATES, ROUNDS = 4, 3
PANELS = (
    ("length", "S = T, tokens"),
    ("vocabulary", "V, words on each side"),
    ("batch", "B, sentences"),
)


def cases() -> list[dict]:
    """The middle case with each of its three values changed, and the paper's sizes."""
    changes = [("length", one) for one in LENGTHS]
    changes += [(name, one) for name, values in (("vocabulary", VOCABULARIES), ("batch", BATCHES)) for one in values]
    found = []
    for name, value in changes:
        if (case := MIDDLE | {name: value, "model": "256 units"}) not in found:
            found.append(case)
    return [*found, {"length": 32, "vocabulary": 30_000, "batch": 16, "model": "paper"}]


def sizes_of(case: dict) -> Sizes:
    words = case["vocabulary"]
    small = {"units": 256, "embedding": 256, "readout": 256} if case["model"] != "paper" else {}
    changes = small | {"source_vocabulary": words, "target_vocabulary": words, "length": case["length"]}
    return dataclasses.replace(SIZES["full"]["rnnsearch50"], **changes)


def train(case: dict) -> dict:
    """Measures one case, in this process."""
    import keras
    import numpy as np

    from keras_attn.backend import disable_pipeline_autotuning, preferred_jit_compile
    from keras_attn.losses import SmoothedCrossentropy
    from keras_attn.models import RNNSearch
    from tests.benchmarks.train_throughput import Subset, gemm_gflops

    disable_pipeline_autotuning()
    gemm = gemm_gflops(1024)
    imports, sizes = memory_mb(), sizes_of(case)
    shape = case["batch"], case["length"]
    random = np.random.default_rng(0)
    words = [random.integers(4, case["vocabulary"], shape).astype("int32") for _ in range(3)]
    inputs = dict(zip(("encoder_token_ids", "decoder_token_ids"), words, strict=False))
    batches = [(inputs, words[2], np.ones(shape, "float32"))]
    keras.utils.set_random_seed(0)
    model = RNNSearch(
        case["vocabulary"],
        case["vocabulary"],
        units=sizes.units,
        embedding_size=sizes.embedding,
        readout_size=sizes.readout,
        attention_units=sizes.units,
    )
    optimizer = keras.optimizers.Adam(1e-3, global_clipnorm=1.0)
    model.compile(optimizer, SmoothedCrossentropy(0.1), jit_compile=preferred_jit_compile())

    def seconds(updates: int) -> float:
        started = time.perf_counter()
        model.fit(Subset(batches, [0] * updates), epochs=1, shuffle=False, verbose=0)
        return time.perf_counter() - started

    first = seconds(1)
    times = [seconds(UPDATES) / UPDATES for _ in range(ROUNDS)]
    flops, update = training_flops(sizes, (*shape, case["length"])), statistics.median(times)
    return case | {
        "parameters": model.count_params(),
        "seconds_per_update": round(update, 4),
        "rounds": [round(one, 4) for one in times],
        "first_update_seconds": round(first, 2),
        "target_tokens_per_second": round(case["batch"] * case["length"] / update, 1),
        "megabytes": round(memory_mb("VmHWM") - imports),
        "flops": flops,
        "gflops_per_second": round(flops / update / 1e9, 1),
        "gemm_gflops_per_second": round(gemm, 1),
    }


def read_corpus(pairs: int) -> dict:
    """Encodes synthetic text, in this process, and opens its token files again in another."""
    from keras_attn import ParallelDataset, Tokenizer
    from tests.benchmarks.data_at_size import REOPEN, write_text

    with tempfile.TemporaryDirectory() as folder:
        folder, tokenizers = Path(folder), []
        texts = [folder / f"text.{side}" for side in ("source", "target")]
        for seed, path in enumerate(texts, 1):
            write_text(path, pairs, seed)
            with path.open() as file:
                lines = [line.rstrip("\n") for _, line in zip(range(20_000), file, strict=False)]
            tokenizers.append(Tokenizer.train(lines, vocabulary_size=8000))
            tokenizers[-1].save(f"{path}.tokenizer")
        imports, started = memory_mb(), time.perf_counter()
        ParallelDataset.from_files(*texts, *tokenizers, folder / "cache", batch_size=80)
        seconds = time.perf_counter() - started
        disk = sum(path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file())
        arguments = [*map(str, texts)], [f"{path}.tokenizer" for path in texts], str(folder / "cache"), [0, 1]
        again = run_process("-W", "ignore", "-c", REOPEN, json.dumps(arguments))
        return {
            "pairs": pairs,
            "encoding_seconds": round(seconds, 2),
            "encoding_megabytes": round(memory_mb("VmHWM") - imports),
            "token_files_megabytes": round(disk / 1e6, 1),
            "opening_seconds": again["seconds"],
            "opening_megabytes": again["most_megabytes"],
        }


def draw(result: dict, path: Path) -> None:
    """Above, rates against each size and the seconds of a corpus; below, memory, and the disk of a corpus."""
    import matplotlib

    from keras_attn.plots import plot_style
    from keras_attn.plots.plot_style import BLUE, GREY, INK, ORANGE

    def line(axes, xs, ys, colour, label=None):
        axes.plot(xs, ys, "o-", color=colour, markersize=4, linewidth=1.4, label=label)

    with matplotlib.rc_context(plot_style.STYLE):
        figure = plot_style.new_figure(figsize=(11.0, 4.6), layout="constrained")
        panels = figure.subplots(2, 4)
        for (name, label), (above, below) in zip(PANELS, panels.T[:3], strict=True):
            fixed = {key: value for key, value in MIDDLE.items() if key != name}
            rows = [row for row in result["training"] if row["model"] != "paper" and fixed.items() <= row.items()]
            rows.sort(key=lambda row: row[name])
            xs = [row[name] for row in rows]
            line(above, xs, [row["target_tokens_per_second"] for row in rows], BLUE)
            line(below, xs, [row["megabytes"] for row in rows], ORANGE)
            below.set_xlabel(label, fontsize=9, color=INK)
        corpora, (above, below) = result["corpora"], panels.T[3]
        xs = [row["pairs"] for row in corpora]
        line(above, xs, [row["encoding_seconds"] for row in corpora], BLUE, "first call")
        line(above, xs, [row["opening_seconds"] for row in corpora], GREY, "opened again")
        line(below, xs, [row["token_files_megabytes"] for row in corpora], BLUE, "on disk")
        line(below, xs, [row["opening_megabytes"] for row in corpora], GREY, "memory, opened again")
        below.set_xlabel("pairs of a corpus", fontsize=9, color=INK)
        titles = ["Target tokens/s"] * 3 + ["Seconds"], ["Memory, MB"] * 3 + ["MB"]
        for row, names in zip(panels, titles, strict=True):
            for axes, title in zip(row, names, strict=True):
                plot_style.plain_axes(axes)
                axes.set_title(title, loc="left", fontsize=10, color=INK)
                axes.set_ylim(bottom=0)
        for axes in (above, below):
            axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    plot_style.save(figure, path)


def measure(options: argparse.Namespace) -> None:
    """Measures every case, or reads an earlier run; writes the files."""
    from keras_attn.plots.plot_style import check_ending
    from keras_attn.training import report

    if options.case:  # in a process of its own
        case = json.loads(options.case)
        print(json.dumps(read_corpus(case["pairs"]) if "pairs" in case else train(case)))
        return
    check_ending(options.figure)
    if options.draw:
        if options.figure is None:
            raise ValueError(f"Expected --figure to name the picture of --draw {options.draw}. Received: none")
        draw(json.loads(options.draw.read_text("utf-8")), options.figure)
        return
    load, found = [round(one, 2) for one in os.getloadavg()], {"training": [], "corpora": []}
    for name, ones in (("training", cases()), ("corpora", [{"pairs": one} for one in sorted(options.pairs)])):
        for case in ones:
            line = ["-m", "tests.benchmarks.scaling", "--backend", options.backend, "--case", json.dumps(case)]
            found[name].append(run_process(*line))
            print(json.dumps(found[name][-1]), flush=True)
    result = {"benchmark": "scaling", **found, "load": load, **surroundings()}
    if options.figure:
        draw(result, options.figure)
    if options.out:
        report.write(options.out, result)
    print(json.dumps(result))


def main(argv=None) -> int:
    parser = command.Parser("tests.benchmarks.scaling", description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("--out", type=Path, metavar="FILE.json")
    option("--figure", type=Path, metavar="FILE.svg")
    option("--draw", type=Path, metavar="FILE.json", help="draw the figure of an earlier run")
    option("--backend", default="jax", choices=("jax", "tensorflow", "torch"), help="default: %(default)s")
    option("--pairs", type=command.between(int, 1000, 10**8), nargs="+", default=[25_000, 100_000, 400_000])
    option("--case", help=argparse.SUPPRESS)
    backend = parser.parse_args(argv).backend
    return command.run(measure, parser, argv, prepare=lambda: environment.prepare(backend))


if __name__ == "__main__":
    sys.exit(main())
