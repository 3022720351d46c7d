"""A model that is loaded or copied gets its weights without initial ones, and keeps its initializers."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from keras import ops

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
    """An attention of a user, which does not store what never changes, and has a layer where Keras looks for none."""

    def build(self, query_shape, values_shape):
        super().build(query_shape, values_shape)
        self.table = self.add_weight(shape=(2,), initializer="ones", trainable=False, name="table")
        hidden = built(units=1, kernel_initializer="ones")
        self.hidden = lambda: hidden

    def save_own_variables(self, store):
        store["kernel"] = self.kernel

    def load_own_variables(self, store):
        self.kernel.assign(store["kernel"])


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
    count, half, number = (ops.cast(getattr(layers[0], name), "float32") for name in ("count", "half", "number"))
    assert np.isnan(ops.convert_to_numpy(number))
    for found in (count, half):
        np.testing.assert_array_equal(ops.convert_to_numpy(found), [1, 1])


def functional(layer, width=4) -> keras.Model:
    inputs = keras.Input((width,))
    return keras.Model(inputs, layer(inputs))


def test_weights_that_a_users_layer_does_not_store_are_initialized(tmp_path):
    model = RNNSearch(31, 37, **SIZES | {"attention": "table"})
    model.save(tmp_path / "model.keras")
    for other in (copy_model(model, "copy"), load_model(tmp_path / "model.keras")):
        attention = next(layer for layer in other.layers if hasattr(layer, "attention")).attention
        for own in (attention.table, attention.hidden().kernel):
            np.testing.assert_array_equal(ops.convert_to_numpy(own), np.ones(own.shape))
        for one, expected in zip(other.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(one, expected)


def test_a_functional_model_with_a_users_layer_is_copied():
    class Own(keras.layers.Dense):
        pass

    model = functional(keras.saving.register_keras_serializable("keras_attn_tests")(Own)(3))
    np.testing.assert_array_equal(copy_model(model, "copy").get_weights()[0], model.get_weights()[0])


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
def test_weights_are_initialized_where_jax_looks_for_nan():
    import jax

    with jax.debug_nans(True):
        assert not np.isnan(weights_while_built()[0]).any()


def test_weights_are_initialized_by_other_threads_and_within_a_distribution(monkeypatch):
    def build():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(built).result()

    assert not np.isnan(weights_while_built(build)[0]).any()
    monkeypatch.setattr(keras.distribution, "distribution", lambda: "one")
    assert not np.isnan(weights_while_built()[0]).any()


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


def test_copies_have_the_values_that_a_layer_derives_from_its_weights(rng):
    x = rng.normal(5, 2, size=(99, 3)).astype("float32")
    normalization = keras.layers.Normalization()
    normalization.adapt(x)
    model = functional(keras.Sequential([normalization, keras.layers.Dense(2)]), width=3)
    expected = model.predict_on_batch(x)
    for other in (copy_model(model, "copy"), average_weights([model, model]), rounded_model(model, "float16")):
        np.testing.assert_allclose(other.predict_on_batch(x), expected, rtol=1e-4, atol=1e-5)


def test_weights_that_a_layer_made_in_another_order_are_copied(rng):
    x = rng.normal(size=(2, 4)).astype("float32")
    model = functional(keras.layers.Dense(3))
    model.layers[1].quantize("float8")
    np.testing.assert_allclose(copy_model(model, "copy").predict_on_batch(x), model.predict_on_batch(x), rtol=1e-5)


def test_low_rank_parts_are_merged_in_a_copy(rng):
    model = RNNSearch(31, 37, **SIZES)
    dense = next(layer for layer in model.layers if type(layer) is keras.layers.Dense)
    dense.enable_lora(2)
    dense.lora_kernel_b.assign(rng.normal(size=dense.lora_kernel_b.shape))
    ids = {name: np.ones((1, 3), "int32") for name in ("encoder_token_ids", "decoder_token_ids")}
    copy = copy_model(model, "copy")
    assert len(copy.weights) == len(model.weights) - 2
    np.testing.assert_allclose(*(ops.convert_to_numpy(one(ids)) for one in (copy, model)), rtol=1e-4, atol=1e-5)
