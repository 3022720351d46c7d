"""`fit` with batches of few static shapes: traced once, under XLA too, in the dataset's order; one seed, one result."""

import keras
import numpy as np
import pytest

from keras_attn import ParallelDataset
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch

VOCABULARY, BUCKETS = 23, [7, 13]
SIZES = {"units": 3, "embedding_size": 5, "readout_size": 4, "attention_units": 3}
on_tensorflow = keras.backend.backend() == "tensorflow"


class Recording(ParallelDataset):
    """Notes the indices of the batches that are read."""

    read: list[int]

    def __getitem__(self, index):
        self.read.append(index)
        return super().__getitem__(index)


def dataset() -> Recording:
    """Target = source reversed, 1 to 12 words, in 2 buckets."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(4, VOCABULARY, rng.integers(1, 13)).tolist() for _ in range(60)]
    data = Recording(rows, [row[::-1] for row in rows], batch_size=8, bucket_boundaries=BUCKETS)
    data.read = []
    return data


def trained(dropout=0.2, jit_compile="auto", epochs=2, **options):
    """A model after some epochs, the history, the shapes for which its loss was traced, and the data."""
    keras.utils.set_random_seed(5)
    model = RNNSearch(VOCABULARY, VOCABULARY, **SIZES, output_dropout=dropout, initializer="glorot_uniform")
    traced, loss, data = [], SmoothedCrossentropy(0.0), dataset()

    def counted(y_true, y_pred):
        traced.append(tuple(y_pred.shape[:2]))
        return loss(y_true, y_pred)

    model.compile(keras.optimizers.Adam(0.01), counted, jit_compile=jit_compile)
    history = model.fit(data, epochs=epochs, verbose=0, **options).history["loss"]
    return model, history, traced, data


@pytest.fixture(scope="module")
def run():
    return trained()


def test_each_shape_is_traced_once_and_the_loss_falls(run):
    _, history, traced, data = run
    assert history[1] < history[0] < np.log(2 * VOCABULARY)
    assert len(data.shapes) == len(BUCKETS)
    if keras.backend.backend() != "torch":
        assert len(traced) == 1 if on_tensorflow else len(traced) <= 1 + len(BUCKETS), "Keras on JAX traces one more"


def test_one_seed_gives_one_set_of_weights(run):
    for a, b in zip(run[0].get_weights(), trained()[0].get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_models_keep_the_order_of_a_dataset_unless_another_is_chosen(run):
    for (_, _, _, data), chosen in ((run, False), (trained(epochs=1, shuffle=True), True)):
        order = data.read[-len(data) :]  # Keras looks at some batches beforehand
        assert (order == list(range(len(data)))) != chosen
        assert sorted(order) == list(range(len(data)))


@pytest.mark.skipif(not on_tensorflow, reason="the other backends have one way each")
def test_tensorflow_with_and_without_xla_agree(run, monkeypatch):
    """With rows of unknown length, and gradients of all kernels after the loop."""
    assert not run[0].jit_compile
    monkeypatch.setattr("keras_attn.backend.tensorflow_loops.LEAST_WIDTH", 1)
    plain, compiled = (trained(dropout=0.0, jit_compile=jit_compile) for jit_compile in ("auto", True))
    assert compiled[0].jit_compile
    np.testing.assert_allclose(plain[1], compiled[1], rtol=1e-4)
    assert len(compiled[2]) == 1
