"""Hostile and damaged files: every one is refused with a sentence or does no harm, within little memory and time."""

import contextlib
import copy
import gzip
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import pytest

from keras_attn import Translator, files
from keras_attn.training import corpora
from keras_attn.training.report import memory_mb
from tests.attack import killing

pytestmark = [pytest.mark.slow, pytest.mark.once]

ROOT = Path(__file__).parents[2]
MEGABYTES = 300  # that a case may take at most
SECONDS = 20
REFUSALS = (ValueError, FileNotFoundError, FileExistsError, IsADirectoryError, PermissionError)


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
    """What the work returns, or its refusal, which is a sentence."""
    refusal = None
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


def damaged(content: bytes, kind: str, draw: random.Random) -> bytes:
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


KINDS = ("empty", "truncated", "flipped", "zeros", "doubled", "inserted", "page", "noise")
NUMBERS = (-1, 0, 7, 2.5, 1e400, float("nan"), 10**30)
JSON_VALUES = (*NUMBERS, None, True, "", "x", "\ud800", [], [[]], {}, {"a": 1}, "x" * 5000)


def mutated(value, draw: random.Random):
    """A JSON value in which one entry, chosen at random, has another value or is missing."""
    value = copy.deepcopy(value)
    places = []

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


# Presets.


@pytest.fixture(scope="module")
def preset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("attacked") / "preset"
    killing.translator().save_to_preset(folder)
    return folder


def mend(folder: Path) -> None:
    """Makes the manifest fit the files, as who changes a preset on purpose can."""
    path = folder / "translator.json"
    recorded = json.loads(path.read_text())
    path.unlink()
    digests = {name: digest for name, digest in files.digests(folder).items() if name != "README.md"}
    path.write_text(json.dumps(recorded | {"files": digests}))


def parts_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_parts(path: Path, parts: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


def loads_or_is_refused(folder: Path, is_mended: bool = True) -> None:
    if is_mended:
        mend(folder)
    found = answer(Translator.from_preset, folder)
    assert isinstance(found, (Translator, *REFUSALS))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", ["model.keras", "source_tokenizer", "target_tokenizer", "translator.json"])
def test_another_value_does_no_harm(preset, tmp_path, name, seed):
    """In the config of the model, the file of a tokenizer and the manifest, with digests that fit."""
    folder, draw = Path(shutil.copytree(preset, tmp_path / "copy")), random.Random(seed)
    path = folder / name
    if name == "model.keras":
        parts = parts_of(path)
        parts["config.json"] = json.dumps(mutated(json.loads(parts["config.json"]), draw)).encode()
        write_parts(path, parts)
    elif name == "translator.json":
        path.write_text(json.dumps(mutated(json.loads(path.read_text()), draw)))
    else:
        path = path / "tokenizer.json"
        recorded = mutated(json.loads(path.read_text()), draw)
        rest = {name: value for name, value in recorded.items() if name not in ("format", "sha256")}
        digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
        path.write_text(json.dumps(recorded | {"sha256": digest}))
    loads_or_is_refused(folder, is_mended=name != "translator.json")


@pytest.mark.parametrize("part", ["config.json", "metadata.json", "model.weights.h5", "the file"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_model_does_no_harm_whatever_the_manifest_says(preset, tmp_path, part, kind):
    folder, draw = Path(shutil.copytree(preset, tmp_path / "copy")), random.Random(f"{part} {kind}")
    path = folder / "model.keras"
    if part == "the file":
        path.write_bytes(damaged(path.read_bytes(), kind, draw))
    else:
        parts = parts_of(path)
        write_parts(path, parts | {part: damaged(parts[part], kind, draw)})
    loads_or_is_refused(folder)


def test_bombs_take_no_memory(preset, tmp_path):
    """Measured in a process of its own: 600 MB of zeros, deep JSON, and arrays that are larger than their file."""
    code = """
import io, json, sys, zipfile
from pathlib import Path
import h5py
from keras_attn import Translator
from keras_attn.training.report import peak_memory_mb
from tests.attack.test_files import mend, parts_of, write_parts

folder = Path(sys.argv[1])
path = folder / "model.keras"
parts = parts_of(path)
Translator.from_preset(folder)
before = peak_memory_mb()

def zeros(name):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for other, part in parts.items():
            if other != name:
                archive.writestr(other, part)
        with archive.open(name, "w") as file:
            for _ in range(600):
                file.write(bytes(10**6))

def weights(shape, **options):
    file = io.BytesIO()
    with h5py.File(file, "w") as arrays:
        arrays.create_dataset("layers/embedding/vars/0", shape, "float32", **options)
    write_parts(path, parts | {"model.weights.h5": file.getvalue()})

for bomb in (
    lambda: zeros("config.json"),
    lambda: zeros("metadata.json"),
    lambda: zeros("model.weights.h5"),
    lambda: write_parts(path, parts | {"config.json": b"[" * 10**7}),
    lambda: weights((2**28, 3), chunks=(2**10, 3), fillvalue=1.0),
    lambda: weights((2**40, 2**20), chunks=(2**10, 3)),
    lambda: weights((2**26, 3), chunks=(2**20, 3), compression="gzip", fillvalue=0.0),
):
    bomb()
    mend(folder)
    try:
        Translator.from_preset(folder)
    except ValueError as error:
        assert str(error).startswith("Expected"), error
    else:
        raise AssertionError("It was loaded.")
print(peak_memory_mb() - before)
"""
    folder = shutil.copytree(preset, tmp_path / "copy")
    line = [sys.executable, "-W", "ignore", "-c", code, str(folder)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.split()[-1]) < MEGABYTES


# Exports.

LOADS = """
import json, sys
from pathlib import Path
from keras_attn.serving.saved_model import SavedModel

for folder in sys.argv[1:]:
    try:
        SavedModel(Path(folder))
    except ValueError as error:
        print(json.dumps(str(error)[:200]), flush=True)
    else:
        print("null", flush=True)
"""
VERSION_FILES = (
    *("saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"),
    "assets.extra/tf_serving_warmup_requests",
)


@pytest.mark.not_once
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow writes and loads the graph")
def test_a_damaged_version_is_refused_or_harmless(tmp_path, monkeypatch):
    """All in a process of their own, which goes on after each."""
    from keras_attn.export import saved_model

    monkeypatch.setattr(saved_model, "check_signatures", lambda *_: None)  # it takes long
    assert killing.export_whole(tmp_path) == 0
    version, folders = tmp_path / "models" / "1", []
    for name in VERSION_FILES:
        for kind in ("truncated", "zeros", "missing"):
            folder = Path(shutil.copytree(version, tmp_path / str(len(folders)) / "1"))
            content = (folder / name).read_bytes()
            (folder / name).unlink()
            if kind != "missing":
                (folder / name).write_bytes(damaged(content, kind, random.Random(f"{name} {kind}")))
            folders.append(folder)
    line = [sys.executable, "-W", "ignore", "-c", LOADS, *map(str, folders)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(answer) for answer in done.stdout.splitlines()]
    assert len(found) == len(folders)
    for folder, sentence in zip(folders, found, strict=True):
        assert sentence is None or sentence.startswith(f"Expected a SavedModel in {str(folder)!r}. It does not load"), (
            sentence
        )
    # An empty or missing file of warm-up records is none, and zeros may be weights.
    assert sum(sentence is not None for sentence in found) >= len(found) // 3


def test_a_full_disk_at_export_is_a_sentence_and_leaves_nothing(preset, tmp_path):
    """A limit to the size of files stands in for a disk."""
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)); "
    code = limit + "from keras_attn.cli.export import main; sys.exit(main(sys.argv[1:]))"
    line = [sys.executable, "-W", "ignore", "-c", code, str(preset), str(tmp_path / "models"), "--beam", "2"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 1, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert "Expected" in done.stderr
    assert list(tmp_path.iterdir()) == []


# Corpora.

TEXT = b"ein Haus\nzwei H\xc3\xa4user\ndrei\n"


def corpus(folder: Path, **contents: bytes) -> Path:
    for split in ("train", "val", "test"):
        for language in ("de", "fr"):
            (folder / f"{split}.{language}").write_bytes(TEXT)
    for name, content in contents.items():
        (folder / "train.fr").unlink(missing_ok=True)
        (folder / name.replace("_", ".")).write_bytes(content)
    return folder


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    "text", [TEXT[:-1] + b"\xc3", b"ein\n\xed\xa0\x80\ndrei\n", bytes(100_000_000)], ids=["half", "surrogate", "zeros"]
)
def test_a_text_that_is_none_is_refused(tmp_path, text, zipped):
    content = gzip.compress(text, 1) if zipped else text
    folder = corpus(tmp_path, **{"train_fr_gz" if zipped else "train_fr": content})
    assert "train.fr" in refused(corpora.load, folder, "de", "fr")


@pytest.mark.parametrize("what", ["a folder", "a pipe", "a loop", "a device", "nothing behind it"])
def test_what_is_no_file_is_refused(tmp_path, what):
    path = corpus(tmp_path) / "train.fr"
    path.unlink()
    {
        "a folder": path.mkdir,
        "a pipe": lambda: os.mkfifo(path),
        "a loop": lambda: path.symlink_to(path),
        "a device": lambda: path.symlink_to("/dev/zero"),
        "nothing behind it": lambda: path.symlink_to("nowhere"),
    }[what]()
    refused(corpora.load, tmp_path, "de", "fr")


# Places that cannot be written.

READ_ONLY = """
import contextlib, io, json, os, sys
from pathlib import Path
from keras_attn import ParallelDataset, Tokenizer, Translator
from keras_attn.cli import export, translate
from keras_attn.training import corpora
from keras_attn.cli import train

preset, place, corpus = map(Path, sys.argv[1:4])
if os.geteuid() == 0:  # root without the capability to write everywhere (CAP_DAC_OVERRIDE, number 1)
    import ctypes

    system = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert system.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
    sets[0] &= ~2
    assert system.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
    assert system.prctl(24, 1, 0, 0, 0) == 0, "capset of the processes that it starts"  # PR_CAPBSET_DROP
found = {}

def command(name, main, *line):
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        found[name] = main([*map(str, line)]), error.getvalue()

def call(name, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except OSError as error:
        found[name] = 1, f"{name}: {error}\\n"
    else:
        found[name] = 0, ""

corpora.named_corpora().BASE = corpus.as_uri()
os.environ["KERAS_HOME"] = str(place / "home")
os.environ.pop("KERAS_ATTN_DATA", None)
languages = ["--source", "de", "--target", "fr"]
command("train", train.main, "rnnsearch", "--corpus", corpus, *languages, "--out", place / "run")
command("train here", train.main, "rnnsearch", "--corpus", corpus, *languages, "--out", place)
command("export", export.main, preset, place / "models", "--beam", "2")
command("translate", translate.main, preset, "--input", corpus / "val.de", "--output", place / "out.txt")
command("draw", translate.main, preset, "--input", corpus / "val.de", "--png", place / "pictures")
translator = Translator.from_preset(preset)
call("save", translator.save_to_preset, place / "preset")
call("save here", translator.save_to_preset, place)
call("save a tokenizer", translator.source_tokenizer.save, place / "tokenizer")
text, words = corpus / "train.de", translator.source_tokenizer
call("encode", ParallelDataset.from_files, text, text, words, words, place / "cache", batch_size=8)
call("download", corpora.load, "cmudict")
print(json.dumps(found))
"""


def test_a_place_that_cannot_be_written_is_refused_with_a_sentence(preset, tmp_path):
    place, texts = tmp_path / "place", tmp_path / "corpus"
    texts.mkdir()
    corpus(texts)
    place.mkdir(0o555)
    line = [sys.executable, "-W", "ignore", "-c", READ_ONLY, str(preset), str(place), str(texts)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, timeout=300)
    if "capget" in done.stderr or "capset" in done.stderr:
        pytest.skip("root writes everywhere, and the system does not let it give that up")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 10
    for name, (status, error) in found.items():
        assert status in (1, 2), (name, error)
        assert "Permission denied" in error, (name, error)
        assert "Expected " in error, (name, error)
        assert error.count("\n") == 1, (name, error)
    assert list(place.iterdir()) == []
