"""Products of torch by oneDNN are those of NumPy, used where they are meant to be, and have the gradients of others."""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.backend import (
    bfloat16_products,
    fast_products,
    has_accelerator,
    loop_matmul,
    loop_product,
    torch_products,
    torch_tracing,
    while_loop,
)

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch" or has_accelerator(), reason="the products are torch's, on a processor"
)


@pytest.fixture(autouse=True)
def with_avx512(monkeypatch):
    """oneDNN multiplies many rows on any processor; it does so where it is fast."""
    has = torch_products._has
    monkeypatch.setattr(torch_products, "_has", lambda instructions: instructions == "avx512_f" or has(instructions))


def products(*arguments) -> list[str]:
    """The products of the trace of a matmul, by the names of their operations."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch_products.fast_products():
        graph = make_fx(ops.matmul)(*arguments).graph
    names = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    return [name for name in names if name.split(".")[1] in ("mm", "bmm", "addmm", "mv", "_linear_pointwise")]


@pytest.mark.parametrize("rows", [(1,), (5,), (70,), (2, 3)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_product_is_numpys(rng, rows, is_transposed):
    import torch

    x, matrix = (rng.normal(size=shape).astype("float32") for shape in ((*rows, 400), (400, 501)))
    weight = torch.tensor(matrix.T.copy()).T if is_transposed else torch.tensor(matrix)
    with torch.no_grad(), torch_products.fast_products():
        found = ops.matmul(torch.tensor(x), weight)
        assert products(torch.tensor(x), weight) == ["mkldnn._linear_pointwise.default"]
    np.testing.assert_allclose(found.numpy(), x.astype("float64") @ matrix, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("has_avx512", [False, True])
def test_without_avx512_mkl_multiplies_where_a_gradient_may_follow(rng, has_avx512, monkeypatch):
    import torch

    monkeypatch.setattr(torch_products, "_has", lambda _: has_avx512)
    by_onednn, multiplied = torch_products._by_onednn, []
    monkeypatch.setattr(torch_products, "_by_onednn", lambda *two: multiplied.append(two) or by_onednn(*two))
    arrays = [rng.normal(size=size).astype("float32") for size in ((3, 70, 512), (512, 512))]
    x, matrix = (torch.tensor(array, requires_grad=True) for array in arrays)
    with torch_products.fast_products():
        found = x @ matrix
        found.sum().backward()
        assert bool(multiplied) == has_avx512
        with torch.no_grad():
            assert products(x, matrix) == ["mkldnn._linear_pointwise.default"]
    np.testing.assert_allclose(found.detach(), arrays[0].astype("float64") @ arrays[1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(x.grad, np.broadcast_to(arrays[1].sum(1), x.shape), rtol=1e-4, atol=1e-4)


def test_others_are_multiplied_as_ever():
    import torch

    x, matrix = torch.ones(2, 512), torch.ones(512, 512)
    cases = [
        (x[:, :300], torch.ones(300, 512)),  # too small
        (x.bfloat16(), matrix.bfloat16()),
        (x[0], matrix),
        (x[:, ::2], torch.ones(512, 1024)[::2]),  # not as it lies in memory
        (torch.ones(2, 3, 512), torch.ones(2, 512, 512)),
    ]
    with torch.no_grad():
        for arguments in cases:
            (name,) = products(*arguments)
            assert name.startswith("aten.")
        with torch_products.fast_products():
            out = torch.zeros(2, 512)
            torch.matmul(x, matrix, out=out)
            with torch.autocast("cpu", torch.bfloat16):
                assert torch.matmul(x, matrix).dtype == torch.bfloat16
        assert torch.equal(out, torch.full((2, 512), 512.0))


@pytest.mark.parametrize("shape", [(6, 480), (2, 3, 480)])
@pytest.mark.parametrize("in_bfloat16", [False, True])
def test_gradients_are_those_of_the_product(rng, in_bfloat16, shape):
    """Of all that is used twice, and of what alone is asked for; nothing of the context is left afterwards."""
    import torch

    def tensors():
        return [torch.tensor(array, requires_grad=True) for array in arrays]

    def loss(x, matrix):
        return (torch.matmul(torch.sin(torch.matmul(x, matrix)), matrix) * weights).sum()

    arrays = [rng.normal(size=size).astype("float32") / 8 for size in (shape, (480, 480))]
    weights = torch.tensor(rng.normal(size=shape).astype("float32"))
    with torch_products.fast_products(in_bfloat16=in_bfloat16):
        inside = tensors()
        value = loss(*inside)
        (alone,) = torch.autograd.grad(value, inside[:1], retain_graph=True)
        value.backward()
    outside = tensors()
    loss(*outside).backward()
    tolerance = 0.1 if in_bfloat16 else 1e-4
    for found, expected in zip(inside, outside, strict=True):
        np.testing.assert_allclose(found.grad, expected.grad, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(alone, inside[0].grad)
    again = tensors()
    loss(*again).backward()
    for found, expected in zip(again, outside, strict=True):
        assert torch.equal(found.grad, expected.grad)


def test_rounding_is_for_gradients_alone(rng):
    """Results without gradients may become a trace, which is used outside too."""
    import torch

    x, matrix = (torch.tensor(rng.normal(size=(512, 512)).astype("float32")) for _ in range(2))
    with torch_products.fast_products():
        with torch.no_grad():
            expected = torch.matmul(x, matrix)
        with torch_products.fast_products(in_bfloat16=True):
            rounded = torch.matmul(x, matrix)
            with torch.no_grad():
                assert torch.equal(torch.matmul(x, matrix), expected)
        np.testing.assert_allclose(torch.matmul(x, matrix), expected, rtol=1e-4, atol=1e-3)
    assert torch.equal(rounded, expected) != torch_products._multiplies_bfloat16()


def test_a_context_inside_another_one_rounds_only_if_that_does(monkeypatch):
    monkeypatch.setattr(torch_products, "_multiplies_bfloat16", lambda: True)
    with bfloat16_products():
        rounding = torch_products._thread.kind
        with fast_products():
            assert torch_products._thread.kind == rounding
    with fast_products():
        with bfloat16_products():
            assert torch_products._thread.kind == rounding
        assert torch_products._thread.kind != rounding
    assert torch_products._thread.kind is None


def test_translators_multiply_so():
    from keras_attn.backend import inference_function

    seen = []

    class Watched(keras.layers.Dense):
        def call(self, inputs):
            seen.append(torch_products._thread.kind)
            return super().call(inputs)

    model = keras.Sequential([Watched(2)])
    inference_function(model)(np.ones((1, 3), "float32"))
    assert seen[-1] is not None


@pytest.mark.parametrize("in_bfloat16", [False, True])
def test_slices_and_expanded_gradients(rng, in_bfloat16):
    """oneDNN has no fast product of them: they are copied."""
    import torch

    array = rng.normal(size=(512, 1536)).astype("float32") / 8
    x = torch.tensor(rng.normal(size=(4, 512)).astype("float32"), requires_grad=True)

    def gradients(product):
        weight = torch.tensor(array, requires_grad=True)
        y = product(weight)(x)
        y.sum().backward()
        found = y.detach(), x.grad, weight.grad
        x.grad = None
        return found

    with torch_products.fast_products(in_bfloat16):
        found = gradients(lambda weight: loop_product(weight, columns=slice(512, None)))
    expected = gradients(lambda weight: lambda x: x @ weight[:, 512:])
    tolerance = 0.15 if in_bfloat16 else 1e-4
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("in_bfloat16", [False, True])
def test_what_is_not_served_is_torchs_own(in_bfloat16):
    import torch

    weight = torch.ones(512, 512, requires_grad=True)
    with torch_products.fast_products(in_bfloat16):
        assert (torch.eye(512).to_sparse() @ weight).shape == (512, 512)
        (torch.zeros(0, 512) @ weight).sum().backward()
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.ones(4, 511) @ weight
        with torch.autocast("cpu", torch.bfloat16):
            assert (torch.ones(4, 512) @ weight).dtype == torch.bfloat16
    assert not weight.grad.any()


@pytest.mark.parametrize("in_bfloat16", [False, True])
def test_a_part_that_is_computed_again_is_multiplied_as_ever(rng, in_bfloat16):
    """`keras.RematScope`, whose second computation torch makes outside the context."""
    import torch
    from torch.utils.checkpoint import checkpoint

    weight = torch.tensor(rng.normal(size=(512, 512)).astype("float32"), requires_grad=True)
    x = torch.ones(4, 512)
    with torch_products.fast_products(in_bfloat16):
        checkpoint(lambda x: torch.sin(x @ weight), x, use_reentrant=False).sum().backward()
    found, weight.grad = weight.grad, None
    torch.sin(x @ weight).sum().backward()
    np.testing.assert_allclose(found, weight.grad, rtol=1e-4, atol=1e-4)


def test_a_row_for_each_kernel_has_the_gradients_of_the_sum(rng):
    """sum_t sin(a_t V): the gradient of V is one product over t, and nothing keeps V after the loop."""
    import gc
    import weakref

    import torch

    arrays = [rng.normal(size=size).astype("float32") for size in ((5, 2, 1, 4), (2, 4, 3))]

    def gradients(product):
        rows, values = (torch.tensor(array, requires_grad=True) for array in arrays)
        shared = torch.tanh(values)
        torch.stack([torch.sin(product(row, shared)) for row in rows]).sum().backward()
        return (rows.grad, values.grad), weakref.ref(shared), shared in torch_products._batch_products()

    found, values_then, has_entry = gradients(loop_matmul)
    for one, other in zip(found, gradients(torch.matmul)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    gc.collect()
    assert has_entry
    assert values_then() is None
    values = torch.ones(2, 4, 3, requires_grad=True) * 1
    first = loop_matmul(torch.ones(2, 1, 4), values)
    values.mul_(2)  # in place
    assert torch.equal(loop_matmul(torch.ones(2, 1, 4), values), 2 * first)


def test_gradients_have_gradients(rng):
    """Of the kernels and values of a loop, whose product after the loop is a part of the graph."""
    import torch

    def loop(x, kernel, values):
        product, read, y = loop_product(kernel), torch.sin(values), x
        for _ in range(3):
            y = torch.tanh(product(y) + loop_matmul(y[:, None], read)[:, 0])
        return y

    shapes = (2, 3), (3, 3), (2, 3, 3)
    arguments = [torch.tensor(rng.normal(size=shape), requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(loop, arguments)
    assert torch.autograd.gradgradcheck(loop, arguments)


def test_a_gradient_of_inputs_alone_keeps_nothing(rng):
    """Nor with `create_graph`: no kernel's gradient would take what a product has kept for it."""
    import gc

    import torch

    def tensors() -> int:
        kernel, x = torch.ones(4, 4, requires_grad=True), torch.ones(2, 4, requires_grad=True)
        for create_graph in (False, True):
            product, y = loop_product(kernel), x
            for _ in range(5):
                y = torch.tanh(product(y))
            torch.autograd.grad(y.sum(), x, create_graph=create_graph)
        gc.collect()
        return sum(isinstance(one, torch.Tensor) for one in gc.get_objects())

    tensors()
    before = tensors()
    assert [tensors() for _ in range(3)] == [before] * 3


def test_gradients_of_the_contexts_products_have_gradients_but_for_rounded_ones(rng, monkeypatch):
    import torch

    arrays = [rng.normal(size=size).astype("float32") / 8 for size in ((6, 480), (480, 480))]

    def second(context):
        x, matrix = (torch.tensor(array, requires_grad=True) for array in arrays)
        with context:
            value = torch.sin(torch.sin(x @ matrix) @ matrix).sum()
            first = torch.autograd.grad(value, (x, matrix), create_graph=True)
        sum((gradient**2).sum() for gradient in first).backward()
        return x.grad, matrix.grad

    expected = second(contextlib.nullcontext())
    for found, one in zip(second(fast_products()), expected, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-5, atol=1e-5 * float(one.abs().max()))
    monkeypatch.setattr(torch_products, "_multiplies_bfloat16", lambda: True)
    with pytest.raises(RuntimeError, match="create_graph"):
        second(bfloat16_products())


def test_loops_multiply_so_from_the_first_step_on(rng, monkeypatch):
    """Otherwise results would change when a loop is traced."""
    import torch

    class Owner(keras.layers.Layer):
        pass

    owner = Owner()
    matrix = torch.tensor(rng.normal(size=(512, 512)).astype("float32"))
    start = torch.tensor(rng.normal(size=(5, 512)).astype("float32"))

    def steps(count):
        def goes_on(state, constants):
            return state["step"] < constants[0]

        def body(state, constants):
            return {"step": state["step"] + 1, "x": ops.tanh(ops.matmul(state["x"], constants[1]))}

        state = {"step": torch.tensor(0), "x": start}
        return while_loop(goes_on, body, state, (torch.tensor(count), matrix), owner)["x"]

    with torch.no_grad():
        monkeypatch.setattr(torch_tracing, "_CALLS_BEFORE_TRACE", 10**9)
        expected = steps(7)
        monkeypatch.setattr(torch_tracing, "_CALLS_BEFORE_TRACE", 2)
        assert torch.equal(steps(7), expected)
        with torch_products.fast_products():
            x = start
            for _ in range(7):
                x = ops.tanh(ops.matmul(x, matrix))
    assert torch.equal(x, expected)
