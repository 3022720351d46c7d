"""Cosine attention: the content-based addressing of the neural Turing machine."""

import math

from keras import initializers, ops

from keras_attn.backend import dense, maximum
from keras_attn.layers.attention import Attention, register_attention
from keras_attn.layers.dot import dot_scores
from keras_attn.layers.normalizers import at_least_float32


@register_attention("cosine")
class CosineAttention(Attention):
    """Cosine similarity of a key, made from the state, with each word, times a sharpness made from the state.

        k_i = W_k s_i,   beta_i = softplus(w_beta^T s_i + b_beta)
        e_ij = beta_i  k_i . h_j / (|k_i| |h_j|)                               (Graves 2014, section 3.3.1, eqs. 5, 6)

    Args:
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

    Differences from the paper: it leaves open how the controller makes k and beta > 0; here a matrix, and softplus.
    Only the content-based part of its addressing is here, without interpolation, shift and sharpening by location.

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
        bias = initializers.Constant(math.log(math.expm1(self.sharpness)))  # the inverse of softplus
        self.sharpness_bias = self.add_weight(name="sharpness_bias", shape=(), initializer=bias)

    def keys(self, values):
        return ops.cast(_unit(at_least_float32(values)), values.dtype)  # (B, S, M)

    def scores(self, query, keys):
        key = dense(query, self.kernel)  # (B, M) or (B, T, M)
        query = at_least_float32(query)
        beta = ops.sum(
            query * ops.cast(self.sharpness_vector, query.dtype), axis=-1, keepdims=True
        )  # (B, 1), (B, T, 1)
        beta = ops.softplus(beta + ops.cast(self.sharpness_bias, query.dtype))
        return beta * dot_scores(_unit(at_least_float32(key)), keys)


def _unit(x):
    """Vectors of length 1 along the last axis; a zero vector stays zero, with zero gradients."""
    return x * ops.rsqrt(maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), 1e-12))
