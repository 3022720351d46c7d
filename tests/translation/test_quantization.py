"""Products in int8 are NumPy's, exact, and leave the translator that is quantised as it is."""

import time

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn
from keras_attn.backend import Int8Weights, dense, int8_products, kernel_products, loop_product
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.translation.quantization import int8_weights
from tests.contracts.model_rows import T, make, some_inputs
from tests.translation.test_options import LINES, texts

ON_TORCH = keras.backend.backend() == "torch"
numpy = ops.convert_to_numpy


@pytest.fixture(autouse=True)
def small_matrices_too(monkeypatch):
    monkeypatch.setattr(int8_products, "MIN_WIDTH", 1)


def oracle(x, w):
    """x W, with each row of x and each column of W rounded to whole numbers up to 127 in size."""
    result = np.zeros((len(x), w.shape[1]))
    for r, row in enumerate(x.astype("float64")):
        for j, column in enumerate(w.T.astype("float64")):
            s, t = np.abs(row).max() / 127, np.abs(column).max() / 127
            if s and t:
                result[r, j] = s * t * (np.rint(row / s).astype("int64") @ np.rint(column / t).astype("int64"))
    return result


class Matrix(keras.Model):
    """One weight (I, O), whose first column is 0."""

    def __init__(self, rng, rows=70, columns=48):
        super().__init__()
        self.kernel = self.add_weight(shape=(rows, columns), name="kernel")
        self.bias = self.add_weight(shape=(columns,), name="bias")
        values = rng.normal(size=(rows, columns))
        values[:, 0] = 0
        self.kernel.assign(values)
        self.built = True


@pytest.mark.parametrize(
    ("rows", "columns"), [(slice(None),) * 2, (slice(5, None), slice(None)), (slice(40), slice(1, 33))]
)
def test_a_product_is_numpys(rng, rows, columns):
    model = Matrix(rng)
    w = numpy(model.kernel)[rows, columns]
    x = rng.normal(size=(2, 3, len(w))).astype("float32") * rng.uniform(0, 9, (2, 3, 1)).astype("float32")
    x[1, 1] = 0
    with kernel_products(Int8Weights(model).product):
        found = numpy(dense(x, model.kernel, rows=rows, columns=columns))
        in_loop = numpy(loop_product(model.kernel, rows=rows, columns=columns)(x[:, 0]))
    expected = oracle(x.reshape(6, -1), w).reshape(2, 3, -1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(in_loop, expected[:, 0], rtol=1e-5, atol=1e-5)
    exact = x.astype("float64") @ w
    assert 0 < np.abs(found - exact).max() < 0.02 * np.abs(exact).max()
    np.testing.assert_allclose(numpy(dense(x, model.kernel, rows=rows, columns=columns)), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [1, 5, 40])
def test_sums_of_the_largest_products_are_exact(rng, count):
    """Without VNNI, oneDNN adds pairs of products in 16 bits, into which two of these do not fit."""
    model = Matrix(rng, 1100, 48)
    signs = rng.choice([-1.0, 1.0], 48)
    model.kernel.assign(np.tile(signs, (1100, 1)))
    x = np.full((count, 1100), 3.0, "float32")
    x[:, :7] = -3
    with kernel_products(Int8Weights(model).product):
        found = numpy(dense(x, model.kernel))
    np.testing.assert_allclose(found, np.tile(3 * 1086 * signs, (count, 1)), rtol=1e-6)


@pytest.mark.skipif(not ON_TORCH, reason="only torch has two kernels")
def test_torchs_kernels_agree(rng, monkeypatch):
    model, found = Matrix(rng, 1100, 48), []
    x = rng.normal(size=(24, 1100)).astype("float32")
    for has in (int8_products._has_onednn, lambda: False):
        monkeypatch.setattr(int8_products, "_has_onednn", has)
        with kernel_products(Int8Weights(model).product):
            found.append(numpy(dense(x, model.kernel)))
    np.testing.assert_allclose(*found, rtol=1e-6)
    np.testing.assert_allclose(found[1], oracle(x, numpy(model.kernel)), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not ON_TORCH, reason="only torch has oneDNN's products")
@pytest.mark.parametrize(("share", "seconds", "is_used"), [(1, 0, True), (0.5, 0, False), (1, 0.5, False)])
def test_products_of_onednn_that_overflow_or_are_slow_are_not_used(share, seconds, is_used, monkeypatch):
    """Slow as on a processor for which it has no code: the sums are right, and take some hundred times as long."""

    def product(rows, largest, matrix):
        time.sleep(seconds)
        return (share * 512 * 127 * rows[:, :1]).repeat(1, 512)

    monkeypatch.setattr(int8_products, "_onednn_product", product)
    assert int8_products._has_onednn.__wrapped__() == is_used


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="Keras' maximum is refused there, but in no graph")
def test_a_batch_may_be_empty(rng):
    model = Matrix(rng)
    with kernel_products(Int8Weights(model).product):
        assert dense(np.zeros((0, 70), "float32"), model.kernel).shape == (0, 48)
        assert dense(np.zeros((2, 0, 70), "float32"), model.kernel).shape == (2, 0, 48)


def test_sums_that_may_overflow_stay_in_float32(rng):
    model = Matrix(rng, 66_312, 2)
    weights = Int8Weights(model)
    parts = slice(None), slice(None)
    assert weights.product(model.kernel, *parts, transpose=False) is None
    assert weights.product(model.kernel, slice(66_311), parts[1], transpose=False) is not None
    assert weights.product(model.kernel, *parts, transpose=True) is not None
    assert 66_311 * 255 * 127 < 2**31 <= 66_312 * 255 * 127


def test_a_row_does_not_depend_on_the_others(rng):
    model = Matrix(rng)
    x = rng.normal(size=(33, 70)).astype("float32")
    with kernel_products(Int8Weights(model).product):
        together = numpy(dense(x, model.kernel))
        for i in (0, 17, 32):
            np.testing.assert_array_equal(numpy(dense(x[i : i + 1], model.kernel))[0], together[i])


def test_what_is_no_matrix_of_the_model_stays_in_float32(rng, monkeypatch):
    model, other = Matrix(rng), Matrix(rng)
    weights = Int8Weights(model)
    x = rng.normal(size=(3, 70)).astype("float32")
    with kernel_products(weights.product):
        np.testing.assert_allclose(numpy(dense(x, other.kernel)), x @ numpy(other.kernel), rtol=1e-4, atol=1e-4)
        monkeypatch.setattr(int8_products, "MIN_WIDTH", 64)
        np.testing.assert_allclose(numpy(dense(x, model.kernel)), x @ numpy(model.kernel), rtol=1e-4, atol=1e-4)
    assert not weights.matrices


def test_translations_do_not_depend_on_batch_mates_or_threads(translator):
    quantized = keras_attn.quantize(translator)
    together = quantized.generate(LINES, beam_size=3)
    (alone,) = quantized.generate(LINES[:1], beam_size=3)
    assert (alone.text, alone.score) == (together[0].text, pytest.approx(together[0].score, rel=1e-5))
    again = quantized.generate(LINES, beam_size=3)  # traced on torch
    assert [t.score for t in again] == pytest.approx([t.score for t in together], rel=1e-5)
    scored = quantized.score(LINES, texts(together))
    for one, other in zip(scored, together, strict=True):
        assert one.score == pytest.approx(other.score, rel=1e-4, abs=1e-4)


def test_the_translator_stays_as_it_is(translator):
    before = translator.generate(LINES, beam_size=2)
    quantized = keras_attn.quantize(translator)
    found = quantized.generate(LINES, beam_size=2)
    assert quantized.model is not translator.model
    assert translator.int8_weights is None
    after = translator.generate(LINES, beam_size=2)
    assert [(t.text, t.score) for t in after] == [(t.text, t.score) for t in before]
    differences = [abs(a.score - b.score) for a, b in zip(found, before, strict=True) if a.token_ids]
    assert 0 < max(differences) < 0.2
    assert not translator.model.quantized
    quantized.model.compile("sgd", SmoothedCrossentropy())
    ids = np.array([[4, 3]])
    with pytest.raises(ValueError, match="then quantize it"):
        quantized.model.train_on_batch({"encoder_token_ids": ids, "decoder_token_ids": ids}, ids)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="only JAX compiles weights as constants or arguments")
def test_matrices_are_arguments_of_what_jax_compiles(monkeypatch):
    import jax

    from keras_attn.models import SearchModel
    from keras_attn.search import greedy_search

    traced = []
    monkeypatch.setattr(jax, "jit", lambda function, jit=jax.jit: traced.append(jit(function)) or traced[-1])
    model = make("rnnsearch")
    weights = int8_weights(model)
    search = SearchModel(model, greedy_search, T, int8_weights=weights)
    source = {"encoder_token_ids": some_inputs()["encoder_token_ids"]}
    for _ in range(2):
        search.predict_on_batch(source)
    assert traced[0]._cache_size() == 1
    assert len(weights.matrices) > 4
