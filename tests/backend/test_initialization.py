"""A model that is loaded or copied gets its weights without initial ones, and keeps its initializers."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_attn import GeneralAttention, register_attention
from keras_attn.backend import without_initial_weights
from keras_attn.models import RNNSearch, average_weights, copy_model
from keras_attn.saving import rounded_model
from keras_attn.saving.model_file import load_model

SIZES = {"units": 5, "embedding_size": 7, "readout_size": 11, "attention_units": 3}


def built(cls=keras.layers.Dense, *, units=3, **options) -> keras.layers.Layer:
    layer = cls(units, **options)
    layer.build((None, 4))
    return layer


def weights_while_built(make=built, **options) -> list[np.ndarray]:
    """A layer's weights within a `build` of `without_initial_weights`, the first time it is called."""
    found = []

    def build():
        found.append(make(**options).get_weights())

    without_initial_weights(build)
    return found[0]


class Counted(keras.layers.Layer):
    """Has weights of dtypes that have no NaN, or none that NumPy knows."""

    def __init__(self, units):
        super().__init__()

    def build(self, _):
        self.count = self.add_weight((2,), "ones", dtype="int32", trainable=False, name="count")
        self.half = self.add_weight(shape=(2,), initializer="ones", dtype="bfloat16", name="half")
        self.number = self.add_weight(shape=(), name="number")


@register_attention("table")
class Table(GeneralAttention):
    """An attention of a user, which does not store what never changes."""

    def build(self, query_shape, values_shape):
        super().build(query_shape, values_shape)
        self.table = self.add_weight(shape=(2,), initializer="ones", trainable=False, name="table")

    def save_own_variables(self, store):
        store["kernel"] = self.kernel

    def load_own_variables(self, store):
        self.kernel.assign(store["kernel"])


class Hidden:
    """Keras does not look for layers in it."""

    def __init__(self):
        self.layer = built(units=1, kernel_initializer="ones")


@register_attention("hiding")
class Hiding(GeneralAttention):
    """An attention of a user with a layer that is not saved."""

    def build(self, query_shape, values_shape):
        super().build(query_shape, values_shape)
        self.hidden = Hidden()


def test_weights_are_not_a_number_and_initializers_stay():
    layers = []
    weights = weights_while_built(
        lambda: layers.append(built(kernel_initializer="he_normal", bias_initializer="ones")) or layers[0]
    )
    assert all(np.isnan(weight).all() for weight in weights)
    assert layers[0].kernel_initializer.__class__ is keras.initializers.HeNormal
    np.testing.assert_array_equal(built(bias_initializer="ones").get_weights()[1], np.ones(3))


def test_other_dtypes_are_initialized():
    layers = []
    weights_while_built(lambda: layers.append(built(Counted)) or built())
    count, half, number = (
        keras.ops.cast(one, "float32") for one in (layers[0].count, layers[0].half, layers[0].number)
    )
    assert np.isnan(keras.ops.convert_to_numpy(number))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(count), [1, 1])
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(half), [1, 1])


@pytest.mark.parametrize("attention", ["table", "hiding"])
def test_what_a_users_layer_does_not_store_is_initialized(attention, tmp_path):
    model = RNNSearch(31, 37, **SIZES | {"attention": attention})
    model.save(tmp_path / "model.keras")
    ids = {name: np.ones((1, 3), "int32") for name in ("encoder_token_ids", "decoder_token_ids")}
    expected = model.predict_on_batch(ids)
    for other in (copy_model(model, "copy"), load_model(tmp_path / "model.keras")):
        np.testing.assert_allclose(other.predict_on_batch(ids), expected, rtol=1e-5, atol=1e-6)
        decoder = next(layer for layer in other.layers if hasattr(layer, "attention"))
        own = decoder.attention.table if attention == "table" else decoder.attention.hidden.layer.kernel
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(own), np.ones(own.shape))


def test_keras_is_as_before_afterwards():
    add_weight = keras.layers.Layer.add_weight

    def build():
        seen.append(keras.layers.Layer.add_weight)

    seen = []
    without_initial_weights(lambda: without_initial_weights(build))
    assert seen[0] is not add_weight
    with pytest.raises(ValueError, match="positive"):
        without_initial_weights(lambda: built(units=-1))
    assert keras.layers.Layer.add_weight is add_weight
    assert not np.isnan(built().get_weights()[0]).any()


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the check is JAX's")
def test_where_jax_looks_for_nan_weights_are_initialized():
    import jax

    with jax.debug_nans(True):
        assert not np.isnan(weights_while_built()[0]).any()


def test_within_a_distribution_weights_are_initialized(monkeypatch):
    monkeypatch.setattr(keras.distribution, "distribution", lambda: "one")
    assert not np.isnan(weights_while_built()[0]).any()


def test_other_threads_initialize():
    def build():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(built).result()

    assert not np.isnan(weights_while_built(build)[0]).any()


def test_keras_says_what_a_layer_lacks():
    class Lazy(keras.layers.Dense):
        def __init__(self):
            pass

    with pytest.raises(RuntimeError, match="super"):
        without_initial_weights(lambda: Lazy().add_weight(shape=(2,), name="number"))


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


def test_copies_have_what_a_layer_derives_from_its_weights(rng):
    x = rng.normal(5, 2, size=(99, 3)).astype("float32")
    inputs = keras.Input((3,))
    normalization = keras.layers.Normalization()
    normalization.adapt(x)
    model = keras.Model(inputs, keras.layers.Dense(2)(normalization(inputs)))
    expected = model.predict_on_batch(x)
    for other in (copy_model(model, "copy"), average_weights([model, model]), rounded_model(model, "float16")):
        np.testing.assert_allclose(other.predict_on_batch(x), expected, rtol=1e-4, atol=1e-5)


def test_a_layer_that_made_its_weights_in_another_order_is_copied(rng):
    x = rng.normal(size=(2, 4)).astype("float32")
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    model.layers[1].quantize("float8")
    np.testing.assert_allclose(copy_model(model, "copy").predict_on_batch(x), model.predict_on_batch(x), rtol=1e-5)


def test_low_rank_parts_are_merged_in_a_copy(rng):
    model = RNNSearch(31, 37, **SIZES)
    dense = next(layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Dense))
    dense.enable_lora(2)
    dense.lora_kernel_b.assign(rng.normal(size=dense.lora_kernel_b.shape))
    ids = {name: np.ones((1, 3), "int32") for name in ("encoder_token_ids", "decoder_token_ids")}
    copy = copy_model(model, "copy")
    assert len(copy.weights) == len(model.weights) - 2
    np.testing.assert_allclose(copy.predict_on_batch(ids), model.predict_on_batch(ids), rtol=1e-4, atol=1e-5)
