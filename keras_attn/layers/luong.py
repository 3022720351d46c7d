"""Luong's global attention, with a score function of choice."""

import keras

from keras_attn.layers.attention import Attention, get_attention

_TFA_ARGUMENTS = {"units", "memory", "memory_sequence_length", "scale", "probability_fn"}


@keras.saving.register_keras_serializable(package="keras_attn")
class LuongAttention(Attention):
    """Luong's global attention: every source word is scored, by the function of choice.

        alpha_t(j) = exp(score(s_t, h_j)) / sum_k exp(score(s_t, h_k))         (Luong 2015, section 3.1, eq. 7)

    In Luong's decoder the query is the new state s_t: `AttentionDecoder(..., attend="after")`.

    Args:
        score: A registered name ("dot", "general", "concat", "location", "scaled_dot", "cosine"; see
            `keras_attn.layers.get_attention`), or an `Attention` layer whose weights and scores are used, such as
            `GeneralAttention(use_scale=True)` or `ConcatAttention(512)`.
        normalizer: As in `Attention`.

    Call arguments, returns and mask behaviour: see `Attention`.

    Raises:
        ValueError: for another score, or the arguments of tensorflow_addons' `LuongAttention(units, memory)`: the width
            of W_a is the query's here, and the memory is an argument of the call.

    Example:
        >>> attention = keras_attn.LuongAttention("general")
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, _ = attention(query, values)
        >>> context.shape, alignment.shape
        ((2, 11), (2, 3))

    Differences from the paper: none.

    Reference: Luong, Pham, Manning. Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015,
    arXiv:1508.04025.
    """

    def __init__(self, score="general", *args, **kwargs):  # `args` only to explain themselves: tfa's memory, lengths
        of_tfa = sorted(_TFA_ARGUMENTS & kwargs.keys())
        if args or of_tfa or isinstance(score, int):
            received = [repr(score)] if isinstance(score, int) else []
            received += ["more positional arguments"] * bool(args) + of_tfa
            raise ValueError(
                "Expected a score function, by name or as a layer: write `LuongAttention()` or `GeneralAttention()`, "
                "whose width is the query's; `GeneralAttention(use_scale=True)` for scale=True; and give the memory "
                "to the call, `attention(query, values, mask=mask)`. "
                f"Received, as by tensorflow_addons' LuongAttention(units, memory): {', '.join(received)}"
            )
        super().__init__(**kwargs)
        self.score = get_attention(score, dtype=self.dtype_policy)
        if isinstance(self.score, LuongAttention) or type(self.score).align is not Attention.align:
            raise ValueError(
                f"Expected a score function, not another global or local attention. Received: {self.score!r}"
            )
        if self.score.normalizer != "softmax":
            raise ValueError(
                f"Expected the `normalizer` of {type(self).__name__} itself, not of its score. Received: a score with "
                f"normalizer={self.score.normalizer!r}"
            )

    def build(self, query_shape, values_shape, **_):
        if not self.score.built:  # a layer loaded from a file already is
            self.score.build(query_shape, values_shape)

    def keys(self, values):
        return self.score.keys(values)

    def scores(self, query, keys):
        return self.score.scores(query, keys)
