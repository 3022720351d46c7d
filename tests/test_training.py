"""`fit` with real batches: compilation counted, every way to compile, one seed one result."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn import ParallelDataset
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy
from keras_attn.models import RNNSearch

VOCABULARY = 23
SIZES = {"units": 7, "embedding_size": 11, "readout_size": 11, "attention_units": 13}


def dataset(seed=0, pairs=60):
    """Target = source reversed, 1 to 12 words, in 2 buckets."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(4, VOCABULARY, rng.integers(1, 13)).tolist() for _ in range(pairs)]
    return ParallelDataset(rows, [row[::-1] for row in rows], batch_size=8, bucket_boundaries=[7, 13], seed=seed)


@functools.cache
def trained(jit_compile="auto", epochs=2, run=0):
    """A model after some epochs, and the history. Each `run` begins anew, from the same seed."""
    keras.utils.set_random_seed(5)
    model = RNNSearch(VOCABULARY, VOCABULARY, **SIZES, initializer="glorot_uniform", output_dropout=0.2)
    model.compile(
        keras.optimizers.Adam(0.01, global_clipnorm=1.0),
        SmoothedCrossentropy(),
        weighted_metrics=[Perplexity(), TokenAccuracy()],
        jit_compile=jit_compile,
    )
    history = model.fit(dataset(), epochs=epochs, shuffle=False, verbose=0).history
    return model, history


def test_fit_learns_on_bucketed_batches(backend):
    _, history = trained()
    assert history["perplexity"][-1] < history["perplexity"][0] < 2 * VOCABULARY
    assert len(dataset().shapes) == 2


@pytest.mark.slow
def test_tensorflow_with_and_without_xla_agree(backend):
    if backend != "tensorflow":
        pytest.skip("the other backends have one way each")
    losses = [trained(jit_compile=jit_compile)[1]["loss"] for jit_compile in (True, False)]
    assert np.isfinite(losses).all()
    # Dropout draws other numbers under XLA: near, not equal.
    np.testing.assert_allclose(*losses, rtol=0.1)


@pytest.mark.slow
def test_one_seed_gives_one_set_of_weights():
    (first, _), (second, _) = trained(), trained(run=1)
    for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_compiles_at_most_once_a_bucket(backend, tmp_path):
    """XLA's own dump of what it compiled, counted: TPUs need it to stay at one program a shape."""
    if backend == "torch":
        pytest.skip("torch runs eagerly")
    dump = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    environment = {**os.environ, "XLA_FLAGS": dump, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    code = "from tests.test_training import trained; trained(jit_compile=True, epochs=3)"
    root = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=root, check=True, capture_output=True)
    modules = [path.name for path in tmp_path.glob("*before_optimizations.txt")]
    steps = [name for name in modules if "train" in name or "one_step" in name]
    assert 0 < len(steps) <= 2, modules
