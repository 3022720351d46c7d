"""Location-based attention: scores of positions, from the decoder's state alone."""

from keras import initializers, ops

from keras_attn.backend import dense
from keras_attn.layers.attention import Attention, register_attention
from keras_attn.layers.layer import check_size
from keras_attn.layers.normalizers import at_least_float32


@register_attention("location")
class LocationAttention(Attention):
    """Luong's location score: a score for each source position, from the decoder's state and not from the words.

        alpha_i = softmax(W_a s_i)                                           (Luong 2015, section 3.1, eq. 8, location)

    Args:
        max_length: L, the number of source positions that W_a scores.
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
        scores = at_least_float32(dense(query, self.kernel))  # (B, L) or (B, T, L)
        positions = ops.arange(ops.shape(keys)[1], dtype="int32")  # (S,)
        scores = ops.take(scores, ops.minimum(positions, self.max_length - 1), axis=-1)  # (B, S) or (B, T, S)
        return ops.where(positions < self.max_length, scores, -1e9)
