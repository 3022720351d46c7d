"""The Tacotron of docs/decoders.md, trained until it speaks."""

import numpy as np
import pytest
from keras import ops

from tests.layers.test_steps import page

pytestmark = pytest.mark.nightly


def speech(rng, rows=256, characters=4, letters=5, width=4):
    """Characters (B, S); and frames (B, T, F), three for each character, with their numbers (B,)."""
    sounds = np.random.default_rng(0).normal(size=(letters, 3, width)).astype("float32")
    counts = rng.integers(2, characters + 1, rows)
    text = rng.integers(1, letters + 1, (rows, characters)) * (np.arange(characters) < counts[:, None])
    frames = sounds[text - 1].reshape(rows, 3 * characters, width)
    return text.astype("int32"), frames * (np.arange(3 * characters) < 3 * counts[:, None])[..., None], 3 * counts


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
