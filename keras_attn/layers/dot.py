"""Multiplicative attention: the dot product of query and word, plain, scaled, or through a matrix (general)."""

from keras import initializers, ops

from keras_attn.backend import dense, matmul
from keras_attn.layers.attention import Attention, register_attention
from keras_attn.layers.normalizers import at_least_float32


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
