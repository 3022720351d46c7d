"""`unroll_steps`: what is fed, where it stops, its gradients, scheduled sampling, and the page's model of frames."""

import re
import types
from pathlib import Path

import numpy as np
import pytest
from keras import ops

from keras_attn import ScheduledSampler, ScheduledSampling, unroll_steps
from tests.gradients import gradients

B, S, T, F = 3, 5, 7, 2
PAGE = Path(__file__).parents[2] / "docs" / "decoders.md"


def accumulate(x, memory, state):
    """Adds what it reads and the memory to its state, which is its output."""
    total = state["total"] + x + memory  # (B, F)
    return {"value": total, "sum": ops.sum(total, axis=-1)}, {"total": total, "count": state["count"] + 1}


@pytest.fixture
def parts(rng):
    return {
        "first": rng.normal(size=(B, F)).astype("float32"),
        "memory": rng.normal(size=(B, F)).astype("float32"),
        "targets": rng.normal(size=(B, T, F)).astype("float32"),
        "own": rng.random((B, T)) < 0.5,
    }


def start():
    return {"total": ops.zeros((B, F)), "count": ops.zeros((B,), "int32")}


def by_hand(parts, feed):
    """(B, T, F), with `feed(output, t)` as the input of step t + 1."""
    x, total, outputs = parts["first"], 0.0, []
    for t in range(T):
        total = total + x + parts["memory"]
        outputs.append(total)
        x = feed(total, t)
    return np.stack(outputs, axis=1)


WAYS = {
    "targets": ({}, lambda parts: lambda output, t: parts["targets"][:, t]),
    "own": (
        {"length": T, "targets": None, "next_input": lambda output, _: output["value"]},
        lambda parts: lambda output, t: output,
    ),
    "either": (
        {"next_input": lambda output, target: ops.where(target[1][:, None], output["value"], target[0])},
        lambda parts: lambda output, t: np.where(parts["own"][:, t, None], output, parts["targets"][:, t]),
    ),
    "a function of both": (
        {"next_input": lambda output, target: 0.5 * output["value"] - target},
        lambda parts: lambda output, t: 0.5 * output - parts["targets"][:, t],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_feed_equals_a_loop_by_hand(parts, way):
    options, feed = WAYS[way]
    targets = (parts["targets"], parts["own"]) if way == "either" else parts["targets"]
    options = {"targets": targets, **options}
    outputs, lengths, state = unroll_steps(accumulate, parts["first"], parts["memory"], start(), **options)
    expected = by_hand(parts, feed(parts))
    np.testing.assert_allclose(ops.convert_to_numpy(outputs["value"]), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(outputs["sum"]), expected.sum(-1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ops.convert_to_numpy(state["total"]), expected[:, -1], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ops.convert_to_numpy(lengths), [T] * B)


def test_a_row_stops_after_the_step_that_says_so():
    first, memory = np.zeros((B, F), "float32"), np.array([[1.0, 1.0], [2.0, 2.0], [0.1, 0.1]], "float32")
    outputs, lengths, state = unroll_steps(
        accumulate,
        first,
        memory,
        start(),
        length=T,
        next_input=lambda output, _: 0 * output["value"],
        stop=lambda output: output["sum"] > 7.9,
    )
    np.testing.assert_array_equal(ops.convert_to_numpy(lengths), [4, 2, T])
    np.testing.assert_array_equal(ops.convert_to_numpy(state["count"]), [4, 2, T])
    expected = np.arange(1, T + 1) * memory[:, :1]  # (B, T)
    expected *= np.arange(T) < np.array([4, 2, T])[:, None]
    np.testing.assert_allclose(ops.convert_to_numpy(outputs["value"])[..., 0], expected, rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients_flow_through_outputs_that_are_fed_back(parts, jit_compile):
    """total_t = 2 total_{t-1} + m, so that the last one's derivative by the first input is 2^(T-1)."""

    def last(first, memory):
        outputs, _, _ = unroll_steps(
            accumulate, first, memory, start(), length=T, next_input=lambda output, _: output["value"]
        )
        return ops.sum(outputs["value"][:, -1])

    by_first, by_memory = gradients(last, parts["first"], parts["memory"], jit_compile=jit_compile)
    np.testing.assert_allclose(by_first, np.full((B, F), 2.0 ** (T - 1)), rtol=1e-6)
    np.testing.assert_allclose(by_memory, np.full((B, F), 2.0**T - 1), rtol=1e-6)


def drawn(sampler, rows=400, times=1, **options):
    frames = np.zeros((rows, T, F), "float32")
    return [ops.convert_to_numpy(sampler(frames, **options)) for _ in range(times)]


def test_a_sampler_draws_each_step_of_each_row_by_itself_and_as_its_seed_says():
    sampler, again = (ScheduledSampler(ScheduledSampling("constant", k=0.75, seed=3)) for _ in range(2))
    (first, second), (other,) = drawn(sampler, times=2, training=True), drawn(again, training=True)
    assert (first.dtype, first.shape) == (bool, (400, T))
    np.testing.assert_array_equal(first, other)
    np.testing.assert_allclose(first.mean(), 0.25, atol=0.04)  # 2,800 draws: five standard deviations
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.1
    np.testing.assert_allclose(np.corrcoef(first.T), np.eye(T), atol=0.25)
    config = sampler.get_config()
    assert ScheduledSampler.from_config(config).get_config() == config


def test_a_sampler_draws_in_training_alone():
    sampler = ScheduledSampler(1.0)
    assert not drawn(sampler)[0].any()
    assert int(sampler.iterations) == 0
    assert drawn(sampler, training=True)[0].all()
    assert int(sampler.iterations) == 1
    sampler.follow(types.SimpleNamespace(iterations=3, gradient_accumulation_steps=2))  # an optimizer from a file
    assert int(sampler.iterations) == 3


def page():
    """The names that the page's Python defines."""
    names = {}
    exec("\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), flags=re.M | re.S)), names)
    return names


def test_the_pages_tacotron_is_trained_and_generates(rng):
    """At night it is trained until it speaks."""
    names, characters = page(), rng.integers(1, 6, (4, 3)).astype("int32")
    model = names["Tacotron"](characters=6, frame_width=2, units=5, scheduled_sampling=0.5)
    frames, lengths = rng.normal(size=(4, 5, 2)).astype("float32"), np.array([5, 3, 5, 2])
    losses = names["train"](model, characters, frames, lengths, epochs=2).history["loss"]
    assert np.isfinite(losses).all()
    assert int(model.sampler.iterations) == 2
    written, found = (ops.convert_to_numpy(x) for x in model.generate(characters, max_length=7))
    assert written.shape == (4, 7, 2)
    np.testing.assert_array_equal(written[np.arange(7) >= found[:, None]], 0)


def speech(rng, rows=256, characters=4, letters=5, width=4):
    """Characters (B, S); and frames (B, T, F), three for each character, with their numbers (B,)."""
    sounds = np.random.default_rng(0).normal(size=(letters, 3, width)).astype("float32")
    counts = rng.integers(2, characters + 1, rows)
    text = rng.integers(1, letters + 1, (rows, characters)) * (np.arange(characters) < counts[:, None])
    frames = sounds[text - 1].reshape(rows, 3 * characters, width)
    return text.astype("int32"), frames * (np.arange(3 * characters) < 3 * counts[:, None])[..., None], 3 * counts


@pytest.mark.nightly
def test_the_pages_tacotron_speaks(rng):
    """Trained on given frames, then on its own, too, it writes those of new sentences and stops after them."""
    names = page()
    schedule = "linear,k=2,c=0.0025,minimum=0.5,seed=1"  # 0 for 400 updates
    model = names["Tacotron"](characters=6, frame_width=4, units=32, scheduled_sampling=schedule)
    characters, frames, lengths = speech(rng)
    losses = names["train"](model, characters, frames, lengths, epochs=70).history["loss"]
    assert np.isfinite(losses).all()
    assert int(model.sampler.iterations) == 560
    assert 0.39 < float(model.sampler.probability) < 0.41
    characters, frames, lengths = speech(rng, rows=32)
    written, found = (ops.convert_to_numpy(x) for x in model.generate(characters, max_length=20))
    assert (found == lengths).mean() > 0.9
    same = found == lengths
    assert np.square(written[same, :12] - frames[same]).mean() < 0.1 * np.square(frames).mean()
