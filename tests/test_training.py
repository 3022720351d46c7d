"""`fit` with real batches: compilation counted, every way to compile, one seed one result."""

import functools
import json
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
    dropout = {"embedding_dropout": 0.2, "output_dropout": 0.2}
    model = RNNSearch(VOCABULARY, VOCABULARY, **SIZES, **dropout, initializer="glorot_uniform")
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


@pytest.fixture(scope="module")
def under_xla(tmp_path_factory):
    """The losses of three epochs in a process of its own, and the names of what XLA dumped: all that it compiled."""
    folder = tmp_path_factory.mktemp("dump")
    dump = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
    environment = {**os.environ, "XLA_FLAGS": dump, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    code = "from tests.test_training import trained; print(trained(jit_compile=True, epochs=3)[1]['loss'])"
    line, root = [sys.executable, "-c", code], Path(__file__).parents[1]
    done = subprocess.run(line, env=environment, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), [path.name for path in folder.glob("*before_optimizations.txt")]


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the other backends have one way each")
def test_tensorflow_with_and_without_xla_agree(under_xla):
    model, history = trained()
    assert not model.jit_compile
    losses = under_xla[0][:2], history["loss"]
    assert np.isfinite(losses).all()
    # Dropout draws other numbers under XLA: near, not equal.
    np.testing.assert_allclose(*losses, rtol=0.1)


def test_one_seed_gives_one_set_of_weights():
    (first, _), (second, _) = trained(), trained(run=1)
    for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="torch runs eagerly")
def test_compiles_at_most_once_a_bucket(under_xla):
    """TPUs need it to stay at one program a shape."""
    _, modules = under_xla
    steps = [name for name in modules if "train" in name or "one_step" in name]
    assert 0 < len(steps) <= 2, modules
