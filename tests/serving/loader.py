"""Builds and runs the C program `run_saved_model.c` and parses its output."""

import importlib.util
import os
import subprocess
from pathlib import Path

import numpy as np

C_SOURCE = Path(__file__).with_name("run_saved_model.c")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
Loader = tuple[Path, list]  # the program, and its options that load tensorflow-text's ops


def build(folder: Path) -> Loader:
    """Builds the program against the libraries of the TensorFlow wheel, without importing TensorFlow.

    Raises:
        RuntimeError: with gcc's message, if it fails.
        FileNotFoundError: if there is no gcc.
    """
    spec = importlib.util.find_spec("tensorflow")
    wheel, program = Path(spec.submodule_search_locations[0]), folder / "run_saved_model"
    libraries = [wheel / "libtensorflow_cc.so.2", wheel / "libtensorflow_framework.so.2"]
    gcc = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{wheel / 'include'}"]
    command = [*gcc, C_SOURCE, "-o", program, *libraries, f"-Wl,-rpath,{wheel}"]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        raise RuntimeError(f"Expected gcc to build {C_SOURCE.name}. Received: {built.stderr}")
    text_ops = sorted((wheel.parent / "tensorflow_text" / "python" / "ops").glob("*.so"))
    return program, [word for path in text_ops for word in ("--library", path)]


def run(
    loader: Loader, folder: Path, texts: list[bytes], *options, xla: bool = False
) -> tuple[subprocess.CompletedProcess, dict]:
    """Returns the finished process and `{signature: {output: array}}`."""
    done, results = run_batches(loader, folder, texts, *options, xla=xla)
    return done, dict(results)


def run_batches(loader: Loader, folder: Path, texts: list[bytes], *options, xla: bool = False):
    """Returns the finished process and `[(signature, {output: array}), ...]`, one for each signature and batch."""
    program, libraries = loader
    frames = b"".join(b"%d\n%b\n" % (len(text), text) for text in texts)
    command = [program, folder, *([] if xla else ["--without-xla"]), *libraries, *options]
    done = subprocess.run(command, input=frames, capture_output=True, env=os.environ | QUIET)
    return done, parse(done.stdout)


def times(done: subprocess.CompletedProcess) -> dict[str, list[float]]:
    """Returns the numbers on stderr, by name: "load", "run SIGNATURE" and "memory"."""
    found = {}
    for line in done.stderr.decode(errors="replace").splitlines():
        *words, last = line.split() or [""]
        if words and words[0] in ("load", "run", "memory"):
            found.setdefault(" ".join(words), []).append(float(last))
    return found


def parse(stdout: bytes) -> list[tuple[str, dict[str, np.ndarray]]]:
    results, at = [], 0

    def line():
        nonlocal at
        end = stdout.index(b"\n", at)
        at, words = end + 1, stdout[at:end]
        return words.decode()

    while at < len(stdout):
        kind, name, *rest = line().split()
        if kind == "signature":
            results.append((name, {}))
            continue
        type_, rank, *shape = map(int, rest)
        assert kind == "output"
        assert rank == len(shape)
        values = []
        for _ in range(int(np.prod(shape))):
            values.append(float(line()))
            if type_ == 7:  # a string
                length = int(values.pop())
                values.append(stdout[at : at + length])
                at += length + 1
        results[-1][1][name] = np.array(values, object if type_ == 7 else float).reshape(shape)
    return results
