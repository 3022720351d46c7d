"""Luong's global and local attention, with a score function of choice."""

import keras
from keras import ops

from keras_attn.backend import dense, tanh
from keras_attn.layers.additive import GatedAttention
from keras_attn.layers.attention import Attention, get_attention, register_attention
from keras_attn.layers.layer import build_once, check_size
from keras_attn.layers.multi_head import MultiHeadAttention
from keras_attn.layers.normalizers import at_least_float32, normalize, score_dtype

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
        self.score = get_attention(score, dtype=self.dtype_policy, **self.weight_options)
        others = LuongAttention, GatedAttention, MultiHeadAttention
        if isinstance(self.score, others) or type(self.score).align is not Attention.align:
            raise ValueError(
                "Expected a score function, not another global or local attention, nor one whose gate or heads would "
                f"be left out. Received: {self.score!r}"
            )
        if self.score.normalizer != "softmax" or self.score.dropout:
            raise ValueError(
                f"Expected the `normalizer` and `dropout` of {type(self).__name__} itself, not of its score. Received: "
                f"a score with normalizer={self.score.normalizer!r} and dropout={self.score.dropout}"
            )

    def build(self, query_shape, values_shape, **_):
        build_once(self.score, query_shape, values_shape)

    def keys(self, values):
        return self.score.keys(values)

    def scores(self, query, keys):
        return self.score.scores(query, keys)

    def by_word(self, scores, mask):
        return self.score.by_word(scores, mask)


class _LocalAttention(LuongAttention):
    """Attention to the words at most D away from a position p_t, which subclasses choose."""

    def __init__(self, score="general", *, window: int = 10, **kwargs):
        super().__init__(score, **kwargs)
        check_size("window", window)
        self.window = window

    def align(self, query, keys, mask, state):
        alignment, _, state = self.align_in_window(query, keys, mask, state)
        return alignment, state

    def align_in_window(self, query, keys, mask, state):
        """The alignment in the window, and each word's distance from p_t, `(B, S)` or `(B, T, S)`; the next state."""
        mask = ops.ones_like(keys[:, :, 0], "int32") if mask is None else ops.cast(mask, "int32")  # (B, S)
        mask = mask[:, None] if len(query.shape) > len(mask.shape) else mask  # (B, S), (B, 1, S) or (B, T, S)
        # Positions are counted over real words, so that padding on either side does not shift them.
        positions = ops.cast(ops.cumsum(mask, axis=-1) - 1, score_dtype(query.dtype))  # as the mask
        lengths = ops.cast(ops.sum(mask, axis=-1), positions.dtype)  # (B,), (B, 1) or (B, T)
        centres, state = self.centres(query, lengths, state)  # (B,) or (B, T)
        distances = positions - centres[..., None]  # (B, S) or (B, T, S)
        inside = ops.cast(mask, "bool") & (ops.abs(distances) <= self.window)
        scores = self.by_word(at_least_float32(self.scores(query, keys)), mask)  # (B, S) or (B, T, S)
        return normalize(scores, inside, self.normalizer), distances, state

    def centres(self, query, lengths, state):
        """p_t `(B,)` or `(B, T)`, float32, for `lengths` `(B,)`, `(B, 1)` or `(B, T)`; and the next state."""
        raise NotImplementedError(f"{type(self).__name__} must implement `centres(query, lengths, state)`.")


@register_attention("local_m")
class LocalMonotonicAttention(_LocalAttention):
    """Luong's local-m: assumes that source and target run in parallel; step t attends around source word t.

        p_t = t,   alpha_t(j) = softmax over j in [p_t - D, p_t + D] of score(s_t, h_j)    (Luong 2015, section 3.2)

    It is not the monotonic attention of Raffel 2017: that is `BahdanauMonotonicAttention` and
    `GeneralMonotonicAttention`, tensorflow_addons' `LuongMonotonicAttention`.

    Args:
        score: As in `LuongAttention`.
        window: D.

    Call arguments, returns and mask behaviour: see `Attention`. The state is t, the number of steps taken, `(B,)`
    int32; `()` stands for 0. Positions are counted over the real words of a row, from 0.

    Raises:
        ValueError: for a score that `LuongAttention` refuses, or a window that is not a positive whole number.

    Example:
        >>> attention = keras_attn.LocalMonotonicAttention("dot", window=1)
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 4, 5), "float32")
        >>> context, alignment, state = attention(query, values)
        >>> print(keras.ops.convert_to_numpy(alignment)[0], keras.ops.convert_to_numpy(state))
        [0.5 0.5 0.  0. ] [1 1]

    Differences from the paper: p_t = min(t, S - 1), where S is the row's real length. The paper leaves open what a
    target longer than S + D attends to.

    Reference: Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    def centres(self, query, lengths, state):
        if isinstance(state, tuple):
            state = ops.zeros(ops.shape(query)[:1], "int32")  # (B,)
        if len(query.shape) == 2:
            return ops.minimum(ops.cast(state, lengths.dtype), lengths - 1), state + 1
        steps = ops.shape(query)[1]
        t = state[:, None] + ops.arange(steps, dtype="int32")  # (B, T)
        return ops.minimum(ops.cast(t, lengths.dtype), lengths - 1), state + steps

    def initial_state(self, values):
        return ops.zeros_like(values[:, 0, 0], "int32")  # (B,)


@register_attention("local_p")
class LocalPredictiveAttention(_LocalAttention):
    """Luong's local-p: predicts a position from the state, and weighs words by their distance from it.

        p_t = S sigmoid(v_p^T tanh(W_p s_t))                                       (Luong 2015, section 3.2, eq. 9)
        alpha_t(j) = align(s_t, h_j) exp(-(j - p_t)^2 / (2 sigma^2)),  sigma = D / 2                     (eq. 10)

    where align is the softmax over j in [p_t - D, p_t + D] and S is the row's real length. p_t is not rounded:
    gradients reach v_p and W_p through the Gaussian.

    Args:
        score: As in `LuongAttention`.
        window: D.
        kernel_initializer: For W_p `(H, H)` and v_p `(H,)`.

    Call arguments, returns and mask behaviour: see `Attention`. As in the paper the alignment is not normalised again:
    its rows sum to less than 1. Positions are counted over the real words of a row, from 0.

    Raises:
        ValueError: for a score that `LuongAttention` refuses, or a window that is not a positive whole number.

    Example:
        >>> attention = keras_attn.LocalPredictiveAttention("general", window=10)
        >>> query, values = np.ones((2, 7, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, _ = attention(query, values)
        >>> context.shape, alignment.shape
        ((2, 7, 11), (2, 7, 3))

    Differences from the paper: none.

    Reference: Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    def __init__(self, score="general", *, window: int = 10, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(score, window=window, **kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape, values_shape, **_):
        super().build(query_shape, values_shape)
        width = query_shape[-1]
        self.add_weights(self.kernel_initializer, position_kernel=(width, width), position_vector=(width,))

    def align(self, query, keys, mask, state):
        alignment, distances, state = self.align_in_window(query, keys, mask, state)
        return self.apply_gaussian(alignment, distances), state

    def centres(self, query, lengths, state):
        hidden = tanh(dense(query, self.position_kernel))  # (B, H) or (B, T, H)
        hidden = at_least_float32(hidden)
        shares = ops.sigmoid(ops.sum(hidden * ops.cast(self.position_vector, hidden.dtype), axis=-1))  # (B,) or (B, T)
        return shares * lengths, state

    def apply_gaussian(self, alignment, distances):
        """Multiplies each word's alignment by a Gaussian of its distance from p_t."""
        sigma = self.window / 2
        return alignment * ops.exp(-ops.square(distances) / (2 * sigma**2))  # (B, S) or (B, T, S)
