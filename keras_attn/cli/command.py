"""The frame of every command: the backend is chosen, and errors are one sentence on stderr and an exit status."""

import _thread
import argparse
import contextlib
import functools
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from keras_attn import requirements
from keras_attn.requirements import BACKENDS, require
from keras_attn.suggestions import did_you_mean
from keras_attn.training import Terminated


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line.

    Args:
        prog: The command's name.
        description: A docstring, whose first line the help has; None, as under `python -OO`: the help has none.
    """

    def __init__(self, prog: str, description: str | None = None, **options):
        super().__init__(prog, description=(description or "").partition("\n")[0], **options)

    def error(self, message):
        unknown, flags = re.match(r"unrecognized arguments: (--[^\s=]+)", message), self._option_string_actions
        choice = re.match(r"argument .*: invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if unknown:
            message += did_you_mean(unknown[1], flags)
        elif choice:
            message += did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]))
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def choose_backend(backend: str | None = None) -> None:
    """Sets the environment variables of a command; call it before Keras is imported.

    Without `backend` it is that of `keras_attn.requirements.choose_backend`.

    Args:
        backend: The backend that the command needs, whatever the variable says.

    Raises:
        ModuleNotFoundError: If the backend is not installed, or if none is.
        ValueError: If the variable names no backend that the package runs on.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # for messages after the import; see `quietly`
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # warns of each new shape; buckets bound them
    chosen = backend or os.environ.get("KERAS_BACKEND")
    if not chosen:
        return requirements.choose_backend()
    if chosen not in BACKENDS:
        raise ValueError(f"Expected KERAS_BACKEND to be one of {', '.join(BACKENDS)}. Received: {chosen!r}")
    require(chosen, chosen)
    os.environ["KERAS_BACKEND"] = chosen


def run(
    command: Callable[[argparse.Namespace], None],
    parser: argparse.ArgumentParser,
    argv=None,
    *,
    prepare: Callable[[], None] | None = choose_backend,
) -> int | argparse.ArgumentParser:
    """Parses the command line, imports Keras and runs the command.

    Args:
        command: Takes the parsed arguments.
        parser: Parses the command line. Its `prog` opens each error.
        argv: The command line; None: the process's own; `PARSER`: return the parser and do nothing.
        prepare: Sets environment variables, or raises a `ModuleNotFoundError`, before Keras is imported; None: the
            command needs no Keras, which is not imported.

    Returns:
        The exit status: 0, 2 if the input was refused or something is not installed, 130 if interrupted, 143 if
        terminated, 1 if the system failed.
    """
    if argv is PARSER:
        return parser
    try:
        arguments = parser.parse_intermixed_args(argv)  # RUN --beam 3 FILE
        with _unraisable_interrupts_raised(), _warnings_as_lines(parser):
            if prepare:
                import_keras(prepare)
            command(arguments)
            if sys.stdout:
                sys.stdout.flush()  # a failure to write shows here, not when Python ends
    except BrokenPipeError:
        return _complain(parser, "the reader of the output has gone before all was written.", 1)
    except (ValueError, FileNotFoundError, FileExistsError, IsADirectoryError, ImportError) as error:
        return _complain(parser, error, 2)
    except MemoryError:
        return _complain(parser, "there is not enough memory for this.", 1)
    except (OSError, RuntimeError) as error:
        return _complain(parser, error, 1)
    except KeyboardInterrupt as error:
        return _complain(parser, error if error.args else "interrupted", 130)
    except Terminated as error:
        return _complain(parser, error, 143)
    return 0


def between(kind: type, low: float, high: float) -> Callable[[str], float]:
    """For argparse: returns a function that reads a number of this kind from `low` to `high`."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:  # NaN is outside, too
            name = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"expected a {name} from {low:,} to {high:,}. Received: {text!r}")
        return value

    return read


PARSER = ["--parser"]  # in the place of a command line: `run` returns the parser, for `keras-attn completion`
KINDS = {"preset": "a run or a preset", "onnx": "a translator in ONNX", "saved_model": "a SavedModel"}


def add_run(
    parser: argparse.ArgumentParser,
    name: str = "RUN",
    kinds: tuple[str, ...] = ("preset",),
    help: str = "folder of a run; or a preset: its folder, its name (`keras-attn presets`) or hf://USER/NAME",
) -> None:
    """Adds the argument RUN, which may be of some of `KINDS`."""
    help += "".join(f"; or {KINDS[kind]}" for kind in kinds if kind != "preset")
    parser.add_argument("run", metavar=name, type=functools.partial(run_folder, kinds=kinds), help=help)


def run_folder(text: str, kinds: tuple[str, ...] = ("preset",)) -> Path:
    """For argparse: returns the folder of a run or a preset, which may be the name of a registered one, or hf://....

    Args:
        text: What the user wrote.
        kinds: The kinds of folders that the command takes, of `KINDS`.

    Raises:
        FileNotFoundError: If it is nowhere, or cannot be downloaded.
    """
    from keras_attn.saving import locate

    try:
        folder = locate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if (kind := kind_of(folder)) not in kinds:
        expected = " or ".join(KINDS[one] for one in kinds)
        raise argparse.ArgumentTypeError(f"expected {expected}. Received: {text!r}, {KINDS[kind]}")
    return folder


def kind_of(folder: Path) -> str:
    """Returns which of `KINDS` a folder is; "preset" if no other, and if it does not exist."""
    if os.path.isfile(folder / "encode.onnx"):
        return "onnx"
    is_preset = os.path.isfile(folder / "translator.json")
    return "saved_model" if not is_preset and versions_of(folder) else "preset"


def versions_of(folder: Path) -> list[Path]:
    """Returns the SavedModels in a model's folder, the newest last; the folder itself if it is one."""
    if os.path.isfile(folder / "saved_model.pb"):
        return [folder]
    inner = [path.parent for path in folder.glob("*/saved_model.pb")] if os.path.isdir(folder) else []
    return sorted((path for path in inner if path.name.isdecimal()), key=lambda path: int(path.name))


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Drops what is written to stderr: TensorFlow's greeting, which TF_CPP_MIN_LOG_LEVEL does not turn off.

    TensorFlow greets when it is imported: by Keras with its own backend and, on the other backends, when Keras first
    loads or saves a model.

    An interruption waits for the end of the block: libraries that are imported may swallow it, turn it into another
    error, or abort the process in code of theirs. A second one is raised at once.
    """
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with _interrupts_deferred():
            yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


@contextlib.contextmanager
def _unraisable_interrupts_raised() -> Iterator[None]:
    """Raises an interruption again that came in a callback of the garbage collector, where Python ignores it."""
    usual = sys.unraisablehook

    def hook(unraisable):
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            threading.Timer(0.01, _thread.interrupt_main).start()  # by then the callback has ended
        else:
            usual(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


@contextlib.contextmanager
def _warnings_as_lines(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Writes each warning as one line on stderr, without the file and the line of code that Python adds."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print(f"{parser.prog}: {message}", file=sys.stderr)
        yield


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Raises an interruption at the end of the block; a second one at once."""
    interrupts = []

    def note(*received):
        interrupts.append(received)
        if len(interrupts) > 1:
            raise KeyboardInterrupt

    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not ignored, nor a handler of a caller's
    if not is_usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if interrupts:
            raise KeyboardInterrupt


def import_keras(prepare: Callable[[], None] = choose_backend) -> None:
    """Imports Keras as a command does: quietly, and with what is fastest on each backend.

    Args:
        prepare: Sets environment variables, or raises a `ModuleNotFoundError`, before.
    """
    if sys.stderr is None:  # closed; print would fall back on stdout
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        os.dup2(sys.stderr.fileno(), 2)
    prepare()
    with quietly():
        from keras_attn.backend import tune_process

        tune_process()


def _complain(parser: argparse.ArgumentParser, error: object, status: int) -> int:
    print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:  # Python would try again as it ends, and complain in its own words
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
