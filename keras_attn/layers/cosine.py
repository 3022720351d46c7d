"""Attention that names a place: by its content (cosine) or by its number (location).

The two addressing modes of the neural Turing machine's vocabulary, as siblings of `BahdanauAttention`.
"""

import math

import keras
from keras import initializers, ops

from keras_attn.layers.attention import Attention, check_size
from keras_attn.layers.dot import dot_scores


@keras.saving.register_keras_serializable(package="keras_attn")
class CosineAttention(Attention):
    """Content-based addressing of the neural Turing machine: the angle to each word, sharpened as the state asks.

        k_i = W_k s_i,   beta_i = softplus(w_beta^T s_i + b_beta)
        e_ij = beta_i  k_i . h_j / (|k_i| |h_j|)                               (Graves 2014, section 3.3.1, eqs. 5, 6)

    Arguments:
        sharpness: beta for a state of zeros, before training. Cosines lie in [-1, 1], and a softmax of those alone is
            nearly flat.
        kernel_initializer: For W_k `(H, M)`.

    Call arguments, returns and mask behaviour: see `Attention`. `keys(values)` is h / |h|, `(B, S, M)`.

    Raises:
        ValueError: if `sharpness` is not above 0.

    Example:
        >>> attention = keras_attn.CosineAttention()
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, _ = attention(query, values)
        >>> context.shape, alignment.shape
        ((2, 11), (2, 3))

    Differences from the paper: it leaves open how the controller makes k and beta > 0; here a matrix, and softplus. Of
    its addressing this is the part by content; interpolation, shift and sharpening by location are left out.

    Reference: Graves, Wayne, Danihelka. Neural Turing Machines. 2014, arXiv:1410.5401.
    """

    def __init__(self, *, sharpness: float = 8.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        if not sharpness > 0:
            raise ValueError(f"Expected `sharpness` above 0. Received: sharpness={sharpness!r}")
        self.sharpness = sharpness
        self.kernel_initializer = initializers.get(kernel_initializer)

    def build(self, query_shape, values_shape, **_):
        width = query_shape[-1]
        self.kernel = self.add_weight(
            name="kernel", shape=(width, values_shape[-1]), initializer=self.kernel_initializer
        )
        self.sharpness_vector = self.add_weight(name="sharpness_vector", shape=(width,), initializer="zeros")
        bias = initializers.Constant(math.log(math.expm1(self.sharpness)))  # softplus turned round
        self.sharpness_bias = self.add_weight(name="sharpness_bias", shape=(), initializer=bias)

    def keys(self, values):
        return ops.cast(_unit(ops.cast(values, "float32")), values.dtype)  # (B, S, M)

    def scores(self, query, keys):
        key = ops.matmul(query, ops.cast(self.kernel, query.dtype))  # (B, M) or (B, T, M)
        query = ops.cast(query, "float32")
        beta = ops.sum(query * ops.cast(self.sharpness_vector, "float32"), axis=-1, keepdims=True)  # (B, 1), (B, T, 1)
        beta = ops.softplus(beta + ops.cast(self.sharpness_bias, "float32"))
        return beta * dot_scores(_unit(ops.cast(key, "float32")), keys)

    def get_config(self):
        return {
            **super().get_config(),
            "sharpness": self.sharpness,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
        }


def _unit(x):
    """Vectors of length 1 along the last axis; a vector of zeros stays one, with a gradient of zeros."""
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), 1e-12))


@keras.saving.register_keras_serializable(package="keras_attn")
class LocationAttention(Attention):
    """Where to look is read off the decoder's state alone, whatever stands there.

        alpha_i = softmax(W_a s_i)                                           (Luong 2015, section 3.1, eq. 8, location)

    Arguments:
        max_length: L, how many source positions W_a knows.
        kernel_initializer: For W_a `(H, L)`.

    Call arguments, returns and mask behaviour: see `Attention`. Positions count from the left of the row, so padding
    belongs at its right.

    Shorter sources use the first S scores, and of longer ones the words from position L on get alignment 0, as in the
    paper ("for short sentences, we only use the top part of a_t and for long sentences, we ignore words near the end").

    Raises:
        ValueError: if `max_length` is not a positive whole number.

    Example:
        >>> attention = keras_attn.LocationAttention(max_length=13)
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, _ = attention(query, values)
        >>> context.shape, alignment.shape
        ((2, 11), (2, 3))

    Differences from the paper: none.

    Reference: Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    def __init__(self, max_length: int = 100, *, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_size("max_length", max_length)
        self.max_length = max_length
        self.kernel_initializer = initializers.get(kernel_initializer)

    def build(self, query_shape, values_shape, **_):
        shape = (query_shape[-1], self.max_length)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=self.kernel_initializer)

    def scores(self, query, keys):
        scores = ops.cast(ops.matmul(query, ops.cast(self.kernel, query.dtype)), "float32")  # (B, L) or (B, T, L)
        positions = ops.arange(ops.shape(keys)[1], dtype="int32")  # (S,)
        scores = ops.take(scores, ops.minimum(positions, self.max_length - 1), axis=-1)  # (B, S) or (B, T, S)
        return ops.where(positions < self.max_length, scores, -1e9)

    def get_config(self):
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
        }
