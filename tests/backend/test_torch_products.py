"""Products by oneDNN in the loops of torch are those of NumPy, and used where they are meant to be."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.backend import torch_products, torch_tracing, while_loop

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="the products are torch's")


def products(*arguments) -> list[str]:
    """The products of the trace of a matmul, by the names of their operations."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch_products.fast_products():
        graph = make_fx(ops.matmul)(*arguments).graph
    names = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    return [name for name in names if name.split(".")[1] in ("mm", "bmm", "addmm", "mv", "_linear_pointwise")]


@pytest.mark.parametrize("rows", [1, 5, 70])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_product_is_numpys(rng, rows, is_transposed):
    import torch

    x, matrix = (rng.normal(size=shape).astype("float32") for shape in ((rows, 400), (400, 501)))
    weight = torch.tensor(matrix.T.copy()).T if is_transposed else torch.tensor(matrix)
    with torch.no_grad(), torch_products.fast_products():
        found = ops.matmul(torch.tensor(x), weight)
        assert products(torch.tensor(x), weight) == ["mkldnn._linear_pointwise.default"]
    np.testing.assert_allclose(found.numpy(), x.astype("float64") @ matrix, rtol=1e-4, atol=1e-4)


def test_others_are_multiplied_as_ever():
    import torch

    x, matrix = torch.ones(2, 512), torch.ones(512, 512)
    cases = [
        (x[:, :300], torch.ones(300, 512)),  # too small
        (x.bfloat16(), matrix.bfloat16()),
        (x[None], matrix),
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
    weight = torch.nn.Parameter(matrix)
    with torch_products.fast_products():  # with gradients
        torch.matmul(x, weight).sum().backward()
    assert torch.equal(weight.grad, torch.full((512, 512), 2.0))


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
