"""What tensorflow_addons computed for random configurations: `tests/fixtures/tfa_cases.py`."""

import contextlib
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn.layers import decoder
from keras_attn.layers.recurrence import Masks
from keras_attn.search import beam_search
from tests.fixtures import tfa_cases
from tests.fixtures.tfa_cases import END, draw, draw_search
from tests.gradients import differentiated, wide

with np.load(Path(tfa_cases.__file__).with_name("tfa.npz"), allow_pickle=False) as file:
    RECORDED = dict(file)
CELLS = {
    "gru": keras.layers.GRUCell,
    "gru_before": lambda units, **kwargs: keras.layers.GRUCell(units, reset_after=False, **kwargs),
    "rnn": keras.layers.SimpleRNNCell,
    "lstm": keras.layers.LSTMCell,
}


def recorded(number):
    prefix = f"{number}/"
    return {name.removeprefix(prefix): RECORDED[name] for name in RECORDED if name.startswith(prefix)}


def mechanism(spec, dtype):
    """Our layer, unbuilt, and the names of its weights: ours by those of the case."""
    kind, options = spec["kind"], {"dtype": dtype}
    if kind != "location_sensitive" and "mode" not in spec:
        options["normalizer"] = spec["normalizer"]
    if "mode" in spec:
        options |= {"mode": spec["mode"], "sigmoid_noise": float(spec["noise"] is not None)}
        options["chunk_size"] = spec.get("chunk_size")
    if kind.startswith("general"):
        cls = ka.GeneralAttention if kind == "general" else ka.GeneralMonotonicAttention
        names = {"key_kernel": "kernel", "scale": "scale"}
        layer = cls(use_scale=spec["scale"] is not None, **options)
    else:
        names = {"key_kernel": "key_kernel", "query_kernel": "query_kernel", "vector": "score_vector"}
        names |= {"gain": "gain", "bias": "bias"}
        if kind == "location_sensitive":
            names |= {"filters": "filter_kernel", "location_kernel": "location_kernel"}
            sizes = {"filters": spec["filters"].shape[-1], "kernel_size": len(spec["filters"])}
            layer = ka.LocationSensitiveAttention(spec["units"], cumulative=spec["cumulative"], **sizes, **options)
        else:
            cls = ka.BahdanauAttention if kind == "additive" else ka.BahdanauMonotonicAttention
            layer = cls(spec["units"], normalize=spec["gain"] is not None, **options)
    if "score_bias" in spec:
        names["score_bias"] = "score_bias"
    if "chunk" in spec:
        chunk = {"key_kernel": "key_kernel", "query_kernel": "query_kernel", "vector": "score_vector", "bias": "bias"}
        names |= {f"chunk_{name}": f"chunk_score.{ours}" for name, ours in chunk.items()}
    return layer, names


def make_cell(spec, dtype):
    dropout = {} if spec["input_mask"] is None else {"dropout": 0.4}
    dropout |= {} if spec["recurrent_mask"] is None else {"recurrent_dropout": 0.25}
    return CELLS[spec["kind"]](spec["units"], dtype=dtype, **dropout)


def find(layer, path):
    for name in path.split("."):
        layer = getattr(layer, name)
    return layer


def swapped(kernel, width):
    """The rows of the attention layer's kernel: [state; context] there, [context; state] here, and back."""
    return np.concatenate([kernel[width:], kernel[:width]])


class Ours:
    """Our decoder with the weights of a case, and its weights by the names of the recording."""

    def __init__(self, case):
        self.case, self.weights = case, {}
        cells = [make_cell(spec, case.dtype) for spec in case.cells]
        layers, names = zip(*[mechanism(spec, case.dtype) for spec in case.mechanisms], strict=True)
        self.several = len(layers) > 1
        vectors = "context"
        if case.layers is not None:
            vectors = [ka.AttentionalLayer(k.shape[1], activation=None, dtype=case.dtype) for k in case.layers]
        tanh = None
        if not isinstance(case.cell_input, str):
            tanh = keras.layers.Dense(case.cell_input[0].shape[1], "tanh", dtype=case.dtype)
        self.decoder = ka.AttentionDecoder(
            cells[0] if len(cells) == 1 else keras.layers.StackedRNNCells(cells, dtype=case.dtype),
            list(layers) if self.several else layers[0],
            attend="after",
            attentional=vectors[0] if len(vectors) == 1 else vectors,
            input_feeding=case.cell_input != "inputs",
            output_attention=case.output_attention,
            cell_input=tanh,
            dtype=case.dtype,
        )
        self.memories = [spec["memory"] for spec in case.mechanisms]
        self.decoder.build(case.inputs.shape, self.each([memory.shape for memory in case.memories]))
        for k, (spec, layer) in enumerate(zip(case.mechanisms, layers, strict=True)):
            if spec.get("noise") is not None:
                layer.noise = lambda *_, noise=spec["noise"]: ops.convert_to_tensor(noise)
            given = {**spec, **{f"chunk_{name}": value for name, value in spec.get("chunk", {}).items()}}
            for name, ours in names[k].items():
                if given.get(name) is not None:
                    self.assign(f"mechanism_{k}_{name}", find(layer, ours), given[name])
        for n, (spec, cell) in enumerate(zip(case.cells, cells, strict=True)):
            for name in ("kernel", "recurrent_kernel", "bias"):
                self.assign(f"cell_{n}_{name}", getattr(cell, name), spec[name])
        self.units = case.cells[-1]["units"]
        for n, kernel in enumerate(case.layers or []):
            self.assign(f"layer_{n}", vectors[n].kernel, swapped(kernel, self.units))
        if tanh is not None:
            self.assign("input_kernel", tanh.kernel, case.cell_input[0])
            self.assign("input_bias", tanh.bias, case.cell_input[1])

    def each(self, things):
        """Of several memories, or what belongs to them, one for each mechanism; or the only one."""
        return [things[i] for i in self.memories] if self.several else things[0]

    def masks(self):
        return self.each([None if m is None else ops.convert_to_tensor(m) for m in self.case.masks])

    def assign(self, name, weight, value):
        weight.assign(np.reshape(value, weight.shape))
        self.weights[name] = weight

    def parts(self, leaves):
        """Calls the decoder with arrays in the place of its weights, by the names of the recording."""
        case, leaves = self.case, dict(leaves)
        states = [[leaves.pop(f"state_{n}_{i}") for i in range(len(s))] for n, s in enumerate(case.cell_state or [])]
        inputs, fed = leaves.pop("inputs"), leaves.pop("attention", None)
        values = self.each([leaves.pop(f"memory_{i}") for i in range(len(case.memories))])
        mapping = [(self.weights[name], ops.reshape(x, self.weights[name].shape)) for name, x in leaves.items()]
        with keras.StatelessScope(state_mapping=mapping):
            outputs, _, alignments = self.decoder(
                inputs, values, mask=self.masks(), cell_state=self.stacked(states), fed=fed, training=True
            )
        alignments = alignments if self.several else [alignments]
        return {"outputs": outputs} | {f"alignments_{k}": each for k, each in enumerate(alignments)}

    def stacked(self, states):
        return (states if len(self.case.cells) > 1 else states[0]) if states else None

    def last_states(self):
        """The cell's states after the last step, one step at a time."""
        case, decoder = self.case, self.decoder
        values = self.each([ops.convert_to_tensor(memory) for memory in case.memories])
        states = keras.tree.map_structure(ops.convert_to_tensor, case.cell_state or [])
        fed = None if case.attention is None else ops.convert_to_tensor(case.attention)
        memory, state = decoder.memory(values, self.masks()), decoder.initial_state(values, self.stacked(states), fed)
        for t in range(case.inputs.shape[1]):
            *_, state = decoder.step(ops.convert_to_tensor(case.inputs[:, t]), memory, state)
        return ops.concatenate(keras.tree.flatten(state["cell"]), axis=-1)

    def leaves(self):
        """The arrays by whose gradients the recording differs, in its names."""
        case = self.case
        leaves = {"inputs": case.inputs} | {f"memory_{i}": memory for i, memory in enumerate(case.memories)}
        leaves |= {} if case.attention is None else {"attention": case.attention}
        for n, states in enumerate(case.cell_state or []):
            leaves |= {f"state_{n}_{i}": state for i, state in enumerate(states)}
        return leaves | {name: ops.convert_to_numpy(weight) for name, weight in self.weights.items()}


def close(found, expected, name, tolerance=1e-5):
    """To the tolerance, of the largest figure where that is above 1."""
    found = ops.convert_to_numpy(found)
    assert found.dtype == expected.dtype, name
    np.testing.assert_allclose(found, expected, atol=tolerance * max(1, np.abs(expected).max()), rtol=0, err_msg=name)


def tolerance(case):
    """Keras' own `Dense` multiplies in float32 on torch, whatever its dtype is, and its tanh is float32 on JAX."""
    exact = keras.backend.backend() == "tensorflow" or isinstance(case.cell_input, str)
    return 1e-10 if case.dtype == "float64" and exact else 1e-5


# Each mechanism, normalizer, mode, cell and option, alone or with others; the rest run at night.
CASES = (2, 6, 7, 9, 13, 19, 23, 28, 31, 34, 39, 46, 54, 55, 59, 61, 65, 66, 68, 73, 75, 76)
SEARCHED = range(6)


def all_of(count, daily):
    return [pytest.param(n, marks=[] if n in daily else [pytest.mark.nightly]) for n in range(count)]


def check(number, monkeypatch):
    case, expected = draw(number), recorded(number)
    random = False
    if case.cells[0]["input_mask"] is not None:
        masks = [Masks(cell["input_mask"], cell["recurrent_mask"]) for cell in case.cells]
        masks = keras.tree.map_structure(lambda x: None if x is None else ops.convert_to_tensor(x), masks)
        monkeypatch.setattr(decoder, "draw_masks", lambda *_: masks if len(masks) > 1 else masks[0])
        random = True
    ours = Ours(case)
    weights = case.loss_weights({name: x.shape for name, x in expected.items() if name[:2] in ("ou", "al")})
    weights = {name: ops.convert_to_tensor(x) for name, x in weights.items()}

    def loss(leaves):
        parts = ours.parts(leaves)
        return sum(ops.sum(x * weights[name]) for name, x in parts.items()), parts

    found, gradients = differentiated(loss)(ours.leaves())
    del found["loss"]
    for name, x in found.items():
        close(x, expected[name], name, tolerance(case))
    assert {f"d_{name}" for name in gradients} == {name for name in expected if name.startswith("d_")}
    for name, gradient in gradients.items():
        if name.startswith("layer_"):
            gradient = swapped(gradient, len(gradient) - ours.units)
        close(gradient, np.reshape(expected[f"d_{name}"], gradient.shape), name, tolerance(case))
    if not random and not any(spec.get("noise") is not None for spec in case.mechanisms):
        close(ours.last_states(), expected["states"], "states", tolerance(case))


@pytest.mark.parametrize("number", all_of(len(tfa_cases.KINDS), CASES))
def test_outputs_alignments_states_and_gradients(number, monkeypatch):
    with wide() if draw(number).dtype == "float64" else contextlib.nullcontext():
        check(number, monkeypatch)


def table_step(token_ids, memory, state):
    """Logits by place and previous token."""
    place, previous = ops.one_hot(state, memory["logits"].shape[1]), ops.one_hot(token_ids, tfa_cases.VOCABULARY)
    table = ops.sum(memory["logits"] * place[:, :, None, None], axis=1)  # (R, V, V)
    logits = ops.sum(table * previous[:, :, None], axis=1)  # (R, V)
    return logits, state + 1, ops.ones_like(memory["mask"], "float32")


def searched(case):
    """Our beam search with tfa's norm: it counts the end token, but at the last place, where tfa stops at once."""
    length = case.logits.shape[1]
    counted = np.minimum(np.arange(1, length + 1), length - 1)
    return beam_search(
        table_step,
        {"mask": ops.ones((tfa_cases.B, 1), "bool"), "logits": ops.convert_to_tensor(case.logits)},
        ops.zeros((tfa_cases.B,), "int32"),
        beam_size=case.beam_size,
        n_best=1,
        normalization=(((5 + counted) / 6) ** case.length_penalty).astype("float32"),
        max_length=length,
    )


@pytest.mark.parametrize("number", all_of(tfa_cases.SEARCHES, SEARCHED))
def test_beam_search_with_the_norm_of_tfa(number):
    """A beam of all hypotheses finds the same; a narrow one, where finished ones take no places here, none worse."""
    case = draw_search(number)
    found, ids, scores = searched(case), RECORDED[f"search_{number}/ids"], RECORDED[f"search_{number}/scores"]
    best = ops.convert_to_numpy(found.scores)[:, 0]
    if not case.exhaustive:
        assert (best >= scores.max(-1) - 1e-5).all()
        return
    np.testing.assert_allclose(best, scores[:, 0], atol=1e-5)
    for row, expected in zip(ops.convert_to_numpy(found.token_ids)[:, 0], ids[:, :, 0], strict=True):
        length = list(expected).index(END) + 1
        np.testing.assert_array_equal(row[:length], expected[:length])
