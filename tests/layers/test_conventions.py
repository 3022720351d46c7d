"""Keras' conventions, for every public layer: the list is read from `keras_attn.layers`, so that none is forgotten."""

import inspect
import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn.layers import half_precision_safe
from keras_attn.layers.layer import Layer, constructor_arguments, keras_layer_arguments

pytestmark = pytest.mark.by_turns

B, T, S, E, H, M, A = 2, 3, 5, 7, 11, 13, 17
# These tests sum outputs. `PointerGenerator` has log-probabilities, in part -inf (see test_pointer.py), as has
# `HardAlignment` (see test_hard_alignment.py), `ScheduledSampler` booleans (see test_steps.py), `CoverageLoss` a loss
# (see test_coverage.py). For cells, which have states, and their stacks see test_cells.py and test_context_gate.py.
CELLS = (ka.DecoderStack, ka.DeepTransitionCell, ka.LayerNormGRUCell, ka.LayerNormLSTMCell, ka.ResidualCells)
OTHERS = (ka.layers.Attention, ka.CoverageLoss, ka.layers.HardAlignment, ka.layers.PointerGenerator)
APART = (*OTHERS, *CELLS, ka.ContextGateCell, ka.layers.ScheduledSampler)
PUBLIC = {
    name: member
    for name, member in vars(ka.layers).items()
    if inspect.isclass(member) and issubclass(member, keras.layers.Layer) and member not in APART
}


def gru(dtype, units=H):
    return keras.layers.GRUCell(units, recurrent_initializer=half_precision_safe("orthogonal", dtype), dtype=dtype)


def stack(dtype):
    orthogonal = half_precision_safe("orthogonal", dtype)
    lstm = keras.layers.LSTMCell(4, recurrent_initializer=orthogonal, dtype=dtype)
    return keras.layers.StackedRNNCells([lstm, gru(dtype, 6)], dtype=dtype)


# The arguments of each layer, for a dtype: first the plainest, then others that make further weights or sub-layers.
ARGUMENTS = {
    "AttentionDecoder": [
        lambda dtype: {"cell": gru(dtype), "attention": ka.BahdanauAttention(A, dtype=dtype)},
        lambda dtype: {
            "cell": stack(dtype),
            "attention": ["general", ka.BahdanauAttention(A, dtype=dtype)],
            "attend": "after",
            "attentional": ka.AttentionalLayer(A, dtype=dtype),
            "input_feeding": True,
            "dropout": 0.0,
        },
        lambda dtype: {
            "cell": gru(dtype),
            "attention": ka.BahdanauAttention(A, dtype=dtype),
            "attend": "between",
            "second_cell": gru(dtype),
        },
        lambda dtype: {
            "cell": gru(dtype),
            "attention": ka.BahdanauAttention(A, dtype=dtype),
            "attend": "after",
            "attentional": "context",
            "input_feeding": True,
            "output_attention": False,
            "cell_input": keras.layers.Dense(E, dtype=dtype),
        },
    ],
    "AttentionalLayer": [lambda _: {"units": A}, lambda _: {"units": A, "use_bias": True}],
    "BahdanauAttention": [
        lambda _: {"units": A},
        lambda _: {"units": A, "normalize": True, "query_initializer": "zeros"},
    ],
    "BahdanauMonotonicAttention": [
        lambda _: {"units": A, "normalize": True, "sigmoid_noise": 1.0, "inference_mode": "hard", "chunk_size": 2},
    ],
    "BiGRUEncoder": [lambda _: {"units": H}, lambda _: {"units": H, "num_layers": 2, "dropout": 0.3}],
    "ConcatAttention": [lambda _: {}, lambda _: {"units": A}],
    "ConcatenatedOutput": [lambda _: {}],
    "CosineAttention": [lambda _: {}],
    "CoverageAttention": [lambda _: {"units": A, "max_fertility": 2.0, "use_bias": False, "normalize": True}],
    "DeepOutput": [lambda _: {"units": A}, lambda _: {"units": A, "activation": "tanh", "use_bias": False}],
    "DotAttention": [lambda _: {}],
    "PairReadout": [lambda _: {"units": A}],
    "FixedContextDecoder": [
        lambda dtype: {"cell": gru(dtype)},
        lambda dtype: {"cell": stack(dtype), "projection": keras.layers.Dense(A, dtype=dtype)},
    ],
    "GeneralAttention": [lambda _: {}, lambda _: {"use_scale": True, "kernel_initializer": "he_normal"}],
    "GeneralMonotonicAttention": [lambda _: {"use_scale": True}],
    "LayerNormAttention": [lambda _: {"units": A, "epsilon": 1e-9}],
    "LayerNormOutput": [lambda _: {"units": A, "activation": "tanh"}],
    "LocalMonotonicAttention": [lambda _: {}, lambda _: {"score": "location", "window": 1}],
    "LocalPredictiveAttention": [
        lambda _: {},
        lambda dtype: {"score": ka.ConcatAttention(A, dtype=dtype), "window": 1},
    ],
    "LocationAttention": [lambda _: {}, lambda _: {"max_length": 3}],
    "LocationSensitiveAttention": [
        lambda _: {"units": A, "filters": 2, "kernel_size": 3, "cumulative": False, "normalizer": "sparsemax"},
    ],
    "LuongAttention": [lambda _: {}, lambda _: {"score": "cosine"}],
    "MultiHeadAttention": [
        lambda _: {"num_heads": 1},
        lambda dtype: {"num_heads": 3, "head_units": 5, "score": ka.BahdanauAttention(A, dtype=dtype)},
    ],
    "NeuralCoverageAttention": [lambda _: {"units": A, "coverage_units": 3}],
    "OutputBias": [lambda _: {}],
    "RNNEncoder": [
        lambda dtype: {"cell": gru(dtype), "reverse": True},
        lambda dtype: {"cell": stack(dtype), "backward_cell": stack(dtype), "dropout": 0.3},
    ],
    "ScaledDotAttention": [lambda _: {}],
    "StackedEncoder": [
        lambda dtype: {"cells": [gru(dtype), gru(dtype)], "backward_cells": [gru(dtype), gru(dtype)], "residual": True},
        lambda dtype: {"cells": [gru(dtype), gru(dtype)], "backward_cells": [gru(dtype)], "order": "upwards"},
    ],
    "TransformerDecoder": [lambda _: {"num_heads": 1, "feed_forward_units": A}],
    "WordDropout": [lambda _: {"rate": 0.3}, lambda _: {"rate": 0.0, "seed": 3}],
    "SelfAttention": [lambda _: {"num_heads": 1}, lambda _: {"num_heads": 3, "head_units": 5, "causal": True}],
}
CASES = [pytest.param(name, i, id=f"{name}-{i}") for name, cases in ARGUMENTS.items() for i in range(len(cases))]
slow = pytest.mark.slow
every_layer = pytest.mark.parametrize("name", ARGUMENTS)
every_case = pytest.mark.parametrize(("name", "case"), CASES)


def make(layer, case=0, /, dtype=None, **arguments):
    return PUBLIC[layer](**ARGUMENTS[layer][case](dtype), dtype=dtype, **arguments)


def inputs_of(name):
    """Names, shapes without the batch axis, and dtypes of a layer's inputs."""
    cls = PUBLIC[name]
    if issubclass(cls, ka.AttentionDecoder):
        return {"inputs": (T, E), "values": (S, M), "mask": (S,)}
    if issubclass(cls, ka.layers.Attention):
        return {"query": (T, H), "values": (S, H if issubclass(cls, ka.DotAttention) else M), "mask": (S,)}
    if name == "TransformerDecoder":
        return {"inputs": (T, H), "values": (S, H), "mask": (S,)}
    if name == "WordDropout":
        return {"inputs": (S, E), "token_ids": (S,)}
    if name in ("ConcatenatedOutput", "DeepOutput", "LayerNormOutput"):
        return {"state": (T, H), "embedding": (T, E), "context": (T, M)}
    if name == "PairReadout":
        return {"states": (T, H), "values": (S, M)}
    return {"inputs": (S, E)} if name in ("AttentionalLayer", "OutputBias") else {"inputs": (S, E), "mask": (S,)}


def arrays_of(name, rng):
    arrays = {key: rng.normal(size=(B, *shape)).astype("float32") for key, shape in inputs_of(name).items()}
    if "mask" in arrays:
        arrays["mask"] = np.array([[True] * S, [True, True, True, False, False]])
    return arrays


def called(layer, arrays, **kwargs):
    first, *rest = arrays.values()
    mask = {"mask": rest.pop()} if "mask" in arrays else {}
    return layer(first, *rest, **mask, **kwargs)


def model_of(name, layer):
    """A functional model whose one output reaches every floating-point output of the layer."""
    shapes = inputs_of(name)
    inputs = {k: keras.Input(s, dtype="bool" if k == "mask" else "float32", name=k) for k, s in shapes.items()}
    outputs = [x for x in keras.tree.flatten(called(layer, inputs)) if "float" in x.dtype]
    summed = [ops.sum(ops.reshape(ops.cast(x, "float32"), (-1, int(np.prod(x.shape[1:])))), axis=-1) for x in outputs]
    return keras.Model(inputs, ops.stack(summed, axis=-1))


def numpy_of(tensors):
    return [ops.convert_to_numpy(ops.cast(x, "float32")) for x in keras.tree.flatten(tensors)]


def weights_of(layer):
    return [ops.convert_to_numpy(w) for w in layer.weights]


def copy_variables(model, other):
    """The weights and dropout's seeds."""
    for source, target in zip(model.variables, other.variables, strict=True):
        target.assign(ops.convert_to_numpy(source).copy())  # JAX gives a model's own arrays away


def two_steps(model, arrays, target, seed):
    keras.utils.set_random_seed(seed)  # torch's dropout draws from its global generator
    for _ in range(2):
        model.fit(arrays, target, batch_size=B, verbose=0)


def sub_layers(layer):
    return [part for part in layer._flatten_layers() if part is not layer]


def test_no_public_layer_is_forgotten():
    assert sorted(ARGUMENTS) == sorted(PUBLIC)
    assert all(issubclass(cls, Layer) for name, cls in PUBLIC.items() if name != "AttentionalLayer")  # a Dense


@every_layer
def test_an_unknown_argument_is_refused_with_the_list_of_the_valid_ones(name):
    with pytest.raises(ValueError, match=r"Expected arguments among: .* Received: embeding_dropout") as error:
        make(name, embeding_dropout=0.9)
    valid = re.search("among: (.*)[.] Received", str(error.value))[1].split(", ")
    own = [n for n in inspect.signature(PUBLIC[name].__init__).parameters if n not in ("self", "args", "kwargs")]
    assert {*own, *keras_layer_arguments()} <= {*valid}
    for argument in valid:  # every name in the list is an argument indeed
        arguments = ARGUMENTS[name][0](None)
        if argument not in arguments:
            PUBLIC[name](**arguments, **{argument: getattr(make(name), argument)})


def dtypes():
    """Every dtype of every case; on JAX, which compiles each operation of each, one of them."""
    for n, dtype in enumerate(("float16", "bfloat16", "policy")):
        for case in CASES[n::3] if keras.backend.backend() == "jax" else CASES:
            yield pytest.param(*case.values, dtype, id=f"{dtype}-{case.id}")


@pytest.mark.parametrize(("name", "case", "dtype"), [*dtypes()])
def test_a_dtype_reaches_every_sub_layer_and_weight(name, case, dtype, rng):
    policy = keras.DTypePolicy("mixed_bfloat16" if dtype == "policy" else dtype)
    layer = make(name, case, dtype=policy if dtype == "policy" else dtype)
    arrays = arrays_of(name, rng)
    outputs = called(layer, arrays)
    for part in [layer, *sub_layers(layer)]:
        assert part.dtype_policy.name == policy.name, part.path
    for weight in [w for w in layer.weights if w.dtype.startswith(("float", "bfloat"))]:
        assert weight.dtype == policy.variable_dtype, weight.path
    assert keras.backend.standardize_dtype(keras.tree.flatten(outputs)[0].dtype) == policy.compute_dtype
    full = make(name, case)
    called(full, arrays)
    for weight, other in zip(full.trainable_weights, layer.trainable_weights, strict=True):
        weight.assign(ops.cast(other, "float32"))
    for got, expected in zip(numpy_of(outputs), numpy_of(called(full, arrays)), strict=True):
        np.testing.assert_allclose(got, expected, atol=0.2)
    assert make(name, case).dtype_policy.name == "float32"


@every_case
def test_arguments_are_attributes_and_the_config_makes_the_same_layer(name, case, rng):
    layer = make(name, case, activity_regularizer="l2", autocast=False, trainable=False, name="another")
    base = keras.layers.Layer if name == "AttentionalLayer" else Layer
    arguments = ARGUMENTS[name][case](None)
    for argument, parameter in constructor_arguments(PUBLIC[name], base).items():
        given, kept = arguments.get(argument, parameter.default), getattr(layer, argument)
        if not isinstance(given, str):  # the name of an initialiser, activation or score becomes what it names
            assert kept == given or isinstance(kept, (keras.layers.Layer, list, keras.regularizers.Regularizer)), (
                argument
            )
    again = type(layer).from_config(layer.get_config())
    assert (again.name, again.trainable) == ("another", False)
    assert again.autocast == (name == "AttentionalLayer")  # Keras' own layers forget it
    assert isinstance(again.activity_regularizer, keras.regularizers.L2)
    assert again.get_config() == layer.get_config()


@every_case
def test_a_layer_that_was_serialised_gives_the_same_outputs_from_the_same_weights(name, case, rng):
    layer, arrays = make(name, case), arrays_of(name, rng)
    expected = numpy_of(called(layer, arrays))
    for again in (
        type(layer).from_config(layer.get_config()),
        keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(make(name, case))),
        keras.layers.deserialize(keras.layers.serialize(layer)),
    ):
        assert type(again) is type(layer)
        called(again, arrays)
        again.set_weights(layer.get_weights())
        for got, other in zip(numpy_of(called(again, arrays)), expected, strict=True):
            np.testing.assert_array_equal(got, other)


def ways():
    """Every case eagerly on torch and compiled by TensorFlow or JAX; and some eagerly there."""
    if keras.backend.backend() == "torch":  # which compiles nothing
        return [pytest.param(*case.values, True, id=f"eagerly-{case.id}") for case in CASES]
    is_jax = keras.backend.backend() == "jax"
    compiled = [pytest.param(*case.values, False, id=f"compiled-{case.id}", marks=slow) for case in CASES]
    # JAX compiles each operation alone.
    eagerly = [pytest.param(*case.values, True, id=f"eagerly-{case.id}", marks=[slow] * is_jax) for case in CASES[::5]]
    return compiled + eagerly


@pytest.mark.parametrize(("name", "case", "eagerly"), ways())
def test_training_goes_on_after_saving_and_loading(name, case, eagerly, rng, tmp_path):
    """Two steps, saved, loaded in safe mode, two more: the weights of four uninterrupted."""
    arrays = arrays_of(name, rng)
    model = model_of(name, make(name, case))
    if not model.trainable_weights:  # nothing to train
        return
    target = np.ones((B, model.output_shape[-1]), "float32")
    # Adam divides a gradient by its size: with the usual epsilon, rounding in one near zero would be a step.
    model.compile(keras.optimizers.Adam(epsilon=1e-3), "mse", run_eagerly=eagerly)
    model.optimizer.build(model.trainable_variables)  # otherwise TensorFlow traces the first step twice
    before = weights_of(model)
    two_steps(model, arrays, target, seed=1)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    for got, expected in zip(weights_of(again), weights_of(model), strict=True):
        np.testing.assert_array_equal(got, expected)
    again.run_eagerly = eagerly
    copy_variables(model, again)  # Keras saves no seeds
    two_steps(model, arrays, target, seed=2)
    two_steps(again, arrays, target, seed=2)
    for got, expected in zip(weights_of(again), weights_of(model), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-6)
    assert any(np.abs(new - old).max() > 0 for new, old in zip(weights_of(model), before, strict=True))


@every_case
def test_models_are_cloned_saved_and_loaded(name, case, rng, tmp_path):
    arrays, model = arrays_of(name, rng), model_of(name, make(name, case))
    model.save(tmp_path / "model.keras")
    clone, loaded = keras.models.clone_model(model), keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    clone.set_weights(model.get_weights())
    expected = numpy_of(model(arrays))
    for again in (clone, loaded):
        np.testing.assert_array_equal(numpy_of(again(arrays)), expected)
    np.testing.assert_allclose(loaded.predict(arrays, verbose=0), model.predict(arrays, verbose=0), atol=1e-6)
    model.summary(print_fn=lambda _, **__: None, expand_nested=True)


@every_case
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_symbolic_outputs_have_the_shapes_and_dtypes_of_real_ones(name, case, dtype, rng):
    layer, arrays = make(name, case, dtype=dtype), arrays_of(name, rng)
    real = keras.tree.flatten(called(layer, arrays))
    kinds = {k: "bool" if k == "mask" else "float32" for k in arrays}
    for sized in (True, False):
        symbols = {
            k: keras.Input(
                x.shape[1:] if sized or k in ("state", "embedding", "context") else (None, *x.shape[2:]),
                B,
                dtype=kinds[k],
            )
            for k, x in arrays.items()
        }
        symbolic = keras.tree.flatten(called(make(name, case, dtype=dtype), symbols))
        assert len(symbolic) == len(real)
        for got, expected in zip(symbolic, real, strict=True):
            assert got.dtype == keras.backend.standardize_dtype(expected.dtype)
            assert all(a in (b, None) for a, b in zip(got.shape, expected.shape, strict=True))
            assert not sized or None not in got.shape
