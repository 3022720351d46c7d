"""How every command ends: what went wrong is one sentence on stderr, and an exit status."""

import argparse
import logging
import os
import sys
from collections.abc import Callable


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def run(command: Callable[[argparse.Namespace], None], parser: argparse.ArgumentParser, argv=None) -> int:
    """Parses and runs.

    Returns 0, 2 for input that was refused, 130 when interrupted, 1 when the system refused something.
    """
    arguments = parser.parse_args(argv)
    _import_quietly()
    try:
        command(arguments)
        if sys.stdout:
            sys.stdout.flush()  # what cannot be written is found now, not when Python ends
    except BrokenPipeError:
        return _complain(parser, "the reader of the output has gone before all was written.", 1)
    except (ValueError, FileNotFoundError, FileExistsError) as error:
        return _complain(parser, error, 2)
    except MemoryError:
        return _complain(parser, "there is not enough memory for this.", 1)
    except (OSError, RuntimeError) as error:
        return _complain(parser, error, 1)
    except KeyboardInterrupt:
        return _complain(parser, "interrupted", 130)
    return 0


def _import_quietly() -> None:
    """TensorFlow greets on stderr, from C++ and whatever TF_CPP_MIN_LOG_LEVEL says, when Keras imports it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # for what it says later
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # warns of each new shape; buckets bound them
    if sys.stderr is None:  # closed; print would fall back on stdout
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, for as long as Python runs
        return
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        import keras  # noqa: F401
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def _complain(parser, error, status: int) -> int:
    print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:  # Python would try again as it ends, and complain in its own words
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
