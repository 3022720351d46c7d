"""Products on torch by oneDNN and in bfloat16, with their gradients, against NumPy's and torch's own."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.backend import bfloat16_products, has_accelerator, loop_matmul, loop_product, scan
from tests.contracts.model_rows import VS, VT, B, S, T, make

if keras.backend.backend() != "torch":
    pytest.skip("the products are torch's", allow_module_level=True)

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keras_attn.backend import torch_products

pytestmark = pytest.mark.skipif(has_accelerator(), reason="the products are those on a processor")
with_avx512 = pytest.mark.skipif(
    "AVX512" not in torch.backends.cpu.get_cpu_capability(),
    reason="needs AVX-512, with which oneDNN rounds to bfloat16",
)


def products(*arguments) -> list[str]:
    """The products of a traced matmul, by the names of their operations."""
    with torch.no_grad(), torch_products.OneDNNProducts():
        graph = make_fx(ops.matmul)(*arguments).graph
    names = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    return [name for name in names if name.split(".")[1] in ("mm", "bmm", "addmm", "mv", "_linear_pointwise")]


@pytest.mark.parametrize("rows", [(1,), (70,), (2, 3)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_product_by_onednn_is_numpys(rng, rows, is_transposed):
    x, matrix = (rng.normal(size=shape).astype("float32") for shape in ((*rows, 400), (400, 501)))
    weight = torch.tensor(matrix.T.copy()).T if is_transposed else torch.tensor(matrix)
    with torch.no_grad(), torch_products.OneDNNProducts():
        found = ops.matmul(torch.tensor(x), weight)
    assert products(torch.tensor(x), weight) == ["mkldnn._linear_pointwise.default"]
    np.testing.assert_allclose(found.numpy(), x.astype("float64") @ matrix, rtol=1e-4, atol=1e-4)


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
    with torch_products.OneDNNProducts(), torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert torch.matmul(x, matrix).dtype == torch.bfloat16


@pytest.fixture(params=[False, True])
def multiplied(request, monkeypatch):
    """The products that oneDNN computes: on a CPU without AVX-512, none where a gradient may follow; on one with it."""
    by_onednn, found = torch_products._by_onednn, []
    monkeypatch.setattr(torch_products, "_has_avx512", lambda: request.param)
    monkeypatch.setattr(torch_products, "_by_onednn", lambda *two: found.append(two) or by_onednn(*two))
    yield found
    assert bool(found) == request.param


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

    found, expected = gradients(torch_products.training_products()), gradients(torch.enable_grad())
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))
    assert torch.equal(found[0], found[1])


def test_a_model_trains_with_products_by_onednn(rng, multiplied, monkeypatch):
    """Inside its loops and outside, forwards and backwards: the gradients are those of MKL's products."""
    monkeypatch.setattr(torch_products, "LEAST_SIZE", 1)
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
        patch.setattr(torch_products, "LEAST_SIZE", 10**9)
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


@pytest.mark.usefixtures("with_bfloat16")
@pytest.mark.parametrize("context", [bfloat16_products, torch_products.training_products])
def test_a_part_that_is_computed_again_is_torchs(rng, context, monkeypatch):
    """`keras.RematScope`, whose second computation torch makes outside the context."""
    from torch.utils.checkpoint import checkpoint

    monkeypatch.setattr(torch_products, "_has_avx512", lambda: True)
    weight = torch.tensor(rng.normal(size=(512, 512)).astype("float32"), requires_grad=True)
    x = torch.ones(4, 512)
    with context():
        checkpoint(lambda x: torch.sin(x @ weight), x, use_reentrant=False).sum().backward()
    found, weight.grad = weight.grad, None
    torch.sin(x @ weight).sum().backward()
    np.testing.assert_allclose(found, weight.grad, rtol=1e-4, atol=1e-4)
