"""Arguments and configurations of every model."""

import functools
import inspect
import json

import keras
import pytest

from keras_attn import models
from tests.contracts.model_rows import MODELS, ONE_EACH, PATH, make

built = functools.cache(make)


def parameters(cls):
    found = inspect.signature(cls.__init__).parameters.values()
    return {p.name: p.default for p in found if p.name != "self" and p.kind is not inspect.Parameter.VAR_KEYWORD}


@pytest.mark.parametrize("name", MODELS)
def test_arguments_are_attributes_and_make_up_the_config(name):
    model, (cls, given) = built(name), MODELS[name]
    shared = parameters(models.AttentionSeq2Seq) | parameters(models.RecurrentSeq2Seq)
    own = parameters(cls) | {argument: shared[argument] for argument in cls.shared_arguments}
    for argument, default in own.items():
        expected = {"initializer": "glorot_uniform"}.get(argument, given.get(argument, default))
        if expected is not inspect.Parameter.empty and not isinstance(expected, keras.layers.Layer):
            assert getattr(model, argument) == expected, argument
    config = model.get_config()
    assert parameters(cls).keys() | {"name", "trainable", "dtype"} <= config.keys()
    again = cls.from_config(config)
    assert json.dumps(again.get_config()) == json.dumps(config)
    weights = {weight.path: list(weight.shape) for weight in again.weights if "seed_generator" not in weight.path}
    assert weights == json.loads(PATH.read_text())[name], "names by which saved weights are found"


def test_the_rows_are_the_public_models():
    public = [one for one in vars(models).values() if inspect.isclass(one) and issubclass(one, models.Seq2Seq)]
    bases = {models.Seq2Seq, models.AttentionSeq2Seq, models.RecurrentSeq2Seq}
    assert {cls for cls, _ in MODELS.values()} == {*public} - bases
    assert json.loads(PATH.read_text()).keys() == MODELS.keys()


@pytest.mark.parametrize("name", [*ONE_EACH, "ensemble"])
def test_arguments_of_every_model(name):
    cls = MODELS[name][0]
    names = [*parameters(cls), "name", "trainable", "dtype"]
    names += ["source_special_ids", "target_special_ids", "mask_padding", "source_length", *cls.shared_arguments]
    with pytest.raises(ValueError, match=r"Expected arguments among: .*\. Received: embeding_dropout") as error:
        make(name, embeding_dropout=0.9)
    assert str(error.value).split("among: ")[1].split(". Received")[0].split(", ") == names
    model = make(name, name="mine", trainable=False, dtype=keras.DTypePolicy("mixed_float16"))
    assert not model.trainable_weights
    assert len({weight.path for weight in model.weights}) == len(model.weights), "Keras clears gradients by it on torch"
    config = model.get_config()
    assert (config["name"], config["trainable"], model.dtype_policy.name) == ("mine", False, "mixed_float16")
    again = cls.from_config(config)
    assert (again.dtype_policy.name, again.trainable) == ("mixed_float16", False)


@pytest.mark.parametrize("jit_compile", [True, False])
def test_jit_compile_is_the_users_to_choose(jit_compile):
    model = built("rnnsearch")
    model.compile("adam", "mse", jit_compile=jit_compile)
    assert model.jit_compile is jit_compile
