"""The contract of models: properties that each row of `model_rows` has, on each backend.

Each row is built once; of each class one model is trained, saved, loaded and run once, in three compiled programs on
JAX. The tests read that.
"""

import functools
import inspect
import json
import os
import subprocess
import sys
from typing import NamedTuple

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import models
from keras_attn.backend import all_layers, scan
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.search import beam_search, greedy_search
from tests import hard_attention_oracle, oracles
from tests.contracts.model_rows import (
    MODELS,
    ONE_EACH,
    PATH,
    STATEFUL,
    VT,
    B,
    T,
    make,
    some_inputs,
    values_of,
)
from tests.search.searching import compiled_tensors, log_softmax

BACKEND = keras.backend.backend()
FAMILIES = [*ONE_EACH, "ensemble"]
INPUTS = some_inputs()
LABELS = np.roll(INPUTS["decoder_token_ids"], -1, axis=1)  # (B, T)
WEIGHTS = (INPUTS["decoder_token_ids"] > 0).astype("float32")  # (B, T)
LONGEST = 6  # tokens of a search
every_family = pytest.mark.parametrize("name", FAMILIES)
built = functools.cache(make)


def run(function, inputs=INPUTS):
    """Arrays by name from a function of the inputs: one program on JAX, eager elsewhere."""
    return {name: ops.convert_to_numpy(x) for name, x in compiled_tensors(function)(inputs).items()}


def views(inputs, model):
    """Logits and alignments of all words at once, of one step after the other, and of `align`, in float32."""
    source, target = inputs["encoder_token_ids"], inputs["decoder_token_ids"]
    memory, state = model.encode(source)

    def step(state, token_ids):
        logits, state, alignment = model.step(token_ids, memory, state)
        return state, (logits, alignment)

    _, steps = scan(step, state, ops.transpose(target))
    steps = [ops.transpose(x, (1, 0, 2)) for x in steps]  # (B, T, V), (B, T, S)
    names = "whole", "steps", "alignments", "aligned_logits", "aligned"
    values = model(inputs), *steps, *model.align(source, target)
    return {name: ops.cast(x, "float32") for name, x in zip(names, values, strict=True)} | {"mask": memory["mask"]}


def with_other_padding(inputs, model):
    """The logits of all sentences with more padding, and those of the second one alone, without any."""
    wider = {name: ops.pad(ids, [[0, 0], [0, 6]]) for name, ids in inputs.items()}
    alone = {"encoder_token_ids": inputs["encoder_token_ids"][1:2, :4]}
    alone["decoder_token_ids"] = inputs["decoder_token_ids"][1:2, :3]
    return {"wider": model(wider), "alone": model(alone)}


def searched(inputs, model):
    """Beam search and greedy search, and the teacher-forced logits of what they find."""
    source, found = inputs["encoder_token_ids"], {}
    for name, search, options in (("beam", beam_search, {"beam_size": 3}), ("greedy", greedy_search, {})):
        result = search(model.step, *model.encode(source, LONGEST), max_length=LONGEST, **options)
        token_ids = result.token_ids[:, 0]  # (B, L)
        previous = ops.concatenate([ops.full((B, 1), 2, dtype="int32"), token_ids[:, :-1]], axis=1)
        found[f"{name}_logits"] = model({"encoder_token_ids": source, "decoder_token_ids": previous})
        found |= {f"{name}_ids": token_ids, f"{name}_scores": result.scores[:, 0]}
    return found


class Row(NamedTuple):
    name: str
    model: models.Seq2Seq
    start: list  # the weights before training
    losses: list  # of five epochs and, after `found`, another one
    found: dict  # `views`
    loaded: models.Seq2Seq  # from the file of the trained model


@pytest.fixture(scope="module", params=FAMILIES)
def row(request, tmp_path_factory):
    keras.config.set_dtype_policy("float32")
    model = built(request.param)
    start = model.get_weights()
    model.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy(0.0))
    fit = functools.partial(model.fit, INPUTS, LABELS, sample_weight=WEIGHTS, batch_size=B, shuffle=False, verbose=0)
    losses = fit(epochs=5).history["loss"]
    found = run(functools.partial(views, model=model))
    losses += fit(epochs=1).history["loss"]
    path = tmp_path_factory.mktemp("models") / "model.keras"
    model.save(path)
    return Row(request.param, model, start, losses, found, keras.saving.load_model(path))


def check_steps(name, found):
    finite = found["whole"][np.isfinite(found["whole"])]  # a pointer's words that the source does not have are -inf
    assert finite.std() > 0.3  # large enough for a mistake to show
    np.testing.assert_allclose(found["steps"], found["whole"], atol=1e-5)
    np.testing.assert_allclose(found["aligned_logits"], found["whole"], atol=1e-5)
    np.testing.assert_allclose(found["aligned"], found["alignments"], atol=1e-5)
    np.testing.assert_array_equal(found["mask"], INPUTS["encoder_token_ids"] != 0)
    np.testing.assert_array_equal(found["alignments"][2, :, 1:], 0)
    check_alignment_total(name, found)


def check_alignment_total(name, found, atol=1e-5):
    """The sum of each alignment: 0 without attention, half with such a member; local-p and monotonic leave some out."""
    if "local-p" not in name and "monotonic" not in name:
        total = 0.0 if "lstm_seq2seq" in name else 0.5 if "log-prob" in name else 1.0
        np.testing.assert_allclose(found["alignments"].sum(-1), total, atol=atol)


def test_steps_equal_teacher_forcing(row):
    check_steps(row.name, row.found)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in FAMILIES])
def test_steps_equal_teacher_forcing_in_every_variant(name):
    check_steps(name, run(functools.partial(views, model=built(name))))


def oracle(name, weights):
    """The papers' equations in NumPy, (B, T, V)."""
    ids = INPUTS["encoder_token_ids"], INPUTS["decoder_token_ids"]
    if name == "ensemble":
        members = []
        for i, member in enumerate(MODELS[name][1]["members"]):
            scope = f"member_{i}/"
            own = {path.removeprefix(scope): w for path, w in weights.items() if path.startswith(scope)}
            members.append(oracles.softmax(oracle(member, own)))
        return np.log(np.mean(members, axis=0))
    return {
        "rnnsearch": lambda: oracles.rnnsearch(weights, *ids),
        "rnnencdec": lambda: oracles.rnnencdec(weights, *ids),
        "lstm_seq2seq": lambda: oracles.luong(weights, *ids, layers=2, attend=False),
        "luong": lambda: oracles.luong(weights, *ids, layers=2),
        "nematus": lambda: oracles.nematus(weights, *ids),
        "gnmt": lambda: oracles.gnmt(weights, *ids),
        "rnmt_plus": lambda: oracles.rnmt_plus(weights, *ids, heads=2),
        "hard_monotonic": lambda: hard_attention_oracle.transducer(weights, *ids, layers=2)[0],
        "transformer": lambda: oracles.transformer(weights, *ids, layers=2),
    }[name]()


def check_padding(found):
    np.testing.assert_allclose(found["wider"][1, :3], found["alone"][0], atol=1e-5)


def test_logits_follow_the_papers_equations_whatever_the_padding_and_the_batch_mates(row):
    found = run(functools.partial(with_other_padding, model=row.loaded))
    np.testing.assert_allclose(found["wider"][:, :T], oracle(row.name, values_of(row.loaded)), atol=1e-5)
    check_padding(found)


@pytest.mark.parametrize("name", ["rnnsearch, local-p", *STATEFUL])
def test_padding_and_batch_mates_change_nothing_in_stateful_attention(name):
    check_padding(run(functools.partial(with_other_padding, model=built(name))))


def test_the_score_of_a_search_is_that_of_the_model(row):
    found = run(functools.partial(searched, model=row.loaded))
    for name in ("beam", "greedy"):
        ids, scores = found[f"{name}_ids"], found[f"{name}_scores"]
        log_probs = log_softmax(found[f"{name}_logits"])  # (B, L, V)
        chosen = np.take_along_axis(log_probs, ids[:, :, None], axis=-1)[:, :, 0]
        lengths = (ids > 0).sum(1)
        expected = np.where(ids > 0, chosen, 0).sum(1) / ((5 + lengths) / 6)
        np.testing.assert_allclose(scores, expected, atol=1e-4)
        assert (ids[np.arange(B), lengths - 1] == 3).all()
    log_probs[:, :, [0, 2]] = -np.inf  # neither pad nor start is ever chosen
    log_probs[:, -1, [i for i in range(VT) if i != 3]] = -np.inf  # at the longest length only the end is left
    np.testing.assert_array_equal(np.where(ids > 0, log_probs.argmax(-1), 0), ids)


# Training.


def test_fit_lowers_the_loss_and_reaches_every_weight(row):
    """The loss is that of the logits in NumPy."""
    assert np.isfinite(row.losses).all()
    assert row.losses[-1] < row.losses[0]
    log_probs = log_softmax(row.found["whole"])
    chosen = np.take_along_axis(log_probs, LABELS[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(row.losses[-1], -(chosen * WEIGHTS).sum() / WEIGHTS.sum(), rtol=1e-4)
    for before, weight in zip(row.start, row.model.weights, strict=True):
        if not weight.path.endswith("key/bias"):  # adds the same to every score of a query: the softmax does not see it
            assert np.abs(before - ops.convert_to_numpy(weight)).max() > 0, weight.path


@every_family
def test_mixed_precision(name):
    """Of the global policy when the model is made."""
    policy = "mixed_float16" if FAMILIES.index(name) % 2 else "mixed_bfloat16"
    keras.config.set_dtype_policy(policy)
    model = make(name)
    keras.config.set_dtype_policy("float32")
    assert model.dtype_policy.name == policy
    for layer in all_layers(model)[1:]:
        if not isinstance(layer, keras.layers.InputLayer) and layer.name != "position_encoding":
            assert layer.dtype_policy.name == policy, layer.path
    assert {str(weight.dtype) for weight in model.trainable_weights} == {"float32"}
    model.compile("adam", SmoothedCrossentropy(), run_eagerly=BACKEND == "tensorflow")
    history = model.fit(INPUTS, LABELS, sample_weight=WEIGHTS, epochs=2, verbose=0).history["loss"]
    assert np.isfinite(history).all()
    found = run(functools.partial(views, model=model))
    assert np.isfinite(found["steps"]).all()
    check_alignment_total(name, found, atol=1e-2)


REVERSAL = {  # without what is monotonic, which reverses nothing; its task is in test_hard_monotonic.py
    "rnnsearch": {"units": 24, "embedding_size": 16, "readout_size": 32, "attention_units": 24, "decoder_units": 24},
    "rnnencdec": {"units": 64, "embedding_size": 24, "readout_size": 48},
    "lstm_seq2seq": {"units": 48, "num_layers": 2, "embedding_size": 32},
    "luong": {"units": 32, "num_layers": 1, "embedding_size": 24, "readout_size": 32},
    "nematus": {"units": 24, "embedding_size": 16, "attention_units": 24},
    # One layer: those above read forwards alone, so that h_j knows the words before j, and another h may serve as well.
    "gnmt": {"units": 32, "embedding_size": 24, "encoder_layers": 1, "decoder_layers": 2, "scale_embeddings": True},
    "rnmt_plus": {"units": 24, "embedding_size": 16, "encoder_layers": 1, "decoder_layers": 2, "num_heads": 2},
    "transformer": {"units": 32, "num_layers": 1, "num_heads": 1, "feed_forward_units": 64, "dropout": 0.0},
}
WITHOUT_ATTENTION = ("rnnencdec", "lstm_seq2seq")


@pytest.mark.slow
@pytest.mark.parametrize("name", REVERSAL)
def test_learns_to_reverse_a_sequence(name):
    """Within 160 updates it copies backwards; with attention, the alignment shows the anti-diagonal."""
    length, symbols = (4, 6) if name in WITHOUT_ATTENTION else (6, 8)
    source = np.random.default_rng(0).integers(4, 4 + symbols, (1000, length)).astype("int32")
    target = source[:, ::-1]
    ids = {
        "encoder_token_ids": source,
        "decoder_token_ids": np.concatenate([np.full((1000, 1), 2), target[:, :-1]], 1).astype("int32"),
    }
    model = MODELS[name][0](4 + symbols, 4 + symbols, **REVERSAL[name], initializer="glorot_uniform")
    rate = keras.optimizers.schedules.CosineDecay(0.01, 160)
    optimizer = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(optimizer, SmoothedCrossentropy(0.0), weighted_metrics=["accuracy"])
    model.fit(ids, target, batch_size=50, epochs=8, verbose=0)
    assert model.evaluate(ids, target, batch_size=50, verbose=0, return_dict=True)["accuracy"] > 0.99
    if name not in WITHOUT_ATTENTION:
        first = {key: array[:50] for key, array in ids.items()}
        alignments = run(functools.partial(views, model=model), first)["alignments"]  # (B, T, S)
        assert (alignments.argmax(-1) == np.arange(length)[::-1]).mean() > 0.9


# Configuration and files.


def test_a_loaded_model_is_the_one_that_was_saved(row):
    """Its class, configuration, weights and their names, and the optimizer's state."""
    assert type(row.loaded) is type(row.model)
    assert json.dumps(row.loaded.get_config()) == json.dumps(row.model.get_config())
    assert int(row.loaded.optimizer.iterations) == len(row.losses)
    for one in (lambda model: model.weights, lambda model: model.optimizer.variables):
        for got, expected in zip(one(row.loaded), one(row.model), strict=True):
            assert got.path == expected.path
            np.testing.assert_array_equal(ops.convert_to_numpy(got), ops.convert_to_numpy(expected))


def test_a_clone_computes_the_same(row):
    """Keras' `clone_model` gives the plain functional model."""
    clone = keras.models.clone_model(row.model)
    clone.set_weights(row.model.get_weights())
    both = run(lambda inputs: {"clone": clone(inputs), "model": row.loaded(inputs)})
    np.testing.assert_allclose(both["clone"], both["model"], atol=1e-6)


def parameters(cls):
    found = inspect.signature(cls.__init__).parameters.values()
    return {p.name: p.default for p in found if p.name != "self" and p.kind is not inspect.Parameter.VAR_KEYWORD}


@pytest.mark.parametrize("name", MODELS)
def test_arguments_are_attributes_and_make_up_the_config(name):
    model, (cls, given) = built(name), MODELS[name]
    shared = parameters(models.RecurrentSeq2Seq)
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
    assert {cls for cls, _ in MODELS.values()} == {*public} - {models.Seq2Seq, models.RecurrentSeq2Seq}
    assert json.loads(PATH.read_text()).keys() == MODELS.keys()


@every_family
def test_arguments_of_every_model(name):
    cls = MODELS[name][0]
    names = [*parameters(cls), "name", "trainable", "dtype"]
    names += ["source_special_ids", "target_special_ids", "mask_padding", "source_length", *cls.shared_arguments]
    with pytest.raises(ValueError, match=r"Expected arguments among: .*\. Received: embeding_dropout$") as error:
        make(name, embeding_dropout=0.9)
    assert str(error.value).split("among: ")[1].split(". Received")[0].split(", ") == names
    model = make(name, name="mine", trainable=False, dtype=keras.DTypePolicy("mixed_float16"))
    assert not model.trainable_weights
    assert len({weight.path for weight in model.weights}) == len(model.weights), "Keras clears gradients by it on torch"
    config = model.get_config()
    assert (config["name"], config["trainable"], model.dtype_policy.name) == ("mine", False, "mixed_float16")
    again = cls.from_config(config)
    assert (again.dtype_policy.name, again.trainable) == ("mixed_float16", False)


# torch.export traces each step of a loop, for long: there without composed models.
COMPOSED = ("ensemble", "gnmt", "rnmt_plus") if BACKEND == "torch" else ()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in COMPOSED])
def test_export_of_the_functional_model(name, tmp_path):
    """Keras' own export, teacher-forced; `Translator.export` is for translation."""
    model = make(name)
    shorter = {side: ids[:2, :3] for side, ids in INPUTS.items()}
    if BACKEND == "torch":
        # Keras writes no SavedModel of a dict of inputs there; torch.export fixes the length of a Python loop.
        import torch

        signature = [{side: keras.KerasTensor(ids.shape, "int32") for side, ids in INPUTS.items()}]
        model.export(tmp_path / "model.pt2", format="torch", verbose=False, input_signature=signature)
        exported = torch.export.load(tmp_path / "model.pt2").module()
        found = exported({side: torch.tensor(ids) for side, ids in INPUTS.items()})
        np.testing.assert_allclose(found.detach().numpy(), ops.convert_to_numpy(model(INPUTS)), atol=1e-5)
        return
    tf = pytest.importorskip("tensorflow")
    model.export(tmp_path / "model", verbose=False)
    exported = tf.saved_model.load(tmp_path / "model")
    for inputs in (INPUTS, shorter):
        found = exported.serve({side: tf.constant(ids) for side, ids in inputs.items()})
        np.testing.assert_allclose(found.numpy(), ops.convert_to_numpy(model(inputs)), atol=1e-5)


def global_state():
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


@every_family
def test_building_and_compiling_change_no_global_state(name):
    config = built(name).get_config()  # of a first model: the Transformer's imports KerasHub, which is not ours
    before = global_state()
    model = MODELS[name][0].from_config(config)
    for jit_compile in (True, False):
        model.compile("adam", SmoothedCrossentropy(), jit_compile=jit_compile)
        assert model.jit_compile is jit_compile, "the user's to choose"
    model.summary(print_fn=lambda *_, **__: None)
    assert global_state() == before


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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
