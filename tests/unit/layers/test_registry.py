"""The registry of attention layers, and what a layer of one's own gets from its base."""

import re

import keras
import pytest
from keras import ops

import keras_attn as ka
from keras_attn.layers import get_attention


@ka.register_attention("mine")
class MyAttention(ka.layers.Attention):
    """Luong's concat without a hidden layer; its width is the model's `units`."""

    def __init__(self, units, *, initializer="he_normal", **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.initializer = keras.initializers.get(initializer)

    def build(self, query_shape, values_shape, **_):
        self.kernel = self.add_weight(name="kernel", shape=(values_shape[-1],), initializer="ones")

    def scores(self, query, keys):
        scores = ops.sum(keys * ops.cast(self.kernel, keys.dtype), axis=-1)  # (B, S)
        return scores if len(query.shape) == 2 else scores[:, None] + 0 * query[..., :1]  # (B, T, S)


def test_a_layer_is_found_by_name():
    layer = get_attention("mine", units=7, dtype="bfloat16")
    assert (type(layer), layer.units, layer.name, layer.compute_dtype) == (MyAttention, 7, "attention", "bfloat16")
    assert isinstance(ka.LuongAttention(layer).score, MyAttention)


def test_its_config_is_made_of_its_constructors_arguments():
    layer = MyAttention(7, initializer="zeros")
    registered = keras.saving.serialize_keras_object(layer)
    assert registered["registered_name"] == f"{__name__.partition('.')[0]}>MyAttention"
    again = get_attention(registered)
    assert (again.units, type(again.initializer)) == (7, keras.initializers.Zeros)
    assert again.get_config() == layer.get_config()
    assert keras.saving.get_registered_name(ka.DotAttention) == "keras_attn>DotAttention"


def test_an_attention_without_weights_needs_no_build():
    class Even(ka.layers.Attention):
        def scores(self, query, keys):
            return 0 * ops.matmul(query, ops.swapaxes(keys, 1, 2))

    layer = Even()
    layer.build_from_config({"input_shape": (None, None, 3)})  # as Keras wrote it without a `build`
    assert layer(ops.ones((2, 5, 3)), ops.ones((2, 4, 3)))[1].shape == (2, 5, 4)


def test_scores_of_another_shape_are_refused():
    class Kept(ka.layers.Attention):
        def scores(self, query, keys):
            return ops.sum(query[..., None, :] * keys, axis=-1, keepdims=True)

    with pytest.raises(ValueError, match=r"`scores` of Kept to return scores of shape \(2, S\)\. Received: .*4, 1\)"):
        Kept()(ops.ones((2, 3)), ops.ones((2, 4, 3)))


def test_names_of_others_and_what_is_no_attention_are_refused():
    with pytest.raises(ValueError, match="a name that no other attention layer has"):
        ka.register_attention("dot")(MyAttention)
    with pytest.raises(ValueError, match=r"a subclass of `keras_attn.layers.Attention`"):
        ka.register_attention("dense")(keras.layers.Dense)


def test_by_name_by_object_and_by_config():
    sentence = r"'local_p', 'location', .*'mine', .*'scaled_dot'.* Received: 'yours'"
    with pytest.raises(ValueError, match=sentence) as error:
        get_attention("yours")
    names = [name for name in re.findall(r"'(\w+)'", str(error.value)) if name not in ("mine", "yours")]
    assert len(names) >= 15
    for name in names:
        layer = get_attention(name, 13)
        assert get_attention(layer) is layer
        again = get_attention(keras.saving.serialize_keras_object(layer))
        assert again.get_config() == layer.get_config()


def test_a_constructor_argument_that_is_no_attribute_is_named():
    class Forgetful(ka.layers.Attention):
        def __init__(self, width, **kwargs):
            super().__init__(**kwargs)

    with pytest.raises(NotImplementedError, match="Received no attribute: width"):
        Forgetful(3).get_config()
