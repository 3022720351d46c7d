"""A model that is loaded or copied gets its weights without initial ones, and keeps its initializers."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_attn.backend import skip_initialization
from keras_attn.models import RNNSearch, copy_model
from keras_attn.saving.model_file import load_model

SIZES = {"units": 5, "embedding_size": 7, "readout_size": 11, "attention_units": 3}


def built(*, units=3, cls=keras.layers.Dense, **options) -> keras.layers.Layer:
    layer = cls(units, **options)
    layer.build((None, 4))
    return layer


class Table(keras.layers.Dense):
    """A layer of a user, which does not store what never changes."""

    def build(self, inputs_shape):
        super().build(inputs_shape)
        self.table = self.add_weight(shape=(2,), initializer="ones", trainable=False, name="table")

    def save_own_variables(self, store):
        store["0"], store["1"] = self.kernel, self.bias

    def load_own_variables(self, store):
        self.kernel.assign(store["0"])
        self.bias.assign(store["1"])


@pytest.fixture(autouse=True)
def counted_is_ours(monkeypatch):
    monkeypatch.setattr(Counted, "__module__", "keras_attn.layers.counted")


class Counted(keras.layers.Layer):
    """Has weights of dtypes that have no NaN, or none that NumPy knows."""

    def build(self, _):
        self.count = self.add_weight((2,), "ones", dtype="int32", trainable=False, name="count")
        self.half = self.add_weight(shape=(2,), initializer="ones", dtype="bfloat16", name="half")
        self.number = self.add_weight(shape=(), name="number")


def test_weights_are_not_a_number_and_initializers_stay():
    with skip_initialization():
        layer = built(kernel_initializer="he_normal", bias_initializer="ones")
        counted = Counted()
        counted.build(None)
        table = built(cls=Table)
    assert all(np.isnan(weight).all() for weight in layer.get_weights())
    assert layer.kernel_initializer.__class__ is keras.initializers.HeNormal
    assert np.isnan(keras.ops.convert_to_numpy(counted.number))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(counted.count), [1, 1])
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(keras.ops.cast(counted.half, "float32")), [1, 1])
    np.testing.assert_array_equal(built(bias_initializer="ones").get_weights()[1], np.ones(3))

    assert not any(np.isnan(weight).any() for weight in table.get_weights())


def test_keras_is_as_before_afterwards():
    add_weight = keras.layers.Layer.add_weight
    with skip_initialization(), skip_initialization():
        assert keras.layers.Layer.add_weight is not add_weight
    assert keras.layers.Layer.add_weight is add_weight


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the check is JAX's")
def test_where_jax_looks_for_nan_weights_are_initialized():
    import jax

    with jax.debug_nans(True), skip_initialization():
        assert not np.isnan(built().get_weights()[0]).any()


def test_keras_says_what_a_layer_lacks():
    class Lazy(keras.layers.Dense):
        def __init__(self, _):
            pass

    with skip_initialization(), pytest.raises(RuntimeError, match="super"):
        Lazy(3).add_weight(shape=(2,), name="number")


def test_other_threads_initialize():
    with skip_initialization(), ThreadPoolExecutor(1) as pool:
        assert not np.isnan(pool.submit(built).result().get_weights()[0]).any()


def test_within_a_distribution_weights_are_initialized(monkeypatch):
    monkeypatch.setattr(keras.distribution, "distribution", lambda: "one")
    with skip_initialization():
        assert not np.isnan(built().get_weights()[0]).any()


def test_an_error_ends_it():
    with pytest.raises(ValueError, match="positive"), skip_initialization():
        built(units=-1)
    assert not np.isnan(built().get_weights()[0]).any()


def test_copies_and_loaded_models_compute_no_initial_weights(tmp_path, monkeypatch):
    model = RNNSearch(31, 37, **SIZES)
    model.save(tmp_path / "model.keras")

    def called(*_, **__):
        raise AssertionError("An initializer was called.")

    for name in ("GlorotUniform", "Orthogonal", "RandomNormal", "RandomUniform", "Zeros", "Ones"):
        monkeypatch.setattr(getattr(keras.initializers, name), "__call__", called)
    with pytest.raises(AssertionError, match="was called"):
        RNNSearch(31, 37, **SIZES)
    for other in (copy_model(model, "copy"), load_model(tmp_path / "model.keras")):
        for one, expected in zip(other.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(one, expected)
        assert other.get_config() == model.get_config() | {"name": other.name}
