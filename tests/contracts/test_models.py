"""The contract of models: properties that each row of `model_rows` has, on each backend.

Each row is built once; of each class one model is trained, saved, loaded and run once, in three compiled programs on
JAX. The tests read that.
"""

import functools
import json
import os
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
    ANY_SOURCE,
    MODELS,
    ONE_EACH,
    STATEFUL,
    VT,
    B,
    T,
    inputs_of,
    make,
    mask_of,
    some_inputs,
    values_of,
)
from tests.search.searching import compiled_tensors, log_softmax

BACKEND = keras.backend.backend()
FAMILIES = [*ONE_EACH, "ensemble", *ANY_SOURCE]
INPUTS = some_inputs()
LABELS = np.roll(INPUTS["decoder_token_ids"], -1, axis=1)  # (B, T)
WEIGHTS = (INPUTS["decoder_token_ids"] > 0).astype("float32")  # (B, T)
LONGEST = 6  # tokens of a search
built = functools.cache(make)


def run(function, inputs=INPUTS):
    """Arrays by name from a function of the inputs: one program on JAX, eager elsewhere."""
    return {name: ops.convert_to_numpy(x) for name, x in compiled_tensors(function)(inputs).items()}


def stepped(inputs, model):
    """Logits and alignments of one step after the other, in float32, and the mask."""
    memory, state = model.encode(model.source_of(inputs))

    def step(state, token_ids):
        logits, state, alignment = model.step(token_ids, memory, state)
        return state, (logits, alignment)

    _, steps = scan(step, state, ops.transpose(inputs["decoder_token_ids"]))
    steps = [ops.cast(ops.transpose(x, (1, 0, 2)), "float32") for x in steps]  # (B, T, V), (B, T, S)
    return {"steps": steps[0], "alignments": steps[1], "mask": memory["mask"]}


def views(inputs, model):
    """The same, and logits and alignments of all words at once and of `align`."""
    logits, alignments = model.align(model.source_of(inputs), inputs["decoder_token_ids"])
    return stepped(inputs, model) | {"whole": model(inputs), "aligned_logits": logits, "aligned": alignments}


def with_other_padding(inputs, model, **others):
    """The logits of all sentences with more padding, of other models, too; and of the second alone, without any."""
    wider = {name: ops.pad(x, [[0, 0], [0, 6], [0, 0]][: len(x.shape)]) for name, x in inputs.items()}
    alone = {name: x[1:2, : 3 if name == "decoder_token_ids" else 4] for name, x in inputs.items()}
    return {"alone": model(alone)} | {name: one(wider) for name, one in {"wider": model, **others}.items()}


def searched(inputs, model):
    """Beam search and greedy search, and the teacher-forced logits of what they find."""
    source, found = model.source_of(inputs), {}
    for name, search, options in (("beam", beam_search, {"beam_size": 3}), ("greedy", greedy_search, {})):
        result = search(model.step, *model.encode(source, LONGEST), max_length=LONGEST, **options)
        token_ids = result.token_ids[:, 0]  # (B, L)
        previous = ops.concatenate([ops.full((B, 1), 2, dtype="int32"), token_ids[:, :-1]], axis=1)
        found[f"{name}_logits"] = model(inputs | {"decoder_token_ids": previous})
        found |= {f"{name}_ids": token_ids, f"{name}_scores": result.scores[:, 0]}
    return found


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


class Row(NamedTuple):
    name: str
    inputs: dict
    model: models.Seq2Seq
    states: tuple[dict, dict]  # `global_state` before it was built and after it was compiled
    start: list  # the weights before training
    losses: list  # of five epochs and, after `found`, another one
    found: dict  # `views`
    loaded: models.Seq2Seq  # from the file of the trained model


@pytest.fixture(scope="module", params=FAMILIES)
def row(request, tmp_path_factory):
    keras.config.set_dtype_policy("float32")
    if request.param == "transformer":
        import keras_hub  # noqa: F401 (its changes are not ours)
    if request.param in ANY_SOURCE:
        make(request.param)  # Keras' own layers may import TensorFlow, too
    before = global_state()
    model = make(request.param)
    model.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy(0.0))
    states, start = (before, global_state()), model.get_weights()
    inputs = inputs_of(request.param)
    fit = functools.partial(model.fit, inputs, LABELS, sample_weight=WEIGHTS, batch_size=B, shuffle=False, verbose=0)
    losses = fit(epochs=5).history["loss"]
    found = run(functools.partial(views, model=model), inputs)
    losses += fit(epochs=1).history["loss"]
    path = tmp_path_factory.mktemp("models") / "model.keras"
    model.save(path)
    return Row(request.param, inputs, model, states, start, losses, found, keras.saving.load_model(path))


def check_steps(name, found):
    finite = found["whole"][np.isfinite(found["whole"])]  # a pointer's words that the source does not have are -inf
    assert finite.std() > 0.3  # large enough for a mistake to show
    np.testing.assert_allclose(found["steps"], found["whole"], atol=1e-5)
    np.testing.assert_allclose(found["aligned_logits"], found["whole"], atol=1e-5)
    np.testing.assert_allclose(found["aligned"], found["alignments"], atol=1e-5)
    np.testing.assert_array_equal(found["mask"], mask_of(name, inputs_of(name)))
    np.testing.assert_array_equal(found["alignments"].swapaxes(1, 2)[~found["mask"]], 0)
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
    if name in ANY_SOURCE:
        return oracles.attention_seq2seq(weights, inputs_of(name))
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
        "rnmt_plus": lambda: oracles.rnmt_plus(weights, *ids, number=2),
        "hard_monotonic": lambda: hard_attention_oracle.transducer(weights, *ids, layers=2)[0],
        "transformer": lambda: oracles.transformer(weights, *ids, layers=2),
    }[name]()


def check_padding(found):
    np.testing.assert_allclose(found["wider"][1, :3], found["alone"][0], atol=1e-5)


def test_logits_follow_the_papers_equations_whatever_the_padding_and_the_batch_mates(row):
    """Those of the loaded model, and of Keras' `clone_model`, which is the plain functional model."""
    clone = keras.models.clone_model(row.model)
    clone.set_weights(row.model.get_weights())
    found = run(functools.partial(with_other_padding, model=row.loaded, clone=clone), row.inputs)
    for name in ("wider", "clone"):
        np.testing.assert_allclose(found[name][:, :T], oracle(row.name, values_of(row.loaded)), atol=1e-5)
    check_padding(found)


@pytest.mark.parametrize("name", ["rnnsearch, local-p", *STATEFUL])
def test_padding_and_batch_mates_change_nothing_in_stateful_attention(name):
    check_padding(run(functools.partial(with_other_padding, model=built(name))))


def test_the_score_of_a_search_is_that_of_the_model(row):
    found = run(functools.partial(searched, model=row.loaded), row.inputs)
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


@pytest.mark.parametrize("name", FAMILIES)
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
    assert np.isfinite(model.train_on_batch(inputs_of(name), LABELS, WEIGHTS))
    found = run(functools.partial(stepped, model=model), inputs_of(name))
    assert np.isfinite(found["steps"]).all()
    check_alignment_total(name, found, atol=1e-2)


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


@pytest.mark.parametrize("name", ["rnnsearch", "luong", "hard_monotonic", "transformer"])
def test_export_of_the_functional_model(name, tmp_path):
    """Keras' own export, teacher-forced; `Translator.export` is for translation. Other models have these layers."""
    model = make(name)
    shorter = {side: ids[:2, :3] for side, ids in INPUTS.items()}
    batches = {"whole": INPUTS, "shorter": shorter}
    expected = run(lambda batches: {name: model(inputs) for name, inputs in batches.items()}, batches)
    if BACKEND == "torch":
        # Keras writes no SavedModel of a dict of inputs there; torch.export fixes the length of a Python loop.
        import torch

        signature = [{side: keras.KerasTensor(ids.shape, "int32") for side, ids in shorter.items()}]
        model.export(tmp_path / "model.pt2", format="torch", verbose=False, input_signature=signature)
        exported = torch.export.load(tmp_path / "model.pt2").module()
        found = exported({side: torch.tensor(ids) for side, ids in shorter.items()})
        np.testing.assert_allclose(found.detach().numpy(), expected["shorter"], atol=1e-5)
        return
    tf = pytest.importorskip("tensorflow")
    model.export(tmp_path / "model", verbose=False)
    exported = tf.saved_model.load(tmp_path / "model")
    for name, inputs in batches.items():
        found = exported.serve({side: tf.constant(ids) for side, ids in inputs.items()})
        np.testing.assert_allclose(found.numpy(), expected[name], atol=1e-5)


def test_building_and_compiling_change_no_global_state(row):
    assert row.states[0] == row.states[1]
