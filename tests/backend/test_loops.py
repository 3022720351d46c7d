"""`scan` against a plain loop in NumPy: values, masks, both directions, gradients."""

import platform
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.backend import bfloat16_products, loop_matmul, loop_product, scan, while_loop
from tests.contracts import model_rows
from tests.gradients import gradients, numeric_gradients

on_tensorflow = keras.backend.backend() == "tensorflow"

B, T, H = 3, 5, 2


@pytest.fixture(autouse=True)
def _no_kernel_is_small(monkeypatch):
    if on_tensorflow:
        monkeypatch.setattr("keras_attn.backend.tensorflow_loops.LEAST_WIDTH", 1)


def numpy_scan(x, h, w, mask, reverse):
    """h_t = tanh(h_{t-1} w + x_t) where the mask is True; outputs 2 h_t and the running count of real steps."""
    count = np.zeros(len(h))
    outputs, counts = np.zeros_like(x), np.zeros(x.shape[:2])
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        real = mask[t][:, None]
        h = np.where(real, np.tanh(h @ w + x[t]), h)
        count = count + mask[t]
        outputs[t], counts[t] = np.where(real, 2 * h, 0), np.where(mask[t], count, 0)
    return h, count, outputs, counts


def run_scan(x, h, w, mask, reverse):
    product = loop_product(w)

    def step(carry, x):
        h = ops.tanh(product(carry["h"]) + x["x"])
        count = carry["counts"][0] + 1.0
        return {"h": h, "counts": [count]}, (2 * h, {"count": count})

    init = {"h": h, "counts": [ops.zeros_like(h[:, 0])]}
    return scan(step, init, {"x": x}, reverse=reverse, mask=mask)


@pytest.fixture
def arrays(rng):
    x, h, w = (rng.normal(size=shape).astype("float32") for shape in ((T, B, H), (B, H), (H, H)))
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 0]], "bool").T
    return x, h, w, mask


@pytest.mark.parametrize("reverse", [False, True])
def test_nested_carry_inputs_and_outputs_follow_a_plain_loop(arrays, reverse):
    carry, (doubles, counts) = run_scan(*map(ops.convert_to_tensor, arrays), reverse)
    got = (carry["h"], carry["counts"][0], doubles, counts["count"])
    for value, oracle in zip(got, numpy_scan(*arrays, reverse), strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(value), oracle, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("reverse", "jit_compile"), [(False, False), (True, on_tensorflow)])
def test_gradients_reach_inputs_carry_and_weights(arrays, reverse, jit_compile):
    x, h, w, mask = arrays

    def objective(x, h, w):
        carry, (doubles, counts) = run_scan(x, h, w, ops.convert_to_tensor(mask), reverse)
        return ops.sum(ops.sin(carry["h"])) + ops.sum(doubles * ops.cos(doubles)) + ops.sum(counts["count"])

    def oracle(x, h, w):
        h, _, doubles, counts = numpy_scan(*(a.astype("float64") for a in (x, h, w)), mask, reverse)
        return np.sin(h).sum() + (doubles * np.cos(doubles)).sum() + counts.sum()

    for got, expected in zip(
        gradients(objective, x, h, w, jit_compile=jit_compile), numeric_gradients(oracle, x, h, w), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3)


def test_a_scan_without_inputs_or_without_steps():
    carry, ys = scan(lambda c, _: (c + 1.0, c * c), ops.zeros((2,)), length=4)
    np.testing.assert_array_equal(ops.convert_to_numpy(carry), [4, 4])
    np.testing.assert_array_equal(ops.convert_to_numpy(ys)[:, 0], [0, 1, 4, 9])
    carry, ys = scan(lambda c, x: (c + x, {"sum": c + x}), ops.ones((2,)), ops.zeros((0, 2)))
    np.testing.assert_array_equal(ops.convert_to_numpy(carry), [1, 1])
    assert tuple(ys["sum"].shape) == (0, 2)
    with pytest.raises(ValueError, match="Expected `xs` or `length`"):
        scan(lambda c, _: (c, c), ops.zeros((2,)))


def test_gradients_of_a_memory_a_weight_and_a_kernel_of_the_step(rng):
    """A kernel for each row, a variable that the step reads, and one that the step makes, in one loop."""
    x, h, values = (rng.normal(size=shape).astype("float32") for shape in ((T, B, H), (B, H), (B, H, H)))
    weight = keras.Variable(rng.normal(size=(H, H)), dtype="float32")

    def objective(x, h, values):
        def step(h, x):
            context = ops.squeeze(loop_matmul(h[:, None], values), axis=1)
            made = loop_matmul(context[:, None], values + x[:, :, None])[:, 0]
            h = ops.tanh(loop_matmul(context + made, weight) + x)
            return h, 2 * h

        final, outputs = scan(step, h, x)
        return ops.sum(ops.sin(final)) + ops.sum(ops.square(outputs))

    def oracle(x, h, values):
        total = 0.0
        for row in x:
            context = np.einsum("bi,bio->bo", h, values)
            made = np.einsum("bi,bio->bo", context, values + row[:, :, None])
            h = np.tanh((context + made) @ ops.convert_to_numpy(weight).astype("float64") + row)
            total += np.square(2 * h).sum()
        return np.sin(h).sum() + total

    expected = numeric_gradients(lambda *arrays: oracle(*(a.astype("float64") for a in arrays)), x, h, values)
    for got, one in zip(gradients(objective, x, h, values), expected, strict=True):
        np.testing.assert_allclose(got, one, rtol=5e-3, atol=5e-3)


@pytest.mark.skipif(not on_tensorflow, reason="the other backends have one way")
@pytest.mark.parametrize(
    ("name", "policy", "tolerance"),
    [
        ("rnnsearch, additive heads", "float32", 1e-5),
        ("nematus", "mixed_float16", 1e-2),
    ],
)
def test_gradients_of_a_model_are_those_of_eager_mode(name, policy, tolerance, rng):
    """Eager mode sums the gradients step by step."""
    import tensorflow as tf

    keras.config.set_dtype_policy(policy)
    model = model_rows.make(name)
    inputs = {side: rng.integers(4, 9, (B, T)) for side in ("encoder_token_ids", "decoder_token_ids")}

    def run():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(model(inputs)))
        return [tf.convert_to_tensor(x) for x in tape.gradient(loss, model.trainable_weights)]

    for deferred, plain in zip(tf.function(run)(), run(), strict=True):
        np.testing.assert_allclose(deferred, plain, rtol=10 * tolerance, atol=tolerance * (1 + np.abs(plain).max()))


@pytest.mark.skipif(not on_tensorflow, reason="the graph of TensorFlow")
def test_tensorflow_multiplies_for_the_gradient_of_a_kernel_after_the_loop(arrays):
    """Of its backward loop: no product with the transposed input, x^T g."""
    import tensorflow as tf

    x, h, w, mask = arrays

    @tf.function
    def run(x, h, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            carry, _ = run_scan(x, h, w, tf.constant(mask), False)
            loss = tf.reduce_sum(carry["h"])
        return tape.gradient(loss, w)

    graph = run.get_concrete_function(*map(tf.constant, (x, h, w))).graph.as_graph_def()
    products = [
        (function.signature.name, node.attr["transpose_a"].b)
        for function in graph.library.function
        for node in function.node_def
        if node.op == "MatMul"
    ]
    loops = {node.attr["body"].func.name for node in graph.node if "While" in node.op}
    assert len(loops) == 2, "forwards and backwards"
    assert [transposed for name, transposed in products if name in loops] == [False, False]
    assert [node.attr["transpose_a"].b for node in graph.node if node.op == "MatMul"] == [True]


def test_a_product_whose_result_is_unused_does_not_lose_the_others_gradient(rng):
    """The last product is not used: the gradient of the kernel is still the sum over the others."""
    x, w = rng.normal(size=(2, 3)).astype("float32"), rng.normal(size=(3, 3)).astype("float32")

    def objective(x, w):
        product = loop_product(w)
        h = ops.tanh(product(x))
        used = ops.sum(ops.square(product(h)))
        product(h)
        return used

    def oracle(x, w):
        return np.square(np.tanh(x @ w) @ w).sum()

    for got, expected in zip(gradients(objective, x, w), numeric_gradients(oracle, x, w), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3)


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


@pytest.mark.skipif(not on_tensorflow, reason="test_torch_loops.py has torch's; JAX has none")
def test_products_in_bfloat16_end_with_the_block(rng):
    """Their error is that of factors with 8 bits, on a processor that has them, and float32's afterwards."""
    import tensorflow as tf

    a, b = (rng.normal(size=shape).astype("float32") for shape in ((640, 512), (512, 1536)))

    def error() -> float:
        return np.abs(tf.function(lambda a, b: tf.matmul(a, b))(a, b).numpy() - a.astype("float64") @ b).max()

    before = error()
    with bfloat16_products():
        inside = error()
    assert before < 1e-3
    assert error() == before
    assert inside == before or 0.01 < inside < 1
    flags = Path("/proc/cpuinfo").read_text() if platform.machine() == "x86_64" else ""
    assert inside > 0.01 or "amx_bf16" not in flags
