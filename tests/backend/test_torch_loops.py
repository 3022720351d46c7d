"""Loops on torch: traces are the loop bit for bit; products by oneDNN and in bfloat16, gradients after the loop."""

import gc
import itertools
import weakref

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_attn.backend import bfloat16_products, has_accelerator, loop_matmul, loop_product, scan, while_loop
from keras_attn.layers import BiGRUEncoder
from keras_attn.models import SearchModel
from keras_attn.search import beam_search, greedy_search, run_beam_search, sample, start_beam_search
from tests.contracts.model_rows import MODELS, VS, VT, B, S, T, make

if keras.backend.backend() != "torch":
    pytest.skip("the loops are torch's", allow_module_level=True)

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keras_attn.backend import torch_loops

on_cpu = pytest.mark.skipif(has_accelerator(), reason="the products are those on a processor")
with_avx512 = pytest.mark.skipif(
    "AVX512" not in torch.backends.cpu.get_cpu_capability(),
    reason="needs AVX-512, with which oneDNN rounds to bfloat16",
)


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
    monkeypatch.setattr(torch_loops, "LEAST_SIZE", 1)
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


def test_a_trace_reads_the_present_weights_and_is_released_with_the_model(rng, monkeypatch):
    """Weights with other values are read; other weights (LoRA) are traced anew."""
    entries = weakref.WeakKeyDictionary()
    monkeypatch.setattr(torch_loops, "_traces", entries)
    model = SearchModel(make("rnnsearch"), beam_search, T, beam_size=3)
    source = rng.integers(4, VS, (B, S)).astype("int32")
    scores = [predict(model, source, 0, monkeypatch)["scores"]]
    assert len(entries) == 3  # the model and its encoder's two cells
    for change in (negate, add_low_rank_part):
        change(model.seq2seq, rng)
        scores.append(predict(model, source, 0, monkeypatch)["scores"])
        with monkeypatch.context() as patch:
            patch.setattr(torch_loops, "_traces", weakref.WeakKeyDictionary())
            np.testing.assert_array_equal(predict(model, source, 10**9, patch)["scores"], scores[-1])
        assert np.abs(scores[-2] - scores[-1]).max() > 1e-3
    del model
    gc.collect()
    assert not len(entries)


def negate(model, rng):
    for weight in model.trainable_weights:
        weight.assign(-weight)


def add_low_rank_part(model, rng):
    output = next(d for d in model.layers if type(d) is keras.layers.Dense and d.units == VT)
    output.enable_lora(2)
    output.lora_kernel_b.assign(rng.normal(size=output.lora_kernel_b.shape))


def test_a_traced_scan_reads_its_constants_anew(rng, monkeypatch):
    monkeypatch.setattr(torch_loops, "_CALLS_BEFORE_TRACE", 1)
    owner = keras.layers.Dense(3)
    owner.build((None, 3))
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
def owner(monkeypatch):
    monkeypatch.setattr(torch_loops, "_traces", weakref.WeakKeyDictionary())
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


def test_no_trace_with_gradients_or_casts(rng, monkeypatch):
    entries = weakref.WeakKeyDictionary()
    monkeypatch.setattr(torch_loops, "_traces", entries)
    monkeypatch.setattr(torch_loops, "_CALLS_BEFORE_TRACE", 0)
    model = make("rnnsearch")
    source = ops.convert_to_tensor(rng.integers(4, VS, (B, S)).astype("int32"))
    model.encode(source)  # with gradients on, as outside of predict
    assert not len(entries)
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = SearchModel(make("rnnsearch"), greedy_search, T)
    half.predict_on_batch({"encoder_token_ids": ops.convert_to_numpy(source)})
    assert not len(entries)


def test_what_torch_exports_has_no_trace_of_tensors_without_values(rng, monkeypatch):
    entries = weakref.WeakKeyDictionary()
    monkeypatch.setattr(torch_loops, "_traces", entries)
    inputs = keras.Input((9, 3))
    model = keras.Model(inputs, BiGRUEncoder(4)(inputs)[0])
    x = torch.tensor(rng.normal(size=(2, 9, 3)).astype("float32"))
    with torch.no_grad():
        exported = torch.export.export(model, (x,)).module()
        assert not len(entries)
        np.testing.assert_allclose(exported(x), model(x), rtol=1e-5, atol=1e-6)


def products(*arguments) -> list[str]:
    """The products of a traced matmul, by the names of their operations."""
    with torch.no_grad(), torch_loops.OneDNNProducts():
        graph = make_fx(ops.matmul)(*arguments).graph
    names = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    return [name for name in names if name.split(".")[1] in ("mm", "bmm", "addmm", "mv", "_linear_pointwise")]


@on_cpu
@pytest.mark.parametrize("rows", [(1,), (70,), (2, 3)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_product_by_onednn_is_numpys(rng, rows, is_transposed):
    x, matrix = (rng.normal(size=shape).astype("float32") for shape in ((*rows, 400), (400, 501)))
    weight = torch.tensor(matrix.T.copy()).T if is_transposed else torch.tensor(matrix)
    with torch.no_grad(), torch_loops.OneDNNProducts():
        found = ops.matmul(torch.tensor(x), weight)
    assert products(torch.tensor(x), weight) == ["mkldnn._linear_pointwise.default"]
    np.testing.assert_allclose(found.numpy(), x.astype("float64") @ matrix, rtol=1e-4, atol=1e-4)


@on_cpu
def test_other_products_are_torchs():
    x, matrix = torch.ones(2, 512), torch.ones(512, 512)
    for arguments in (
        (x[:, :300], torch.ones(300, 512)),  # too small
        (x.bfloat16(), matrix.bfloat16()),
        (x[0], matrix),
        (x[:, ::2], torch.ones(512, 1024)[::2]),  # not as it lies in memory
        (torch.ones(2, 3, 512), torch.ones(2, 512, 512)),
    ):
        (name,) = products(*arguments)
        assert name.startswith("aten.")
    with torch_loops.OneDNNProducts(), torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert torch.matmul(x, matrix).dtype == torch.bfloat16


@pytest.fixture(params=[False, True])
def multiplied(request, monkeypatch):
    """The products that oneDNN computes: on a CPU without AVX-512, none where a gradient may follow; on one with it."""
    by_onednn, found = torch_loops._by_onednn, []
    monkeypatch.setattr(torch_loops, "_has_avx512", lambda: request.param)
    monkeypatch.setattr(torch_loops, "_by_onednn", lambda *two: found.append(two) or by_onednn(*two))
    yield found
    assert bool(found) == request.param


@on_cpu
@pytest.mark.parametrize("shape", [(6, 480), (2, 3, 480)])
def test_gradients_of_products_by_onednn_are_torchs(rng, shape, multiplied):
    """Of factors that are used twice, of one factor alone, of slices, and of a gradient."""
    arrays = [rng.normal(size=size).astype("float32") / 8 for size in (shape, (480, 960))]
    weights = torch.tensor(rng.normal(size=shape).astype("float32"))

    def gradients(context):
        x, wide = (torch.tensor(array, requires_grad=True) for array in arrays)
        with context:
            matrix = wide[:, ::2]  # not as it lies in memory
            value = (torch.sin(x @ matrix) @ matrix * weights).sum()
            (alone,) = torch.autograd.grad(value, x, retain_graph=True)
            value.backward(retain_graph=True)
            (first,) = torch.autograd.grad(value, x, create_graph=True)
            (second,) = torch.autograd.grad((first**2).sum(), wide)
        return alone, x.grad, wide.grad, second

    found, expected = gradients(torch_loops.training_products()), gradients(torch.enable_grad())
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))
    assert torch.equal(found[0], found[1])


@on_cpu
def test_a_model_trains_with_products_by_onednn(rng, multiplied, monkeypatch):
    """Inside its loops and outside, forwards and backwards: the gradients are those of MKL's products."""
    monkeypatch.setattr(torch_loops, "LEAST_SIZE", 1)
    model = make("rnnsearch")
    inputs = {
        "encoder_token_ids": rng.integers(4, VS, (B, S)).astype("int32"),
        "decoder_token_ids": rng.integers(4, VT, (B, T)).astype("int32"),
    }

    def gradients():
        model.zero_grad()
        ops.sum(ops.square(model(inputs, training=True))).backward()
        return [weight.value.grad.clone() for weight in model.trainable_weights]

    found = gradients()
    widths = {matrix.shape[-1] for _, matrix in multiplied}
    assert not widths or {VT, 3 * model.decoder_units} <= widths  # the output's product, outside; the cell's, inside
    with monkeypatch.context() as patch:
        patch.setattr(torch_loops, "LEAST_SIZE", 10**9)
        expected = gradients()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))


@pytest.fixture
def with_bfloat16(monkeypatch):
    """A processor that multiplies bfloat16."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})


def rnn_gradients(arrays, length=4):
    """Gradients of a scan whose step has two products: with a kernel, and with a kernel for each row."""
    h, kernel, values = (torch.tensor(array, requires_grad=True) for array in arrays)

    def run():
        product, read = loop_product(kernel), torch.sin(values)

        def step(h, _):
            h = torch.tanh(product(h) + loop_matmul(h[:, None], read)[:, 0])
            return h, h

        return scan(step, h, length=length)[1]

    (torch.cos(run()).sum()).backward()
    return h.grad, kernel.grad, values.grad


@on_cpu
@with_avx512
@pytest.mark.usefixtures("with_bfloat16")
def test_products_in_bfloat16_have_gradients_of_that_precision(rng):
    """In a loop and outside, and those of gradients; nothing of the context is left afterwards."""
    arrays = [rng.normal(size=size).astype("float32") / 8 for size in ((6, 96), (96, 96), (6, 96, 96))]
    exact = rnn_gradients(arrays)
    with bfloat16_products():
        rounded = rnn_gradients(arrays)
    for found, expected in zip(rounded, exact, strict=True):
        scale = float(expected.abs().max())
        assert 0 < (found - expected).abs().max() < 0.05 * scale
    for found, expected in zip(rnn_gradients(arrays), exact, strict=True):
        assert torch.equal(found, expected)

    def second(context):
        x, matrix = (torch.tensor(array, requires_grad=True) for array in arrays[:2])
        with context:
            value = torch.sin(torch.sin(x @ matrix) @ matrix).sum()
            first = torch.autograd.grad(value, (x, matrix), create_graph=True)
        sum((gradient**2).sum() for gradient in first).backward()
        return x.grad, matrix.grad

    for found, expected in zip(second(bfloat16_products()), second(torch.enable_grad()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0.05, atol=0.05 * float(expected.abs().max()))


@on_cpu
@with_avx512
@pytest.mark.usefixtures("with_bfloat16")
def test_other_products_are_not_rounded_to_bfloat16():
    """Results without gradients, which a trace would keep; sparse, empty and narrow factors; autocast has its own."""
    x, weight = torch.full((4, 512), 1 + 2**-12), torch.ones(512, 512, requires_grad=True)
    exact, rounded = 512 * (1 + 2**-12), 512
    with bfloat16_products():
        assert (x @ weight)[0, 0] == rounded
        with torch.no_grad():
            assert (x @ weight)[0, 0] == exact
        assert (x @ weight[:, :63])[0, 0] == exact
        assert (torch.eye(512).to_sparse() @ weight).shape == (512, 512)
        assert (torch.zeros(0, 512) @ weight).shape == (0, 512)
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.ones(4, 511) @ weight
        with torch.autocast("cpu", torch.bfloat16):
            assert (x @ weight).dtype == torch.bfloat16
    assert (x @ weight)[0, 0] == exact


@on_cpu
@pytest.mark.usefixtures("with_bfloat16")
@pytest.mark.parametrize("context", [bfloat16_products, torch_loops.training_products])
def test_a_part_that_is_computed_again_is_torchs(rng, context, monkeypatch):
    """`keras.RematScope`, whose second computation torch makes outside the context."""
    from torch.utils.checkpoint import checkpoint

    monkeypatch.setattr(torch_loops, "_has_avx512", lambda: True)
    weight = torch.tensor(rng.normal(size=(512, 512)).astype("float32"), requires_grad=True)
    x = torch.ones(4, 512)
    with context():
        checkpoint(lambda x: torch.sin(x @ weight), x, use_reentrant=False).sum().backward()
    found, weight.grad = weight.grad, None
    torch.sin(x @ weight).sum().backward()
    np.testing.assert_allclose(found, weight.grad, rtol=1e-4, atol=1e-4)


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
