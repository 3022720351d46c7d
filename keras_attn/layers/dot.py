"""The other score functions of the family, each a sibling of `BahdanauAttention`: how a query is held against the keys.

Dot, general and concat are compared by Luong 2015 (section 3.1), scaled dot is the Transformer's. Mask, softmax and
context are `Attention`'s.
"""

import keras
from keras import initializers, ops

from keras_attn.layers.attention import Attention, additive_scores, check_size


def dot_scores(query, keys):
    """query . key in float32: `(B, A)` or `(B, T, A)` and `(B, S, A)` -> `(B, S)` or `(B, T, S)`."""
    query, keys = ops.cast(query, "float32"), ops.cast(keys, "float32")
    if len(query.shape) == 3:
        return ops.matmul(query, ops.transpose(keys, (0, 2, 1)))  # (B, T, S)
    return ops.squeeze(ops.matmul(keys, query[:, :, None]), axis=-1)  # (B, S)


@keras.saving.register_keras_serializable(package="keras_attn")
class DotAttention(Attention):
    """The decoder's state against each word of the memory, with no weights at all.

        e_ij = s_i^T h_j                                                       (Luong 2015, section 3.1, eq. 8, dot)

    Call arguments, returns and mask behaviour: see `Attention`; H = M.

    Raises:
        ValueError: if the query and the memory are not of one width.

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


@keras.saving.register_keras_serializable(package="keras_attn")
class ScaledDotAttention(DotAttention):
    """The dot product, divided by the length it would have by chance, so that the softmax does not saturate.

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


@keras.saving.register_keras_serializable(package="keras_attn")
class GeneralAttention(Attention):
    """The bilinear score: a matrix between the decoder's state and the memory, which may differ in width.

        e_ij = s_i^T W_a h_j                                               (Luong 2015, section 3.1, eq. 8, general)
        e_ij = g s_i^T W_a h_j                                             with `use_scale`

    Arguments:
        use_scale: A learned factor g, 1 at first (`scale` of tensorflow_addons' LuongAttention).
        kernel_initializer: For W_a `(M, H)`.

    Call arguments, returns and mask behaviour: see `Attention`. `keys(values)` is W_a h, `(B, S, H)`.

    Raises:
        ValueError: if `keys` is asked for before the layer is built.

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
        return ops.matmul(values, ops.cast(self.kernel, values.dtype))  # (B, S, H)

    def scores(self, query, keys):
        scores = dot_scores(query, keys)  # (B, S) or (B, T, S)
        return scores if self.scale is None else scores * ops.cast(self.scale, "float32")

    def get_config(self):
        return {
            **super().get_config(),
            "use_scale": self.use_scale,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
        }


@keras.saving.register_keras_serializable(package="keras_attn")
class ConcatAttention(Attention):
    """State and word side by side through one hidden layer.

        e_ij = v_a^T tanh(W_a [s_i ; h_j])                                  (Luong 2015, section 3.1, eq. 8, concat)

    W_a is one matrix; its rows for h are multiplied once a sentence, those for s once a step. So it computes what
    `BahdanauAttention` computes, from weights drawn as one matrix.

    Arguments:
        units: A, the width of the hidden layer; None: the query's width H.
        kernel_initializer, score_initializer: For W_a `(H + M, A)` and v_a `(A,)`.

    Call arguments, returns and mask behaviour: see `Attention`. `keys(values)` is `(B, S, A)`.

    Raises:
        ValueError: if `units` is neither None nor a positive whole number, or if `keys` is asked for before the layer
            is built.

    Example:
        >>> attention = keras_attn.ConcatAttention(7)
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, _ = attention(query, values)
        >>> context.shape, alignment.shape
        ((2, 11), (2, 3))

    Differences from the paper: none.

    Reference: Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    def __init__(
        self,
        units: int | None = None,
        *,
        kernel_initializer="glorot_uniform",
        score_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if units is not None:
            check_size("units", units)
        self.units = units
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.score_initializer = initializers.get(score_initializer)

    def build(self, query_shape, values_shape, **_):
        self.query_width = query_shape[-1]  # H, the rows of W_a that are the query's
        units = self.units or self.query_width
        shape = (self.query_width + values_shape[-1], units)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=self.kernel_initializer)
        self.score_vector = self.add_weight(name="score_vector", shape=(units,), initializer=self.score_initializer)

    def keys(self, values):
        self.check_built()
        return ops.matmul(values, ops.cast(self.kernel[self.query_width :], values.dtype))  # (B, S, A)

    def scores(self, query, keys):
        query = ops.matmul(query, ops.cast(self.kernel[: self.query_width], query.dtype))  # (B, A) or (B, T, A)
        return additive_scores(query, keys, self.score_vector)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "score_initializer": initializers.serialize(self.score_initializer),
        }
