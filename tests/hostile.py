"""Damaged and hostile files, and the bounds within which they are refused."""

import contextlib
import copy
import hashlib
import json
import random
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hypothesis import HealthCheck, Phase

from keras_attn import files
from keras_attn.training.report import memory_mb

MEGABYTES = 300  # that a case may take at most
SECONDS = 20
REFUSALS = (ValueError, FileNotFoundError, FileExistsError, IsADirectoryError, PermissionError)
DAMAGES = ("empty", "truncated", "flipped", "zeros", "doubled", "inserted", "page", "noise")
JSON_VALUES = (
    *(-1, 0, 7, 2.5, 1e400, float("nan"), 10**30, None, True, "", "x", "\ud800", "x" * 5000),
    *([], [[]], {}, {"a": 1}),
)
# Settings for examples that take seconds: other ones each time, as they were drawn.
HYPOTHESIS = {"deadline": None, "database": None, "phases": [Phase.generate], "suppress_health_check": [*HealthCheck]}
REQUESTS = (  # good ones, to the model of `tests.serving.served`
    b'{"inputs": {"text": ["ein", {"b64": "/2E="}]}}',
    b'{"instances": [{"text": "a"}], "signature_name": ""}',
    b'{"signature_name": "translate_token_ids", "inputs": {"token_ids": [[5, 7]], "lengths": [1]}}',
    b'{"signature_name": "translate_with_options", "inputs": {"text": ["x"], "length_penalty": 1e-3}}',
    b'{"signature_name": "score", "instances": [{"source": "ein", "target": "a"}]}',
    b'{"signature_name": "translate_n_best", "inputs": ["a b", ""]}',
)


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Little time, and little memory where the system can tell."""
    started, before = time.monotonic(), None
    with contextlib.suppress(OSError):  # not Linux
        Path("/proc/self/clear_refs").write_text("5")
        before = memory_mb()
    yield
    assert time.monotonic() - started < SECONDS
    if before is not None:
        assert memory_mb("VmHWM") - before < MEGABYTES


def answer(work: Callable, *arguments):
    """The result of the work, or its refusal, which is a sentence."""
    with bounded():
        try:
            return work(*arguments)
        except REFUSALS as error:
            refusal = error
    assert str(refusal).startswith("Expected"), repr(refusal)
    assert len(str(refusal)) < 2000
    return refusal


def refused(work: Callable, *arguments) -> str:
    error = answer(work, *arguments)
    assert isinstance(error, REFUSALS), f"Expected a refusal. Received: {error!r}"
    return str(error)


def called(main: Callable, arguments, capfd) -> tuple[int, str, str]:
    """The status of a command in this process, its output and its errors, of which none is a traceback."""
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as exit:  # argparse's own
        status = exit.code
    out, error = capfd.readouterr()
    assert "Traceback" not in error
    return status, out, error


def sentence_of(main: Callable, arguments, capfd) -> str:
    """The one line with which a command refuses its arguments."""
    status, _, error = called(main, arguments, capfd)
    assert (status, error.count("\n")) == (2, 1), error
    return error


def damaged(content: bytes, kind: str, draw: random.Random) -> bytes:
    """The content, damaged in one of `DAMAGES`."""
    place = draw.randrange(len(content)) if content else 0
    return {
        "empty": lambda: b"",
        "truncated": lambda: content[:place],
        "flipped": lambda: content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :],
        "zeros": lambda: content[:place] + bytes(len(content) - place),  # to the end: a part may be zeros already
        "doubled": lambda: content * 2,
        "inserted": lambda: content[:place] + draw.randbytes(9) + content[place:],
        "page": lambda: b"<html><body>Please log in.</body></html>",
        "noise": lambda: draw.randbytes(len(content)),
    }[kind]()


def mutated(value, draw: random.Random):
    """A JSON value in which one entry, chosen at random, has another value or is missing."""
    value, places = copy.deepcopy(value), []

    def walk(one):
        for key in one.keys() if isinstance(one, dict) else range(len(one)):
            places.append((one, key))
            if isinstance(one[key], (dict, list)):
                walk(one[key])

    walk(value)
    parent, key = draw.choice(places)
    if draw.random() < 0.2:
        del parent[key]
    else:
        parent[key] = draw.choice(JSON_VALUES)
    return value


def mend(folder: Path, **changes) -> None:
    """Makes the manifest of a preset fit its files, as who changes one on purpose can; `changes` are its entries."""
    path = folder / "translator.json"
    recorded = json.loads(path.read_text())
    path.unlink()
    digests = {name: digest for name, digest in files.digests(folder).items() if name != "README.md"}
    path.write_text(json.dumps(recorded | {"files": digests} | changes))


def mended_tokenizer(recorded: dict) -> bytes:
    """The file of a tokenizer with the digest of these values."""
    rest = {name: value for name, value in recorded.items() if name not in ("format", "sha256")}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    return json.dumps(recorded | {"sha256": digest}).encode()


def parts_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_parts(path: Path, parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
