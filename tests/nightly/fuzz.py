"""Coverage-guided fuzzing of what reads the files and requests of others, by `atheris`.

    python -m tests.nightly.fuzz TARGET CORPUS [options of libFuzzer, such as -max_total_time=60]

CORPUS is a folder of inputs, which gets one of each kind first. An input is refused with a sentence, or read.
"""

import hashlib
import json
import random
import shutil
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["keras_attn.text", "keras_attn.saving", "keras_attn.converters"]):
    import numpy as np

    from keras_attn import Tokenizer, Translator
    from keras_attn.converters import from_marian, from_tfa, marian
    from keras_attn.models import LuongSeq2Seq

from tests import fixtures, hostile, tiny

FIXTURES = Path(fixtures.__file__).parent
PLACE = Path(tempfile.mkdtemp())
MODEL = b"\0model\0"  # between the parts of an input


def accept(read: Callable, *arguments):
    """Calls what reads; a refusal has to be a sentence. Returns what was read, or None."""
    try:
        return read(*arguments)
    except (ValueError, FileNotFoundError) as error:
        if not str(error).startswith("Expected"):
            raise
        return None


def tokenizer() -> tuple[list[bytes], Callable[[bytes], None]]:
    """The manifest of a tokenizer, whose digests are made to fit, and its SentencePiece model."""
    seeds, folder = [], PLACE / "tokenizer"
    for level, options in (("word", {}), ("character", {"lowercase": True}), ("bpe", {"vocabulary_size": 290})):
        Tokenizer.train(tiny.LINES, level=level, **options).save(PLACE / level)
        model = PLACE / level / "sentencepiece.model"
        pieces = MODEL + model.read_bytes() if model.exists() else b""
        seeds.append((PLACE / level / "tokenizer.json").read_bytes() + pieces)

    def read(content: bytes) -> None:
        manifest, _, model = content.partition(MODEL)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            recorded = json.loads(manifest)
            if "sentencepiece_sha256" in recorded:
                recorded["sentencepiece_sha256"] = hashlib.sha256(model).hexdigest()
            manifest = hostile.mended_tokenizer(recorded)
        except (ValueError, TypeError, AttributeError, RecursionError):
            pass
        (folder / "tokenizer.json").write_bytes(manifest)
        (folder / "sentencepiece.model").write_bytes(model)
        if found := accept(Tokenizer.load, folder):
            ids = found.encode("w1 W2 ÄÖ")
            assert all(0 <= i < found.vocabulary_size for i in ids)
            found.decode(ids)

    return seeds, read


def marian_files() -> tuple[list[bytes], Callable[[bytes], None]]:
    """A model of Marian: its options, which are YAML, then its vocabulary, or the bytes of the whole file."""
    with zipfile.ZipFile(FIXTURES / "marian.zip") as archive:
        archive.extractall(PLACE)
    with np.load(PLACE / "s2s.npz") as stored:
        arrays = dict(stored)
    options, path = arrays.pop("special:model.yml").tobytes().rstrip(b"\0"), PLACE / "fuzzed.npz"
    vocabulary = PLACE / "fuzzed.yml"
    words = (PLACE / "source.yml").read_bytes()
    seeds = [options + MODEL + words, (PLACE / "lstm.npz").read_bytes()]

    def read(content: bytes) -> None:
        if MODEL not in content:
            path.write_bytes(content)
            accept(marian.read_model, path)
            return
        config, _, words = content.partition(MODEL)
        np.savez(path, **arrays, **{"special:model.yml": np.frombuffer(config + b"\0", "uint8")})
        vocabulary.write_bytes(words)
        accept(from_marian, path, [vocabulary, PLACE / "target.yml"])

    return seeds, read


def tfa_files() -> tuple[list[bytes], Callable[[bytes], None]]:
    """A checkpoint of TensorFlow: the file of names, and that of weights."""
    (index,) = (FIXTURES / "tfa_checkpoints" / "luong_lstm").glob("*.index")
    (data,) = index.parent.glob("*.data-*")
    model = LuongSeq2Seq(7, 7, units=3, num_layers=1, embedding_size=3, readout_size=3)

    def read(content: bytes) -> None:
        names, _, weights = content.partition(MODEL)
        (PLACE / index.name).write_bytes(names)
        (PLACE / data.name).write_bytes(weights)
        accept(from_tfa, PLACE / index.stem, model)

    return [index.read_bytes() + MODEL + data.read_bytes()], read


def preset() -> tuple[list[bytes], Callable[[bytes], None]]:
    """The properties in a preset's manifest and the config of its model; the digests fit."""
    tiny.make().save_to_preset(PLACE / "preset")
    model, manifest = PLACE / "preset" / "model.keras", PLACE / "preset" / "translator.json"
    parts, recorded = hostile.parts_of(model), manifest.read_bytes()

    def read(content: bytes) -> None:
        config, _, properties = content.partition(MODEL)
        hostile.write_parts(model, parts | {"config.json": config})
        manifest.write_bytes(recorded)
        hostile.mend(manifest.parent)
        try:
            manifest.write_text(json.dumps(json.loads(manifest.read_text()) | json.loads(properties)))
        except (ValueError, TypeError, RecursionError):
            manifest.write_bytes(properties)
        accept(Translator.from_preset, manifest.parent)

    properties = {name: value for name, value in json.loads(recorded).items() if name != "files"}
    return [parts["config.json"] + MODEL + json.dumps(properties).encode()], read


def request() -> tuple[list[bytes], Callable[[bytes], None]]:
    """The body of a request to the development server."""
    with atheris.instrument_imports(include=["keras_attn.serving"]):
        from aiohttp import web

        from keras_attn.serving.saved_model import SavedModel
    from tests.serving import served

    model = SavedModel(served.save(PLACE / "1"))

    def read(content: bytes) -> None:
        try:
            json.loads(model.predict(content, time.monotonic() + 5))
        except (web.HTTPBadRequest, web.HTTPGatewayTimeout) as error:
            if not error.text.startswith(("Expected", "The model cannot run this")):
                raise

    return list(hostile.REQUESTS), read


def mutate(content: bytes, most: int, seed: int) -> bytes:
    """Changes a value of a part that is JSON, or else bytes."""
    draw, parts = random.Random(seed), content.split(MODEL)
    place = draw.randrange(len(parts))
    try:
        if draw.random() < 0.7:
            parts[place] = json.dumps(hostile.mutated(json.loads(parts[place]), draw)).encode()
            return MODEL.join(parts)[:most]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        pass
    parts[place] = atheris.Mutate(parts[place], max(1, most - len(content) + len(parts[place])))
    return MODEL.join(parts)[:most]


TARGETS = {one.__name__: one for one in (tokenizer, marian_files, tfa_files, preset, request)}


def main() -> None:
    name, corpus, *options = sys.argv[1:]
    warnings.simplefilter("ignore")
    seeds, read = TARGETS[name]()
    for number, seed in enumerate(seeds):
        Path(corpus, f"seed-{number}").write_bytes(seed)
        read(seed)
    atheris.Setup([sys.argv[0], corpus, *options], read, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
