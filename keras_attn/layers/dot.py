"""Score functions without a hidden layer: dot product, scaled dot product, general, cosine, location."""

import math

from keras import initializers, ops

from keras_attn.backend import dense, matmul, maximum
from keras_attn.layers.attention import Attention, register_attention
from keras_attn.layers.layer import check_size
from keras_attn.layers.normalizers import at_least_float32, spread_mask


def dot_scores(query, keys):
    """query . key in at least float32: `(B, A)` or `(B, T, A)` and `(B, S, A)` -> `(B, S)` or `(B, T, S)`."""
    query, keys = at_least_float32(query), at_least_float32(keys)
    if len(query.shape) == 3:
        return matmul(query, ops.transpose(keys, (0, 2, 1)))  # (B, T, S)
    return ops.squeeze(matmul(keys, query[:, :, None]), axis=-1)  # (B, S)


@register_attention("dot")
class DotAttention(Attention):
    """Dot-product attention, which has no weights.

        e_ij = s_i^T h_j                                                       (Luong 2015, section 3.1, eq. 8, dot)

    Call arguments, returns and mask behaviour: see `Attention`; H = M.

    Raises:
        ValueError: if query and memory differ in width.

    Example:
        >>> attention = keras_attn.DotAttention()
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 5), "float32")
        >>> context, alignment, _ = attention(query, values)
        >>> context.shape, alignment.shape
        ((2, 5), (2, 3))

    Differences from the paper: none.

    Reference: Luong, Pham, Manning. Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015,
    arXiv:1508.04025.
    """

    def build(self, query_shape, values_shape, **_):
        if query_shape[-1] != values_shape[-1]:
            raise ValueError(
                f"Expected a query and a memory of one width for {type(self).__name__}; `GeneralAttention` takes any. "
                f"Received: query {query_shape[-1]}, memory {values_shape[-1]}"
            )

    def scores(self, query, keys):
        return dot_scores(query, keys)


@register_attention("scaled_dot")
class ScaledDotAttention(DotAttention):
    """Dot-product attention, divided by the square root of the width, so that the softmax does not saturate.

        e_ij = s_i^T h_j / sqrt(H)                                             (Vaswani 2017, section 3.2.1, eq. 1)

    Call arguments, returns, mask behaviour and errors: see `DotAttention`.

    Example:
        >>> query, values = np.ones((2, 7, 5), "float32"), np.ones((2, 3, 5), "float32")
        >>> context, alignment, _ = keras_attn.ScaledDotAttention()(query, values)
        >>> context.shape, alignment.shape
        ((2, 7, 5), (2, 7, 3))

    Differences from the paper: one head and no projections; see `MultiHeadAttention` for those.

    Reference: Vaswani et al. Attention Is All You Need. NeurIPS 2017, arXiv:1706.03762.
    """

    def scores(self, query, keys):
        return dot_scores(query, keys) * query.shape[-1] ** -0.5


@register_attention("general")
class GeneralAttention(Attention):
    """Luong's general score: a matrix between query and memory, which may differ in width.

        e_ij = s_i^T W_a h_j                                               (Luong 2015, section 3.1, eq. 8, general)
        e_ij = g s_i^T W_a h_j                                             with `use_scale`

    Args:
        use_scale: A learned factor g, 1 at first (`scale` of tensorflow_addons' LuongAttention).
        kernel_initializer: For W_a `(M, H)`.

    Call arguments, returns and mask behaviour: see `Attention`. `keys(values)` is W_a h, `(B, S, H)`.

    Raises:
        ValueError: if `keys` is called before the layer is built.

    Example:
        >>> attention = keras_attn.GeneralAttention()
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, _ = attention(query, values)
        >>> context.shape, alignment.shape
        ((2, 11), (2, 3))

    Differences from the paper: none.

    Reference: Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    def __init__(self, *, use_scale: bool = False, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.use_scale = use_scale
        self.kernel_initializer = initializers.get(kernel_initializer)

    def build(self, query_shape, values_shape, **_):
        shape = (values_shape[-1], query_shape[-1])
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=self.kernel_initializer)
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones") if self.use_scale else None

    def keys(self, values):
        self.check_built()
        return dense(values, self.kernel)  # (B, S, H)

    def scores(self, query, keys):
        scores = dot_scores(query, keys)  # (B, S) or (B, T, S)
        return scores if self.scale is None else scores * ops.cast(self.scale, scores.dtype)


@register_attention("cosine")
class CosineAttention(Attention):
    """Cosine similarity of a key, made from the state, with each word, times a sharpness made from the state.

        k_i = W_k s_i,   beta_i = softplus(w_beta^T s_i + b_beta)
        e_ij = beta_i k_i . h_j / (|k_i| |h_j|)                                (Graves 2014, section 3.3.1, eqs. 5, 6)

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


@register_attention("location")
class LocationAttention(Attention):
    """Luong's location score: a score for each source position, from the decoder's state and not from the words.

        alpha_i = softmax(W_a s_i)                                           (Luong 2015, section 3.1, eq. 8, location)

    Args:
        max_length: L, the number of source positions that W_a scores.
        kernel_initializer: For W_a `(H, L)`.

    Call arguments, returns and mask behaviour: see `Attention`. Positions are counted over the real words of a row,
    from 0.

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
        scores = at_least_float32(dense(query, self.kernel))  # (B, L) or (B, T, L)
        positions = ops.arange(ops.shape(keys)[1], dtype="int32")  # (S,)
        scores = ops.take(scores, ops.minimum(positions, self.max_length - 1), axis=-1)  # (B, S) or (B, T, S)
        return ops.where(positions < self.max_length, scores, -1e9)

    def by_word(self, scores, mask):
        if mask is None:
            return scores
        mask = ops.cast(spread_mask(mask, scores), "int32")  # (B, S), (B, 1, S) or (B, T, S)
        positions = ops.maximum(ops.cumsum(mask, axis=-1) - 1, 0) + ops.zeros_like(scores, "int32")
        return ops.take_along_axis(scores, positions, axis=-1)
