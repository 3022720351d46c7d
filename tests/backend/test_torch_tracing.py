"""A traced torch loop gives bit for bit the results of the loop."""

import gc
from weakref import WeakKeyDictionary

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_attn.backend import scan, torch_products, torch_tracing, while_loop
from keras_attn.search import beam_search, greedy_search, run_beam_search, sample, start_beam_search
from keras_attn.translation.search_models import SearchModel
from tests.contracts.model_rows import MODELS, VS, VT, B, S, T, make

on_torch = pytest.mark.skipif(keras.backend.backend() != "torch", reason="only torch's loops are traced")


def compacted(step, memory, state, **options):
    """Beam search that goes on with half of the rows once the others are finished, whatever the batch."""
    norms = ops.ones((options["max_length"],))
    return run_beam_search(*start_beam_search(step, memory, state, norms=norms, **options), compactions=1)


SEARCHES = {
    "beam": (beam_search, {"beam_size": 3, "n_best": 2}),
    "beam, compacted": (
        compacted,
        {"beam_size": 2, "n_best": 1, "coverage_penalty": 0.0, "early_stopping": False, "return_alignments": False},
    ),
    "beam, coverage, n-grams": (
        beam_search,
        {"beam_size": 3, "coverage_penalty": 0.2, "no_repeat_ngram_size": 2, "banned_token_ids": [5]},
    ),
    "greedy": (greedy_search, {}),
    "sample": (sample, {"num_samples": 2, "top_k": 7, "seed": 11}),
}


def test_while_loop():
    """Powers by repeated multiplication, 3^0 among them; without an owner nothing is traced."""

    def below(state, constants):
        return ops.any(state["exponent"] < constants[0])

    def multiply(state, constants):
        more = state["exponent"] < constants[0]
        power = [ops.where(more, state["power"][0] * constants[1], state["power"][0])]
        return {"power": power, "exponent": state["exponent"] + ops.cast(more, "int32")}

    zeros = ops.zeros((4,), dtype="int32")
    start = {"power": [ops.ones((4,))], "exponent": zeros}
    for exponents in ([0, 1, 5, 2], [0, 0, 0, 0]):
        final = while_loop(below, multiply, start, (ops.convert_to_tensor(exponents, "int32"), 3.0))
        np.testing.assert_array_equal(ops.convert_to_numpy(final["power"][0]), 3.0 ** np.array(exponents))
        np.testing.assert_array_equal(ops.convert_to_numpy(final["exponent"]), exponents)


def predict(search_model, source, calls_before_trace, monkeypatch):
    monkeypatch.setattr(torch_tracing, "_CALLS_BEFORE_TRACE", calls_before_trace)
    return search_model.predict_on_batch({"encoder_token_ids": source})


@on_torch
@pytest.mark.parametrize(
    ("name", "search"),
    [*(("rnnsearch", search) for search in SEARCHES), *((name, "beam") for name in MODELS if name != "rnnsearch")],
)
def test_a_trace_is_the_loop_bit_for_bit(name, search, rng, monkeypatch):
    import torch

    monkeypatch.setattr(torch_products, "LEAST_SIZE", 1)
    function, options = SEARCHES[search]
    model = SearchModel(make(name), function, T, **options)
    sources = rng.integers(4, VS, (2, B + 1, S)).astype("int32")
    sources[:, 1, 4:] = 0
    monkeypatch.setattr(torch_tracing, "_traces", WeakKeyDictionary())
    expected = [predict(model, source, 10**9, monkeypatch) for source in sources]
    monkeypatch.setattr(torch_tracing, "_traces", WeakKeyDictionary())
    for source, plain in zip(sources, expected, strict=True):  # traced in the second step of the first source
        traced = predict(model, source, 1, monkeypatch)
        tree.assert_same_structure(plain, traced)
        for key in plain:
            np.testing.assert_array_equal(plain[key], traced[key], err_msg=key)
    entries = torch_tracing._traces[model.seq2seq].values()
    assert all(isinstance(entry, torch.fx.GraphModule) for entry in entries), "a loop was not traced"


@on_torch
def test_a_trace_reads_the_present_weights_and_is_released_with_the_model(rng, monkeypatch):
    entries = WeakKeyDictionary()
    monkeypatch.setattr(torch_tracing, "_traces", entries)
    model = SearchModel(make("rnnsearch"), beam_search, T, beam_size=3)
    source = rng.integers(4, VS, (B, S)).astype("int32")
    before = predict(model, source, 0, monkeypatch)
    for weight in model.seq2seq.trainable_weights:
        weight.assign(-weight)
    after = predict(model, source, 0, monkeypatch)
    assert len(entries) == 3  # the model and its encoder's two cells
    assert np.abs(before["scores"] - after["scores"]).max() > 1e-3
    fresh = SearchModel(make("rnnsearch"), beam_search, T, beam_size=3)
    fresh.seq2seq.set_weights(model.seq2seq.get_weights())
    np.testing.assert_array_equal(predict(fresh, source, 10**9, monkeypatch)["scores"], after["scores"])
    del model, fresh
    gc.collect()
    assert not len(entries)


@on_torch
@pytest.mark.parametrize("masked", [False, True])
def test_a_traced_scan_reads_its_constants_anew(masked, rng, monkeypatch):
    import torch

    monkeypatch.setattr(torch_tracing, "_CALLS_BEFORE_TRACE", 1)
    owner = keras.layers.Dense(3)
    owner.build((None, 3))
    mask = ops.ones((T, B), dtype="bool") if masked else None

    def add(carry, x, constants):
        return carry + constants["memory"] if constants["memory"] is not None else carry + x, carry

    memories = [ops.convert_to_tensor(rng.normal(size=(B, 3)).astype("float32")) for _ in range(3)]
    with torch.no_grad():
        for memory in (*memories, None, memories[0]):
            last, _ = scan(
                add, ops.zeros((B, 3)), ops.ones((T, B, 3)), mask=mask, owner=owner, constants={"memory": memory}
            )
            expected = T * ops.convert_to_numpy(ops.ones((B, 3)) if memory is None else memory)
            np.testing.assert_allclose(ops.convert_to_numpy(last), expected, rtol=1e-6)


@on_torch
def test_a_layer_that_changes_is_traced_anew(rng, monkeypatch):
    monkeypatch.setattr(torch_tracing, "_traces", WeakKeyDictionary())
    model = SearchModel(make("rnnsearch"), beam_search, T, beam_size=3)
    source = rng.integers(4, VS, (B, S)).astype("int32")
    before = predict(model, source, 0, monkeypatch)
    output = next(d for d in model.seq2seq.layers if type(d) is keras.layers.Dense and d.units == VT)
    output.enable_lora(2)
    output.lora_kernel_b.assign(rng.normal(size=output.lora_kernel_b.shape))
    after = predict(model, source, 0, monkeypatch)
    monkeypatch.setattr(torch_tracing, "_traces", WeakKeyDictionary())
    np.testing.assert_array_equal(after["scores"], predict(model, source, 10**9, monkeypatch)["scores"])
    assert np.abs(before["scores"] - after["scores"]).max() > 1e-3


@on_torch
def test_no_trace_with_gradients_or_casts(rng, monkeypatch):
    entries = WeakKeyDictionary()
    monkeypatch.setattr(torch_tracing, "_traces", entries)
    monkeypatch.setattr(torch_tracing, "_CALLS_BEFORE_TRACE", 0)
    model = make("rnnsearch")
    source = ops.convert_to_tensor(rng.integers(4, VS, (B, S)).astype("int32"))
    model.encode(source)  # with gradients on, as outside of predict
    assert not len(entries)
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = SearchModel(make("rnnsearch"), greedy_search, T)
    half.predict_on_batch({"encoder_token_ids": ops.convert_to_numpy(source)})
    assert not len(entries)


@on_torch
def test_a_simpler_graph_has_fewer_operations_and_the_same_results():
    """Numbers are computed once, equal operations joined, views of views skipped, and torch's functions called.

    Weights and draws stay.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from keras_attn.backend.torch_graphs import simplify

    weight = torch.nn.Parameter(torch.ones(3))

    def function(x):
        twice = x.view(2, 3).view(3, 2).view(6) * torch.arange(6).view(6)
        masked = ops.where(x > 0, x, -1.0) + ops.where(x > 0, x, -1.0)
        return twice, masked, x * weight.sum(), torch.rand(2) + torch.rand(2)

    def operations(module):
        called = [node.target for node in module.graph.nodes if node.op in ("call_function", "call_method")]
        return [target if isinstance(target, str) else target.__name__ for target in called]

    x = torch.linspace(-1, 1, 6)
    with torch.no_grad():
        module = make_fx(function)(x)
        before = operations(module)
        simplify(module)
        module.recompile()
        after = operations(module)
        assert len(after) < len(before)
        assert after == [
            *("view", "mul", "gt", "where", "add", "sum", "mul", "rand.default", "rand.default", "add"),
        ]
        for new_weight in (1.0, -2.0):
            weight.fill_(new_weight)
            torch.manual_seed(0)
            expected = function(x)
            torch.manual_seed(0)
            for found, wanted in zip(module(x), expected, strict=True):
                assert torch.equal(found, wanted)


@on_torch
def test_a_view_as_other_numbers_is_no_view():
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from keras_attn.backend.torch_graphs import simplify

    x = torch.tensor([[1.0, -2.0], [3.5, 0.0]])
    module = make_fx(lambda x: x.view(torch.int32).view(-1) >> 3)(x)
    expected = module(x)
    simplify(module)
    assert torch.equal(module(x), expected)


@on_torch
def test_a_graph_that_changes_a_tensor_in_place_stays_as_it_is():
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from keras_attn.backend.torch_graphs import simplify

    def function(x):
        buffer = x * 2
        before = buffer + 1
        buffer.add_(3)
        return before, buffer + 1

    module = make_fx(function)(torch.ones(2))
    nodes = len(module.graph.nodes)
    simplify(module)
    assert len(module.graph.nodes) == nodes
    assert [x.tolist() for x in module(torch.ones(2))] == [[3.0, 3.0], [6.0, 6.0]]
