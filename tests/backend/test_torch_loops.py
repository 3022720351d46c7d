"""Loops on torch: traces are the loop bit for bit; gradients of kernels after the loop."""

import gc
import itertools
import weakref

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_attn.backend import loop_matmul, loop_product, scan, while_loop
from keras_attn.layers import BiGRUEncoder
from keras_attn.models import SearchModel
from keras_attn.search import beam_search, greedy_search, run_beam_search, sample, start_beam_search
from tests.contracts.model_rows import MODELS, VS, VT, B, S, T, make

if keras.backend.backend() != "torch":
    pytest.skip("the loops are torch's", allow_module_level=True)

import torch

from keras_attn.backend import torch_loops, torch_products
from tests.backend.test_torch_products import rnn_gradients


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


def predict(search_model, source, calls_before_trace, monkeypatch):
    monkeypatch.setattr(torch_loops, "_CALLS_BEFORE_TRACE", calls_before_trace)
    return search_model.predict_on_batch({"encoder_token_ids": source})


@pytest.mark.parametrize(
    ("name", "search"),
    [*(("rnnsearch", search) for search in SEARCHES), *((name, "beam") for name in MODELS if name != "rnnsearch")],
)
def test_a_trace_is_the_loop_bit_for_bit(name, search, rng, monkeypatch):
    monkeypatch.setattr(torch_products, "LEAST_SIZE", 1)
    function, options = SEARCHES[search]
    model = SearchModel(make(name), function, T, **options)
    sources = rng.integers(4, VS, (2, B + 1, S)).astype("int32")
    sources[:, 1, 4:] = 0
    monkeypatch.setattr(torch_loops, "_traces", weakref.WeakKeyDictionary())
    expected = [predict(model, source, 10**9, monkeypatch) for source in sources]
    monkeypatch.setattr(torch_loops, "_traces", weakref.WeakKeyDictionary())
    for source, plain in zip(sources, expected, strict=True):  # traced in the second step of the first source
        traced = predict(model, source, 1, monkeypatch)
        tree.assert_same_structure(plain, traced)
        for key in plain:
            np.testing.assert_array_equal(plain[key], traced[key], err_msg=key)
    entries = torch_loops._traces[model.seq2seq].values()
    assert all(callable(entry) for entry in entries), "a loop was not traced"


@pytest.fixture
def traces(monkeypatch):
    """The traces by their owner, none at first."""
    monkeypatch.setattr(torch_loops, "_traces", weakref.WeakKeyDictionary())
    return torch_loops._traces


def test_a_trace_reads_the_present_weights_and_is_released_with_the_model(traces, rng, monkeypatch):
    """Weights with other values are read; other weights (LoRA) are traced anew."""
    model = SearchModel(make("rnnsearch"), beam_search, T, beam_size=3)
    source = rng.integers(4, VS, (B, S)).astype("int32")
    scores = [predict(model, source, 0, monkeypatch)["scores"]]
    assert len(traces) == 3  # the model and its encoder's two cells
    for change in (negate, add_low_rank_part):
        change(model.seq2seq, rng)
        scores.append(predict(model, source, 0, monkeypatch)["scores"])
        with monkeypatch.context() as patch:
            patch.setattr(torch_loops, "_traces", weakref.WeakKeyDictionary())
            np.testing.assert_array_equal(predict(model, source, 10**9, patch)["scores"], scores[-1])
        assert np.abs(scores[-2] - scores[-1]).max() > 1e-3
    del model
    gc.collect()
    assert not len(traces)


def negate(model, rng):
    for weight in model.trainable_weights:
        weight.assign(-weight)


def add_low_rank_part(model, rng):
    output = next(d for d in model.layers if type(d) is keras.layers.Dense and d.units == VT)
    output.enable_lora(2)
    output.lora_kernel_b.assign(rng.normal(size=output.lora_kernel_b.shape))


def test_a_traced_scan_reads_its_constants_anew(owner, rng, monkeypatch):
    monkeypatch.setattr(torch_loops, "_CALLS_BEFORE_TRACE", 1)
    mask = ops.ones((T, B), dtype="bool")

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


def scanned(step, xs, owner):
    """The outputs of a scan, and the entries of its owner."""
    _, found = scan(step, ops.zeros(()), xs, owner=owner)
    return found.tolist(), list(torch_loops._traces.get(owner, {}).values())


@pytest.fixture
def owner(traces):
    layer = keras.layers.Dense(3, kernel_initializer="ones")
    layer.build((None, 2))
    return layer


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "read",
    [
        lambda x: ops.convert_to_tensor(float(x.sum())),  # a trace would keep the number
        lambda x: ops.convert_to_tensor(x.numpy().sum()),  # the dispatcher sees no operation
        lambda x: ops.convert_to_tensor(ops.convert_to_numpy(x)).sum(),
        lambda x: x.sum() + x.tolist()[0],
        lambda x: x.clone().add_(1).sum(),
        lambda x: ops.where(x.sum() > 2, 3.0, x.sum()) if x.sum() > 1 else x.sum(),
        lambda x: x.sum() + torch.rand((), generator=torch.Generator().manual_seed(1)),  # no source code has it
    ],
    ids=["item", "numpy", "array", "list", "in place", "condition", "generator"],
)
def test_what_a_trace_would_repeat_wrongly_is_not_traced(read, mode, owner):
    xs = torch.tensor([[0.0, 1.0]] * 8 + [[2.0, 3.0], [4.0, 0.5]])  # the first ones alike, which confirm a trace
    with mode():
        found, entries = scanned(lambda carry, x: (carry, read(x)), xs, owner)
        assert found == [float(read(x)) for x in xs]
    assert entries == [torch_loops._NEVER]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "read",
    [lambda w: w.T.reshape(-1), lambda w: w.T.contiguous()[0], lambda w: w.to(torch.float64), lambda w: w.T[0]],
    ids=["reshape", "contiguous", "cast", "view"],
)
def test_a_copy_of_a_weight_is_made_anew_in_each_step(read, mode, owner):
    step, xs = lambda carry, x: (carry, x.sum() * read(owner.kernel.value).sum()), torch.ones(9, 2)
    with mode():
        before, entries = scanned(step, xs, owner)
        assert all(map(callable, entries))
        owner.kernel.assign(3 * owner.kernel)
        assert scanned(step, xs, owner)[0] == [3 * one for one in before]


def below_nine(state, _):
    return state[0] < 9


def test_what_python_counts_is_not_traced(owner):
    calls, later = itertools.count(), itertools.count()
    with torch.no_grad():
        found, entries = scanned(lambda carry, x: (carry, x.sum() + next(calls)), torch.ones(9, 2), owner)
        assert (found, entries) == ([2.0 + n for n in range(9)], [torch_loops._NEVER])
        state = while_loop(lambda s, _: next(later) < 9, lambda s, _: (s[0] + 1,), (ops.zeros(()),), (), owner)
    assert float(state[0]) == 9


def test_a_caller_may_write_into_the_results(owner):
    def body(state, _):
        return state[0] + 1, ops.zeros((2,)), owner.bias.value

    start = ops.convert_to_tensor(0), ops.zeros((2,)), ops.zeros((3,))
    with torch.no_grad():
        for _ in range(3):
            _, zeros, bias = while_loop(below_nine, body, start, (), owner)
            assert zeros.tolist() == [0, 0]
            zeros.add_(1)
    assert bias.tolist() == [0, 0, 0]


class Factor:
    def __init__(self, factor):
        self.factor = factor

    def times(self, x):
        return x * self.factor


def times_constant(state, constants):
    return state[0] + 1, constants[0](state[1])


def test_methods_of_two_objects_have_two_traces_and_old_traces_go(owner, monkeypatch):
    monkeypatch.setattr(torch_loops, "_MOST_TRACES", 3)
    with torch.no_grad():
        for factor in (1.0, 2.0, 3.0, 4.0, 5.0, 2.0):
            state = ops.convert_to_tensor(0), ops.ones(())
            last = while_loop(below_nine, times_constant, state, (Factor(factor).times,), owner)
            assert float(last[1]) == factor**9
    assert len(torch_loops._traces[owner]) == 3


def test_python_values_and_symbolic_calls_are_not_traced(owner):
    with torch.no_grad():
        last = while_loop(lambda s, _: bool(s[0] < 9), lambda s, _: (s[0] + 1,), (ops.zeros(()),), (), owner)
        assert (float(last[0]), *torch_loops._traces[owner].values()) == (9, torch_loops._NEVER)
        last = while_loop(lambda s, _: s[0] < 9, lambda s, _: (s[0] + 1, s[1] + 1), (ops.zeros(()), 1), (), owner)
        assert (float(last[0]), last[1]) == (9, 10)
        _, found = scan(
            lambda c, x: (c, x.sum()), torch.zeros((), device="meta"), torch.ones(9, 2, device="meta"), owner=owner
        )
        assert found.is_meta
    assert len(torch_loops._traces[owner]) == 1


def test_no_trace_with_gradients_or_casts(traces, rng, monkeypatch):
    monkeypatch.setattr(torch_loops, "_CALLS_BEFORE_TRACE", 0)
    model = make("rnnsearch")
    source = ops.convert_to_tensor(rng.integers(4, VS, (B, S)).astype("int32"))
    model.encode(source)  # with gradients on, as outside of predict
    assert not len(traces)
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = SearchModel(make("rnnsearch"), greedy_search, T)
    half.predict_on_batch({"encoder_token_ids": ops.convert_to_numpy(source)})
    assert not len(traces)


def test_what_torch_exports_has_no_trace_of_tensors_without_values(traces, rng):
    inputs = keras.Input((9, 3))
    model = keras.Model(inputs, BiGRUEncoder(4)(inputs)[0])
    x = torch.tensor(rng.normal(size=(2, 9, 3)).astype("float32"))
    with torch.no_grad():
        exported = torch.export.export(model, (x,)).module()
        assert not len(traces)
        np.testing.assert_allclose(exported(x), model(x), rtol=1e-5, atol=1e-6)


def test_gradients_after_the_loop_are_those_of_the_sum_and_have_gradients(rng):
    """Of kernels before the loop, one used twice in a step, one made in a step, and one that the first step lacks."""

    def loop(x, kernel, values):
        product, read = loop_product(kernel), torch.sin(values)

        def step(carry, x):
            y, number = carry
            y = torch.tanh(product(y) + loop_matmul(y[:, None], read)[:, 0] + x)
            made = torch.sin(kernel * y.sum())
            y = product(y) + loop_matmul(y, made) + (loop_matmul(y, kernel) if number else 0)
            return (y, number + 1), y

        return scan(step, (x[0], 0), x)[1]

    shapes = (3, 2, 3), (3, 3), (2, 3, 3)
    arguments = [torch.tensor(rng.normal(size=shape), requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(loop, arguments)
    assert torch.autograd.gradgradcheck(loop, arguments)


def test_nothing_keeps_tensors_after_the_loop():
    """Nor if the gradient of the inputs alone is asked for, with `create_graph` or without."""

    def tensors() -> int:
        kernel, x = torch.ones(4, 4, requires_grad=True), torch.ones(2, 4, requires_grad=True)
        values = torch.sin(torch.ones(2, 4, 4, requires_grad=True))
        for create_graph in (False, True):
            product = loop_product(kernel)
            _, y = scan(lambda y, _: (product(y) + loop_matmul(y[:, None], values)[:, 0],) * 2, x, length=5)  # noqa: B023
            torch.autograd.grad(y.sum(), x, create_graph=create_graph)
        gc.collect()
        return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())

    tensors()
    before = tensors()
    assert [tensors() for _ in range(3)] == [before] * 3


def test_a_backward_loop_has_no_product_for_the_kernel_and_makes_no_long_copies(rng):
    """x^T g is computed once, after the loop; the memory of the backward pass grows like T, not T^2."""
    arrays = [rng.normal(size=size).astype("float32") for size in ((2, 3), (3, 3), (2, 3, 3))]
    counts = []
    for length in (4, 9):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            rnn_gradients(arrays, length)
        counts.append({e.key: e.count for e in profile.key_averages()})
    assert [counts[1][name] - counts[0][name] for name in ("aten::mm", "aten::bmm")] == [10, 10]

    def allocated(length):
        x = torch.ones(length, 64, 256, requires_grad=True)
        _, ys = scan(lambda c, x: (torch.tanh(c + x), c), torch.zeros(64, 256), x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            ys.sum().backward()
        return sum(max(event.self_cpu_memory_usage, 0) for event in profile.key_averages())

    assert allocated(64) < 2.5 * allocated(32)
