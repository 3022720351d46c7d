"""Keras' conventions, for every public model: arguments, dtype, saving in the middle of training, cloning, export.

The models are those that `keras_attn.models` exports, and their tiny sizes follow from the names of their arguments: a
new model is tested as soon as it is exported.
"""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn
from keras_attn import models
from keras_attn.losses import SmoothedCrossentropy

pytestmark = pytest.mark.by_turns

VS, VT = 17, 19
ROOT = Path(__file__).parents[2]
BACKEND = keras.backend.backend()
# Tiny sizes, and for every other argument a value that is not its default.
SIZES = {
    "source_vocabulary_size": VS,
    "target_vocabulary_size": VT,
    "units": 6,
    "num_layers": 2,
    "num_heads": 3,
    "feed_forward_units": 11,
    "embedding_size": 6,
    "readout_size": 6,
    "attention_units": 7,
    "decoder_units": 8,
    "encoder_layers": 2,
    "encoder_order": "upwards",
    "encoder_transitions": 2,
    "decoder_layers": 2,
    "decoder_transitions": 3,
    "upper_transitions": 2,
}
OTHERS = {
    "attend": "after",
    "attention": "concat",
    "average": "log_probability",
    "bidirectional": True,
    "context_gate": "both",
    "coverage_loss": 0.5,
    "cell": "lstm",
    "dropout": 0.2,
    "embedding_dropout": 0.4,
    "initializer": "he_normal",
    "input_feeding": False,
    "layer_dropout": 0.3,
    "layer_normalization": True,
    "max_length": 31,
    "memory_dropout": 0.25,
    "monotonic": False,
    "normalize_first": True,
    "order": 1,
    "output_dropout": 0.5,
    "pointer": True,
    "project_context": False,
    "read_previous_state": False,
    "readout_activation": "tanh",
    "recurrent_dropout": 0.15,
    "residual": False,
    "reverse_source": False,
    "scale_embeddings": True,
    "scheduled_sampling": "linear,k=1,c=0.01",
    "tie_embeddings": "target",
    "window": 2,
    "word_dropout": 0.15,
}
MODELS = [
    cls
    for cls in vars(models).values()
    if inspect.isclass(cls) and "encode" in dir(cls) and cls not in (models.Seq2Seq, models.RecurrentSeq2Seq)
]
every_model = pytest.mark.parametrize("cls", MODELS, ids=lambda cls: cls.__name__)


def compiled_models(but=()):
    """Where each model must be compiled, plain pytest tries one; all of them `but` these."""
    chosen = [cls for cls in MODELS if cls not in but]
    marked = [pytest.param(cls, marks=[] if cls is models.RNNSearch else pytest.mark.slow) for cls in chosen]
    return pytest.mark.parametrize("cls", marked, ids=lambda cls: cls.__name__)


def own_parameters(cls):
    found = inspect.signature(cls.__init__).parameters.values()
    return {p.name: p.default for p in found if p.name != "self" and p.kind is not inspect.Parameter.VAR_KEYWORD}


def parameters(cls):
    shared = own_parameters(models.RecurrentSeq2Seq)
    return own_parameters(cls) | {name: shared[name] for name in cls.shared_arguments}


def members():
    return [tiny(models.RNNSearch), tiny(models.LuongSeq2Seq)]


def tiny(cls, **options):
    own = parameters(cls)
    sizes = {name: size for name, size in SIZES.items() if name in own}
    if "initializer" in own:  # the papers' initialisers make logits too small to compare
        sizes["initializer"] = "glorot_uniform"
    if "models" in own:
        sizes["models"] = members()
    return cls(**{**sizes, **options})


def without_dropout(cls):
    return tiny(cls, **{name: 0.0 for name in parameters(cls) if name.endswith("dropout")})


@pytest.fixture
def ids():
    rng = np.random.default_rng(3)
    source, target = rng.integers(4, VS, (8, 5)), rng.integers(4, VT, (8, 4))
    source[1, 3:] = 0
    return {"encoder_token_ids": source.astype("int32"), "decoder_token_ids": target.astype("int32")}


def labels(ids):
    return np.roll(ids["decoder_token_ids"], -1, axis=1)


def logits_of(model, ids):
    return ops.convert_to_numpy(model(ids)).astype("float32")


def compiled(model, **options):
    model.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy(), **options)
    return model


# Arguments.


def test_the_public_models_are_tested():
    assert {cls.__name__ for cls in MODELS} >= {"RNNSearch", "LuongSeq2Seq", "TransformerSeq2Seq", "Ensemble"}


@every_model
def test_an_unknown_argument_is_refused_with_the_valid_ones(cls):
    names = [*own_parameters(cls), "name", "trainable", "dtype"]
    names += ["source_special_ids", "target_special_ids", "mask_padding", "source_length", *cls.shared_arguments]
    with pytest.raises(ValueError, match=r"Expected arguments among: .*\. Received: embeding_dropout$") as error:
        tiny(cls, embeding_dropout=0.9)
    assert str(error.value).split("among: ")[1].split(". Received")[0].split(", ") == names
    assert tiny(cls, name="mine", trainable=False, dtype="float32").get_config()["name"] == "mine"


@every_model
def test_arguments_are_attributes_and_make_up_the_config(cls):
    own = parameters(cls)
    given = {name: value for name, value in OTHERS.items() if name in own}
    assert set(own) <= {*OTHERS, *SIZES, "models"}
    assert all(own[name] != value for name, value in given.items())
    if "pointer" in given:  # needs one joint vocabulary
        given["source_vocabulary_size"] = VT
    if cls is models.RNMTPlusSeq2Seq:  # a tied output reads state and context
        given["embedding_size"] = 2 * SIZES["units"]
    if "context_gate" in given:  # whose cell has no dropout
        del given["recurrent_dropout"]
    for options in ({}, given):
        model = tiny(cls, **options)
        for name, default in own.items():
            if name == "models":
                assert [type(member) for member in model.models] == [type(member) for member in members()]
                continue
            fallback = "glorot_uniform" if name == "initializer" else SIZES.get(name, default)
            assert getattr(model, name) == options.get(name, fallback), name
        again = cls.from_config(model.get_config())
        assert again.get_config() == model.get_config()
        assert [w.path for w in again.weights] == [w.path for w in model.weights]


@pytest.mark.parametrize("cls", [models.RNNSearch, models.LuongSeq2Seq])
def test_an_attention_layer_given_as_one_survives_the_config(cls, ids):
    layer = keras_attn.ConcatAttention(9)
    model = tiny(cls, attention=layer, initializer=keras.initializers.RandomNormal(stddev=0.3))
    assert model.attention is layer
    again = cls.from_config(model.get_config())
    assert (type(again.attention), again.attention.units) == (keras_attn.ConcatAttention, 9)
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(logits_of(again, ids), logits_of(model, ids))


@every_model
def test_trainable_false_freezes_every_weight(cls):
    model = tiny(cls, trainable=False)
    assert not model.trainable_weights
    assert model.get_config()["trainable"] is False


@every_model
def test_each_weight_has_a_path_of_its_own(cls):
    """By which Keras clears gradients on torch."""
    paths = [weight.path for weight in tiny(cls).trainable_weights]
    assert len(set(paths)) == len(paths)


# Dtypes.


@every_model
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", keras.DTypePolicy("mixed_float16")], ids=str)
def test_a_dtype_reaches_every_layer_and_the_config(cls, dtype):
    model = tiny(cls, dtype=dtype)
    name = dtype if isinstance(dtype, str) else dtype.name
    assert keras.config.dtype_policy().name == "float32"
    for each in (model, cls.from_config(model.get_config())):
        assert each.dtype_policy.name == name
        for layer in each._flatten_layers(include_self=False):
            if not isinstance(layer, keras.layers.InputLayer) and layer.name != "position_encoding":
                assert layer.dtype_policy.name == name, layer.path
    assert {str(weight.dtype) for weight in model.trainable_weights} == {keras.DTypePolicy(name).variable_dtype}


@every_model
def test_without_a_dtype_the_global_policy_at_construction_holds(cls):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = tiny(cls)
    keras.config.set_dtype_policy("float32")
    assert model.dtype_policy.name == "mixed_bfloat16"
    assert tiny(cls).dtype_policy.name == "float32"
    # A config of version 0.1.0 has no dtype.
    config = {name: value for name, value in tiny(cls).get_config().items() if name != "dtype"}
    assert cls.from_config(config).dtype_policy.name == "float32"


# Training.


@compiled_models()
def test_training_goes_on_where_a_saved_model_stopped(cls, ids, tmp_path):
    """With dropout, but on torch, where it draws from torch's own generator. Warnings are errors in this suite."""

    def fit(model):
        model.fit(ids, labels(ids), batch_size=4, shuffle=False, verbose=0)
        return model

    def make():
        keras.utils.set_random_seed(1)
        if BACKEND == "torch":
            return without_dropout(cls)
        rates = {name: OTHERS[name] for name in parameters(cls) if name.endswith("dropout")}
        return tiny(cls, **rates)

    # As an object: Keras would make the variables of "accuracy" while TensorFlow traces, which would trace once more.
    whole = compiled(make(), weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()])
    start = whole.get_weights()
    for before, other in zip(start, make().get_weights(), strict=True):
        np.testing.assert_array_equal(before, other)
    fit(whole).save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert int(again.optimizer.iterations) == 2
    fit(again)
    fit(whole)
    for a, b in zip(again.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(start, whole.get_weights(), strict=True))


# JAX compiles each operation of the eager step, and torch none of the other.
@pytest.mark.not_by_turns
@compiled_models([models.RNMTPlusSeq2Seq] if BACKEND == "tensorflow" else set(MODELS) - {models.RNNSearch})
def test_eager_and_compiled_steps_agree_with_predict(cls, ids):
    losses, weights = [], None
    for eagerly in (True, False):
        model = without_dropout(cls)
        weights = weights or model.get_weights()
        model.set_weights(weights)
        compiled(model, run_eagerly=eagerly)
        assert model.run_eagerly is eagerly
        losses.append(float(model.train_on_batch(ids, labels(ids))))
        if eagerly:
            np.testing.assert_allclose(model.predict(ids, verbose=0), logits_of(model, ids), atol=1e-5)
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_without_compile_a_model_predicts_and_keras_refuses_to_train(ids):
    model = tiny(models.LuongSeq2Seq)
    np.testing.assert_allclose(model.predict(ids, verbose=0), logits_of(model, ids), atol=1e-5)
    with pytest.raises(ValueError, match="compile"):
        model.fit(ids, labels(ids), verbose=0)


@every_model
def test_jit_compile_is_the_users_to_choose(cls):
    model = tiny(cls)
    for jit_compile in (True, False):
        assert compiled(model, jit_compile=jit_compile).jit_compile is jit_compile
    assert "compile" not in vars(models.Seq2Seq)  # "auto" is Keras': no XLA for TensorFlow on a CPU


# What else Keras does with a model.


@every_model
def test_clones_compute_the_same(cls, ids):
    """Keras' `clone_model` gives the plain functional model; `from_config` gives the class."""
    model = tiny(cls)
    for clone in (keras.models.clone_model(model), cls.from_config(model.get_config())):
        assert clone.count_params() == model.count_params()
        clone.set_weights(model.get_weights())
        np.testing.assert_array_equal(logits_of(clone, ids), logits_of(model, ids))


@pytest.mark.once
@every_model
def test_summary_and_plot(cls, tmp_path):
    model, lines = tiny(cls), []
    model.summary(print_fn=lines.append)
    assert f"{model.count_params():,}" in "\n".join(lines)
    pytest.importorskip("pydot")
    dot = keras.utils.model_to_dot(model).to_string()
    assert all(layer.__class__.__name__ in dot for layer in model.layers)
    try:
        keras.utils.plot_model(model, tmp_path / "model.png")
    except ImportError as error:
        pytest.skip(str(error))  # Keras names Graphviz, a program
    assert (tmp_path / "model.png").stat().st_size > 1000


# torch.export traces each step of a loop, for long: there without composed models, which TensorFlow or JAX exports.
COMPOSED = [models.Ensemble, models.GNMTSeq2Seq, models.RNMTPlusSeq2Seq]


@pytest.mark.slow
@compiled_models(COMPOSED if BACKEND == "torch" else ())
def test_export_of_the_functional_model(cls, ids, tmp_path):
    """Keras' own export, teacher-forced; `Translator.export` is for translation."""
    model = tiny(cls)
    shorter = {name: array[:3, :2] for name, array in ids.items()}
    if BACKEND == "torch":
        # Keras writes no SavedModel of a dict of inputs there; torch.export fixes the length of a Python loop.
        import torch

        signature = [{name: keras.KerasTensor(array.shape, "int32") for name, array in ids.items()}]
        model.export(tmp_path / "model.pt2", format="torch", verbose=False, input_signature=signature)
        run = torch.export.load(tmp_path / "model.pt2").module()
        found = run({name: torch.tensor(array) for name, array in ids.items()})
        np.testing.assert_allclose(found.detach().numpy(), logits_of(model, ids), atol=1e-5)
        return
    tf = pytest.importorskip("tensorflow")
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")
    for inputs in (ids, shorter):
        found = loaded.serve({name: tf.constant(array) for name, array in inputs.items()})
        np.testing.assert_allclose(found.numpy(), logits_of(model, inputs), atol=1e-5)


# Global state.


def state():
    """What a library must leave alone. Keras draws the seeds of layers from `random`, so that is not here."""
    found = {
        "environment": dict(os.environ),
        "numpy": np.random.get_state()[1].tolist(),
        "policy": keras.config.dtype_policy().name,
        "floatx": keras.config.floatx(),
    }
    if "torch" in sys.modules:
        import torch

        found["precision"] = torch.get_float32_matmul_precision()
        found["generator"] = torch.get_rng_state().tolist()
        found["grad"] = torch.is_grad_enabled()
    return found


@every_model
def test_building_and_compiling_change_no_global_state(cls):
    if cls is models.TransformerSeq2Seq:
        tiny(cls)  # imports KerasHub, which is not ours
    before = state()
    compiled(tiny(cls)).summary(print_fn=lambda *_, **__: None)
    assert state() == before


def test_importing_changes_no_global_state():
    """Compared with a process that imports only Keras; `random` too."""
    program = (
        "import os, random, sys\n"
        "import keras, numpy as np\n"
        "def state():\n"
        "    found = [sorted(os.environ.items()), random.getstate(), np.random.get_state()[1].tolist()]\n"
        "    found += [keras.config.dtype_policy().name, keras.config.floatx()]\n"
        "    if 'torch' in sys.modules:\n"
        "        import torch\n"
        "        found += [torch.get_float32_matmul_precision(), torch.get_rng_state().tolist()]\n"
        "    return found\n"
        "before = state()\n"
        "import keras_attn\n"
        "keras_attn.Translator, keras_attn.models.RNNSearch, keras_attn.search, keras_attn.serving\n"
        "changed = [i for i, (a, b) in enumerate(zip(before, state())) if a != b]\n"
        "sys.exit(f'changed: {changed}' if changed else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.once
@pytest.mark.usefixtures("processes_on_jax")
def test_without_kerashub_the_transformer_says_what_to_install():
    program = (
        "import sys; sys.modules['keras_hub'] = None\n"
        "import keras_attn\n"
        "keras_attn.models.RNNSearch(5, 6, units=2, embedding_size=2, readout_size=2, attention_units=2)\n"
        "try:\n"
        "    keras_attn.models.TransformerSeq2Seq(5, 6, units=2, num_heads=1)\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert 'pip install "keras_attn[tensorflow]"' in done.stdout, done.stderr


@pytest.mark.skipif(BACKEND == "tensorflow", reason="there TensorFlow is the backend")
def test_the_transformer_runs_without_tensorflow():
    program = (
        "from tests.cli import light_install\n"
        "light_install.block(('tensorflow', 'tensorflow_text', 'keras_nlp'))\n"
        "import sys, keras_attn, numpy as np\n"
        "model = keras_attn.models.TransformerSeq2Seq(5, 6, units=2, num_heads=1, num_layers=1, feed_forward_units=3)\n"
        "ids = np.array([[4, 3]])\n"
        "print(model.predict({'encoder_token_ids': ids, 'decoder_token_ids': ids}, verbose=0).shape)\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "(1, 2, 6)\n", done.stderr
