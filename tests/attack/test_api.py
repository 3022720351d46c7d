"""The Python API under hostile input: every case is refused with a sentence, or works as documented."""

import dataclasses
import math
import multiprocessing
import re
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn.search import SampleOptions, SearchOptions
from keras_attn.text import END_ID, UNKNOWN_ID
from keras_attn.translation import Translator
from tests import adversarial
from tests.models import test_golden
from tests.translation.test_scoring import word_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.by_turns]

ROOT = Path(__file__).parents[2]
SENTENCE = re.compile(r"^Expected .+ Received\b", re.DOTALL)
LINES = ["s1 s2 s3 s4", "s20 s6", "", "s7 s8 s9", "s11"]
EVERY_CASE = keras.backend.backend() == "torch"  # the others compile: there the cases are fewer


@pytest.fixture(scope="module")
def translator():
    tokenizers = word_tokenizer("s", test_golden.SOURCE), word_tokenizer("t", test_golden.TARGET)
    return Translator(test_golden.model_with(test_golden.load()[2]), *tokenizers, max_length_constant=3)


def refused(call):
    """Calls what has to be refused in the words of a sentence, within a second."""
    started = time.monotonic()
    with pytest.raises(ValueError, match=SENTENCE):
        call()
    assert time.monotonic() - started < 1


# Options.

NUMBERS = [math.nan, math.inf, -math.inf, -1, 0, 1, 3, np.int64(3), np.float32(0.5), 1.5, 2**31, 10**30, Fraction(1, 2)]
VALUES = [*NUMBERS, True, None, "abc", "3", b"3", [], [1], np.array([1, 2]), 1j]


def is_whole(value, lowest, highest=2**31 - 1):
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and lowest <= value <= highest


def is_number(value, is_positive=False, highest=math.inf):
    if not isinstance(value, int | float | np.number | Fraction) or isinstance(value, complex):
        return False
    return (value > 0 if is_positive else value >= 0) and value < math.inf and value <= highest


VALID = {
    "length_penalty": is_number,
    "normalization": lambda value: False,  # none of the values is a name
    "max_length": lambda value: value is None or is_whole(value, 1, 100_000),
    "max_length_ratio": lambda value: value is None or is_number(value, is_positive=True),
    "min_length": lambda value: value is None or is_whole(value, 1, 100_000),
    "min_length_ratio": lambda value: value is None or is_number(value, is_positive=True),
    "no_repeat_ngram_size": lambda value: is_whole(value, 0),
    "batch_size": lambda value: is_whole(value, 1),
    "tokens_per_batch": lambda value: is_whole(value, 1),
    "beam_size": lambda value: is_whole(value, 1),
    "n_best": lambda value: value is None or is_whole(value, 1, 5),
    "coverage_penalty": is_number,
    "early_stopping": lambda value: isinstance(value, bool),
    "num_samples": lambda value: is_whole(value, 1),
    "temperature": lambda value: is_number(value, is_positive=True),
    "top_k": lambda value: is_whole(value, 0),
    "top_p": lambda value: is_number(value, is_positive=True, highest=1),
}


@pytest.mark.once
@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("name", VALID)
def test_an_option_is_valid_or_refused(translator, name, value):
    fields = {field.name for field in dataclasses.fields(SearchOptions)}
    method = translator.generate if name in fields else translator.sample
    assert name in fields or name in {field.name for field in dataclasses.fields(SampleOptions)}
    if VALID[name](value):
        assert method([], **{name: value}) == []
    else:
        refused(lambda: method([], **{name: value}))


@pytest.mark.once
@pytest.mark.parametrize("value", [value for value in VALUES if not isinstance(value, np.ndarray)], ids=repr)
@pytest.mark.parametrize("name", ["texts", "prefixes", "row_ids", "banned_tokens", "replace_unknown", "seed"])
def test_other_arguments_are_valid_or_refused(translator, name, value):
    valid = {
        "texts": isinstance(value, list) and not value,
        "prefixes": value is None,
        "row_ids": value is None or (isinstance(value, list | bytes) and len(value) == 1),
        "banned_tokens": isinstance(value, list),
        "replace_unknown": isinstance(value, bool),
        "seed": isinstance(value, int | np.integer) and not isinstance(value, bool),
    }[name]
    method = translator.sample if name in ("row_ids", "seed") else translator.generate
    arguments = {"texts": ["s1"], "max_length": 3} | {name: value}
    if valid:
        assert len(method(**arguments)) == len(arguments["texts"])
    else:
        refused(lambda: method(**arguments))


# Texts and ids.


@pytest.mark.once
@pytest.mark.parametrize("start", range(0, 48, 8))
def test_hostile_lines_are_translated_as_if_alone(translator, start):
    """Eight lines a case; what is no Unicode is refused."""
    lines = [line.decode(errors="surrogateescape") for line in adversarial.lines(48, seed=1)[start : start + 8]]
    valid = [line for line in lines if line.isprintable() or not re.search("[\udc80-\udcff]", line)]
    if len(valid) < len(lines):
        refused(lambda: translator.generate(lines, max_length=6))
    found = translator.generate(valid, beam_size=2, max_length=6)
    assert [bool(t.token_ids) for t in found] == [
        bool(line.strip()) and bool(t.source_tokens) for line, t in zip(valid, found, strict=True)
    ]
    assert all(t.token_ids == () or math.isfinite(t.score) for t in found)
    again = translator.generate(valid[::-1], beam_size=2, max_length=6)[::-1]  # no new shape to compile
    assert [t.text for t in again] == [t.text for t in found]


@pytest.mark.once
@pytest.mark.parametrize("seed", range(24))
def test_ids_are_scored_or_refused(translator, seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(-1, test_golden.TARGET + 2, rng.integers(0, 4)).tolist() + [END_ID] * int(rng.integers(0, 2))
    is_whole = (
        bool(ids) and ids[-1] == END_ID and all(i == UNKNOWN_ID or END_ID < i < test_golden.TARGET for i in ids[:-1])
    )
    kind = (list, tuple, np.array)[seed % 3]
    if is_whole:
        (scored,) = translator.score(["s1 s2"], [kind(ids)])
        assert list(scored.token_ids) == ids
        assert math.isfinite(scored.score)
    else:
        refused(lambda: translator.score(["s1 s2"], [kind(ids)]))


# Weights that are not finite.


PATHS = sorted(test_golden.load()[2])


@pytest.mark.parametrize(
    ("path", "value"),
    [(path, math.nan) for path in (PATHS if EVERY_CASE else PATHS[::5])]
    + [(path, value) for path in PATHS[::5] for value in (math.inf, -math.inf)],
)
def test_weights_that_are_not_finite_are_named(translator, path, value):
    """NaN reaches the logits; an infinite bias may only close a gate, and then all is finite."""
    weight = next(w for w in translator.model.weights if w.path == path)
    good, error = keras.ops.convert_to_numpy(weight), ""
    weight.assign(np.full(good.shape, value))
    try:
        found = translator.generate(LINES, beam_size=2)
    except ValueError as raised:
        error = str(raised)
    weight.assign(good)
    if error or math.isnan(value):
        assert re.match(f"Expected a model with finite logits. Received: .* not finite: {path}", error)
    else:
        assert all(math.isfinite(t.score) for t in found)
    assert all(math.isfinite(t.score) for t in translator.generate(LINES, beam_size=2))


# Processes.


@pytest.mark.parametrize("imported", ["keras_attn", "keras_attn.models"], ids=["without Keras", "with Keras"])
def test_a_process_forked_after_the_import_translates(translator, imported, tmp_path):
    """After a model is loaded, TensorFlow's and JAX's threads are missing in the new process, as is documented."""
    translator.save_to_preset(tmp_path / "preset")
    expected = translator.generate(["s1 s2"], beam_size=2)[0].text
    code = f"""
import os, {imported}
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
from keras_attn import Translator
translation, = Translator.from_preset({str(tmp_path / "preset")!r}).generate(["s1 s2"], beam_size=2)
os._exit(0 if translation.text == {expected!r} else 5)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_spawned_process_receives_a_translator(translator):
    expected = translator.generate(["s1 s2"], beam_size=2)[0].text
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(translate_one, (translator,)).get(timeout=120) == expected


def translate_one(translator):
    return translator.generate(["s1 s2"], beam_size=2)[0].text
