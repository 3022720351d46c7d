"""Everything worth knowing about one accelerator in under 9 minutes: training, search, memory, compilation, a peer.

    python -m tests.benchmarks.accelerator [--out FILE] [--minutes 9] [--small] [--backends jax torch]

Data are synthetic (a fixed seed), sentences have one length (`tests.benchmarks.accelerator_work` has the sizes). A case
is one of: the rates of a big matrix product and a big copy; training, in real target tokens a second; search, beam 5
and greedy, and single sentences (batch 1, `milliseconds_per_call`). Training and search are measured for the 13.0 M
configuration and for the paper's RNNsearch-50, in float32 (products in TF32 on CUDA) and bfloat16, at several batch
sizes, on JAX and torch, each in a process of its own. Beside them runs the same 13.0 M model in plain PyTorch
(`tests.benchmarks.accelerator_peer`), and JoeyNMT's own model and search if the package is installed. All translations
have as many tokens as sources, so that every system does the same steps; this library's times include the tokenizer,
the peers' do not.

FILE (default: `accelerator.json`) is written after every case, the most important cases first. A case has a `status`:
"done"; "out of memory"; "failed", with the error; or "skipped", with the reason: "out of time" when the minutes are
spent. `ratios` compares this library with each peer at the same batch size and dtype. On a CPU, or with `--small`, the
sizes are reduced: `small` and `sizes` say so. The exit status is 1 if a case failed.

A machine without a package index (say with Python 3.12, jax 0.11 and torch 2.11) needs the wheels of the core
dependencies of `pyproject.toml` as far as they are missing there, and nothing of this package: absl-py, colorama, h5py,
keras, lxml, markdown-it-py, mdurl, ml_dtypes, namex, numpy, optree, packaging, portalocker, Pygments, regex, rich,
sacrebleu, sentencepiece, tabulate, typing_extensions. (matplotlib and its needs draw figures only, and may stay away.)
Where there is an index, fetch them, then unpack them there and start from the clone:

    pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d wheels NAME ...
    pip install --no-index --no-deps --target site wheels/*.whl
    PYTHONPATH=site:. python -m tests.benchmarks.accelerator --out accelerator.json

Leave numpy and ml_dtypes out where JAX is installed, for it has them.
"""

import argparse
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

from tests.benchmarks.accelerator_worker import Worker

BACKENDS = ("jax", "torch")
DTYPES = ("float32", "bfloat16")
BATCHES = {"full": (80, 128, 256, 512, 1024), "small": (2, 4, 8)}
SETTINGS = {
    "full": {"seconds": 2.0, "matrix": 8192, "copied": 2**28},
    "small": {"seconds": 0.2, "matrix": 512, "copied": 2**20},
}
CASE_SECONDS = 120  # at most
LEAST_SECONDS = 8  # that must be left for a case to begin
OUT_OF_TIME = {"status": "skipped", "reason": "out of time"}


def plan(batches: tuple[int, ...], backends, joeynmt: bool) -> list[dict]:
    """All cases, most important first, those of a backend together as far as that allows."""
    main, largest = batches[1], batches[-1]

    def systems(backend: str, model: str):
        peers = ["plain_pytorch"] + ["joeynmt"] * joeynmt
        return ["keras_attn"] + (peers if backend == "torch" and model == "13.0M" else [])

    def training(backend: str, model: str, chosen):
        for batch in chosen:
            for dtype in DTYPES:
                for system in systems(backend, model):
                    yield {"kind": "train", "system": system, "model": model, "dtype": dtype, "batch": batch}

    def searches(backend: str, model: str, dtype: str, chosen):
        for batch, beam in chosen:
            for system in systems(backend, model):
                case = {"kind": "search", "system": system, "model": model, "dtype": dtype}
                yield case | {"batch": batch, "beam": beam}

    def first(backend):
        yield from ({"kind": "rates", "dtype": dtype} for dtype in DTYPES)
        yield from training(backend, "13.0M", [main])
        yield from searches(backend, "13.0M", "float32", [(main, 5), (main, 1), (1, 5)])

    def second(backend):
        yield from training(backend, "rnnsearch50", [batches[0], largest])
        yield from training(backend, "13.0M", [largest])
        yield from searches(backend, "rnnsearch50", "bfloat16", [(main, 5)])
        yield from searches(backend, "13.0M", "bfloat16", [(main, 5), (largest, 5)])

    def third(backend):
        others = [batch for batch in batches if batch not in (main, largest)]
        yield from training(backend, "13.0M", others)
        yield from training(backend, "rnnsearch50", [b for b in batches if b not in (batches[0], largest)])
        yield from searches(backend, "rnnsearch50", "float32", [(main, 5), (main, 1), (1, 5)])

    stages = (first, second, third)
    return [{"backend": b, **case} for stage in stages for b in backends for case in stage(b)]


def ratios(cases: list[dict]) -> list[dict]:
    """This library's speed over each peer's, for cases that differ in system and backend alone."""
    names = "kind", "model", "dtype", "batch", "beam"
    speeds = {}
    for case in cases:
        speed = case.get("target_tokens_per_second") or case.get("sentences_per_second")
        if case["status"] == "done" and speed:
            system = case["backend"] if case["system"] == "keras_attn" else case["system"]
            speeds.setdefault(tuple(case.get(name) for name in names), {})[system] = speed
    return [
        dict(zip(names, key, strict=True)) | {"backend": backend, "peer": peer, "ratio": round(ours / theirs, 2)}
        for key, found in speeds.items()
        for backend, ours in found.items()
        for peer, theirs in found.items()
        if backend in BACKENDS and peer not in BACKENDS
    ]


def larger_than_what_ran_out_of_memory(case: dict, cases: list[dict]) -> bool:
    names = "backend", "kind", "system", "model", "dtype", "beam"
    return any(
        other["status"] == "out of memory"
        and other["batch"] < case.get("batch", 0)
        and all(other.get(name) == case.get(name) for name in names)
        for other in cases
    )


def measured_rates(case: dict, cases: list[dict]) -> dict:
    """`{"rates": ...}` of the case's backend and dtype, if they were measured."""
    for other in cases:
        alike = all(other[name] == case[name] for name in ("backend", "dtype"))
        if alike and other["kind"] == "rates" and other["status"] == "done":
            return {"rates": other}
    return {}


def run(cases, settings: dict, done: list[dict], start, remaining, write) -> None:
    """Measures the cases in order, each in a worker of its backend, and writes after each.

    Args:
        cases: The cases.
        settings: What a worker needs to know for all of them.
        done: List to which the results are appended.
        start: backend -> a `Worker`. A worker lives until a case of another backend comes, or it dies.
        remaining: () -> seconds left.
        write: Called after each case.
    """
    worker, current = None, None
    for case in cases:
        if remaining() < LEAST_SECONDS:
            result = case | OUT_OF_TIME
        elif larger_than_what_ran_out_of_memory(case, done):
            result = case | {"status": "skipped", "reason": "a smaller batch ran out of memory"}
        else:
            if worker is None or current != case["backend"]:
                if worker:
                    worker.close()
                worker, current = start(case["backend"]), case["backend"]
            left = remaining()
            result = worker.measure(case, settings | measured_rates(case, done), min(CASE_SECONDS, left))
            if result is None:
                reached = left <= CASE_SECONDS
                reason = "out of time" if reached else f"took more than {CASE_SECONDS} seconds"
                result = case | {"status": "skipped", "reason": reason}
            if not worker.alive():
                worker.close()
                worker = None
        done.append(result)
        write()
    if worker:
        worker.close()


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("accelerator.json"), metavar="FILE")
    parser.add_argument("--minutes", type=float, default=9.0, help="budget (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="reduced sizes, as on a CPU")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    arguments = parser.parse_args(argv)
    if not arguments.minutes > 0:
        parser.error(f"Expected --minutes above 0. Received: {arguments.minutes}")
    if not arguments.out.parent.is_dir():
        parser.error(f"Expected --out in a folder that exists. Received: {arguments.out}")
    backends = [name for name in arguments.backends if importlib.util.find_spec(name)]
    if not backends:
        parser.error(f"Expected {' or '.join(arguments.backends)} to be installed.")
    deadline = time.monotonic() + 60 * arguments.minutes - 5  # what is left ends the processes

    def remaining() -> float:
        return deadline - time.monotonic()

    def start(backend: str) -> Worker:
        worker = Worker(backend, remaining())
        if worker.facts:
            report["sizes"] = worker.facts.pop("sizes")
            report["devices"][backend] = worker.facts
        return worker

    report = {"benchmark": "accelerator", "python": sys.version.split()[0], "minutes": arguments.minutes}
    report |= {"processors": os.cpu_count(), "load": os.getloadavg()[0], "devices": {}, "ratios": [], "cases": []}
    report["missing"] = [name for name in (*arguments.backends, "joeynmt") if not importlib.util.find_spec(name)]
    probe = start(backends[0])
    if probe.facts is None:
        print(f"Expected a process with {backends[0]} to start. It did not; its messages are above.", file=sys.stderr)
        return 1
    size = "small" if arguments.small or probe.facts["platform"] == "cpu" else "full"
    report |= {"small": size == "small", "settings": SETTINGS[size]}

    def write() -> None:
        report["ratios"] = ratios(report["cases"])
        partial = arguments.out.with_name(f"{arguments.out.name}.partial")
        partial.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        partial.replace(arguments.out)
        case = report["cases"][-1]
        names = "backend", "kind", "system", "model", "dtype", "batch", "beam"
        label = " ".join(str(case[name]) for name in names if name in case)
        speeds = "target_tokens_per_second", "sentences_per_second", "matrix_gflops"
        found = " ".join(f"{name}={case[name]}" for name in speeds if name in case)
        print(f"{label}: {case.get('reason', case['status'])} {found}", flush=True)

    kept = [probe]  # the first worker is the one that was asked for the device

    def start_or_keep(backend: str) -> Worker:
        return kept.pop() if kept else start(backend)

    cases = plan(BATCHES[size], backends, "joeynmt" not in report["missing"] and "torch" in backends)
    run(cases, {"size": size} | SETTINGS[size], report["cases"], start_or_keep, remaining, write)
    for worker in kept:  # no case was measured
        worker.close()
    statuses = [case["status"] for case in report["cases"]]
    print(json.dumps({status: statuses.count(status) for status in sorted(set(statuses))}))
    return int("failed" in statuses)


if __name__ == "__main__":
    sys.exit(main())
