"""How every command ends: what went wrong is one sentence on stderr, and an exit status."""

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def run(command: Callable[[argparse.Namespace], None], parser: argparse.ArgumentParser, argv=None) -> int:
    """Parses and runs.

    Returns 0, 2 for input that was refused, 130 when interrupted, 1 when the system refused something.
    """
    arguments = parser.parse_args(argv)
    _import_keras()
    try:
        command(arguments)
        if sys.stdout:
            sys.stdout.flush()  # what cannot be written is found now, not when Python ends
    except BrokenPipeError:
        return _complain(parser, "the reader of the output has gone before all was written.", 1)
    except (ValueError, FileNotFoundError, FileExistsError, IsADirectoryError) as error:
        return _complain(parser, error, 2)
    except MemoryError:
        return _complain(parser, "there is not enough memory for this.", 1)
    except (OSError, RuntimeError) as error:
        return _complain(parser, error, 1)
    except KeyboardInterrupt:
        return _complain(parser, "interrupted", 130)
    return 0


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """TensorFlow greets on stderr, from C++ and whatever TF_CPP_MIN_LOG_LEVEL says, when it is imported.

    Keras imports it with its own backend, and, on the other backends, when it first loads or saves a model.
    """
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def _import_keras() -> None:
    if sys.stderr is None:  # closed; print would fall back on stdout
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        os.dup2(sys.stderr.fileno(), 2)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # for what it says later
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # warns of each new shape; buckets bound them
    with quietly():
        import keras  # noqa: F401


def _complain(parser, error, status: int) -> int:
    print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:  # Python would try again as it ends, and complain in its own words
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
