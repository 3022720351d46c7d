"""Monotonic attention, soft and hard: the alignment only moves forwards (Raffel 2017, Chiu & Raffel 2018)."""

import keras
import numpy as np
from keras import initializers, ops

from keras_attn.backend import cumsum, maximum, scan
from keras_attn.layers.additive import BahdanauAttention
from keras_attn.layers.attention import Attention, register_attention
from keras_attn.layers.dot import GeneralAttention
from keras_attn.layers.layer import build_once, check_size, clone_initializer
from keras_attn.layers.normalizers import at_least_float32, score_dtype, spread_mask

MODES = ("recursive", "parallel", "hard")


def safe_cumprod(x, *, exclusive: bool = False):
    """The cumulative product along the last axis, through logarithms, so that it does not underflow with its gradient.

        exp(sum_{k <= j} log x_k),   with x clipped to [tiny, 1]

    Args:
        x: `(..., S)`, probabilities.
        exclusive: Leaves x_j itself out of the product of place j, which is then 1 at the first place.

    Returns:
        `(..., S)`, in float32, or float64 where x is.
    """
    x = at_least_float32(ops.convert_to_tensor(x))
    tiny = float(np.finfo(score_dtype(x.dtype)).tiny)
    logs = ops.log(ops.where(x < tiny, tiny, ops.where(x > 1, 1.0, x)))  # (..., S)
    if exclusive:
        logs = ops.concatenate([ops.zeros_like(logs[..., :1]), logs[..., :-1]], axis=-1)
    return ops.exp(cumsum(logs, axis=-1))


def monotonic_alignment(chosen, previous, mode: str = "parallel"):
    """The alignment of a step, from the probability to stop at each word and the alignment of the step before.

        q_j = (1 - p_{j-1}) q_{j-1} + alpha_{i-1,j},   alpha_ij = p_j q_j              (Raffel 2017, eqs. 13 and 14)

    Args:
        chosen: p `(B, S)`, in [0, 1]; with "hard" 0 or 1.
        previous: alpha_{i-1} `(B, S)`; before the first step 1 at the first place.
        mode: "recursive": the recurrence, place by place, exact for every p. "parallel": in closed form (appendix
            C.1), all places at once, inexact where the product of the 1 - p falls below 1e-10. "hard": the first word
            from the last one on that is chosen (section 2.2); there is no gradient.

    Returns:
        alpha_i `(B, S)`. Its sum is below 1 by the probability that no word is chosen.

    Raises:
        ValueError: for another mode.

    Reference: Raffel, Luong, Liu, Weiss, Eck. ICML 2017, arXiv:1704.00784.
    """
    check_mode("mode", mode)
    chosen, previous = ops.convert_to_tensor(chosen), ops.convert_to_tensor(previous)
    if mode == "hard":
        chosen = chosen * cumsum(previous, axis=-1)  # (B, S), the words from the last one on
        return chosen * ops.cast(cumsum(chosen, axis=-1) == 1, chosen.dtype)
    if mode == "parallel":
        passed = safe_cumprod(1 - chosen, exclusive=True)  # (B, S), the probability to pass all words before j
        return chosen * passed * cumsum(previous / maximum(passed, 1e-10), axis=-1)
    passing = ops.concatenate([ops.ones_like(chosen[:, :1]), 1 - chosen[:, :-1]], axis=-1)  # (B, S)

    def step(q, x):
        q = x[0] * q + x[1]  # (B,)
        return q, q

    _, q = scan(step, ops.zeros_like(chosen[:, 0]), (ops.transpose(passing), ops.transpose(previous)))  # (S, B)
    return chosen * ops.transpose(q)


def check_mode(name: str, mode) -> None:
    """Raises ValueError for an unknown mode of monotonic attention."""
    if mode not in MODES:
        raise ValueError(f"Expected `{name}` to be one of {list(MODES)}. Received: {name}={mode!r}")


class _MonotonicAttention(Attention):
    """Any score function, read as the log-odds to stop at a word; stands before the score's class among the bases."""

    _keeps_state = True

    def __init__(
        self,
        *args,
        mode: str = "parallel",
        inference_mode: str | None = None,
        sigmoid_noise: float = 0.0,
        score_bias_initializer="zeros",
        chunk_size: int | None = None,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        check_mode("mode", mode)
        if inference_mode is not None:
            check_mode("inference_mode", inference_mode)
        if not sigmoid_noise >= 0:
            raise ValueError(f"Expected `sigmoid_noise` of at least 0. Received: sigmoid_noise={sigmoid_noise!r}")
        if chunk_size is not None:
            check_size("chunk_size", chunk_size)
        if sigmoid_noise and self.dropout:
            raise ValueError(
                f"Expected `sigmoid_noise` or `dropout`. Received: sigmoid_noise={sigmoid_noise}, "
                f"dropout={self.dropout}"
            )
        if self.normalizer != "softmax":
            raise ValueError(
                f"Expected no `normalizer`: a sigmoid takes its place in {type(self).__name__}. Received: "
                f"normalizer={self.normalizer!r}"
            )
        self.mode = mode
        self.inference_mode = inference_mode
        self.sigmoid_noise = sigmoid_noise
        self.score_bias_initializer = initializers.get(score_bias_initializer)
        self.chunk_size = chunk_size
        self.chunk_score = None if chunk_size is None else self.make_chunk_score()
        self.seed_generator = keras.random.SeedGenerator()

    def make_chunk_score(self) -> Attention:
        """The score function of the chunk's softmax, with weights of its own."""
        raise NotImplementedError(f"{type(self).__name__} must implement `make_chunk_score()`.")

    def build(self, query_shape, values_shape, **_):
        super().build(query_shape, values_shape)
        self.score_bias = self.add_weight(name="score_bias", shape=(), initializer=self.score_bias_initializer)
        if self.chunk_score is not None:
            build_once(self.chunk_score, query_shape, values_shape)

    def call(self, query, values, keys=None, mask=None, state=(), noise=None, training=False, values_mask=None):
        mask = self.source_mask(query, values, mask, values_mask)
        if keys is None:
            keys = self.keys(values)
        alignment, state = self.align(query, keys, mask, state, noise, training)
        dropout = None if self.sigmoid_noise else noise
        return self.context(self.dropped(alignment, values, dropout, training), values), alignment, state

    def keys(self, values):
        keys = super().keys(values)
        return keys if self.chunk_score is None else (keys, self.chunk_score.keys(values))

    def noise(self, steps, values):
        if not self.sigmoid_noise:
            return super().noise(steps, values)
        shape = (steps, *ops.shape(values)[:2])
        return keras.random.normal(shape, dtype=score_dtype(values.dtype), seed=self.seed_generator)  # (T, B, S)

    def align(self, query, keys, mask, state, noise=None, training=False):
        keys, chunk_keys = (keys, None) if self.chunk_score is None else keys
        scores = at_least_float32(self.scores(query, keys))  # (B, S) or (B, T, S)
        scores = scores + ops.cast(self.score_bias, scores.dtype)
        if noise is not None and self.sigmoid_noise:
            scores = scores + self.sigmoid_noise * ops.cast(noise, scores.dtype)
        mode = self.mode if training or self.inference_mode is None else self.inference_mode
        chosen = ops.cast(scores > 0, scores.dtype) if mode == "hard" else ops.sigmoid(scores)
        if mask is not None:
            mask = spread_mask(mask, scores)
            chosen = ops.where(mask, chosen, 0.0)
        state = self.initial_state(keys) if isinstance(state, tuple) else state
        state = ops.cast(state, scores.dtype)
        alignment, state = _all_steps(chosen, state, mode)
        if chunk_keys is not None:
            energies = at_least_float32(self.chunk_score.scores(query, chunk_keys))  # (B, S) or (B, T, S)
            alignment = self.spread(alignment, energies if mask is None else ops.where(mask, energies, -1e9))
        return alignment, state

    def spread(self, alignment, energies):
        """Spreads what each word k got over the chunk that ends at it, by a softmax of the chunk's energies."""
        sizes = range(self.chunk_size)
        chunks = ops.stack([_shifted(energies, n, -1e9) for n in sizes], axis=-1)  # (B, S, w) or (B, T, S, w)
        shares = alignment[..., None] * ops.softmax(chunks, axis=-1)  # (B, S, w) or (B, T, S, w)
        return sum(_shifted(shares[..., n], -n, 0.0) for n in sizes)  # (B, S) or (B, T, S)

    def initial_state(self, values):
        zeros = ops.zeros_like(values[:, :, 0], dtype=score_dtype(values.dtype))  # (B, S)
        return zeros + ops.cast(ops.arange(ops.shape(values)[1], dtype="int32") == 0, zeros.dtype)

    def compute_output_spec(self, query, values, *_, **__):
        dtype = score_dtype(self.compute_dtype)
        return (
            keras.KerasTensor((*query.shape[:-1], values.shape[-1]), dtype=self.compute_dtype),
            keras.KerasTensor((*query.shape[:-1], values.shape[1]), dtype=dtype),
            keras.KerasTensor(values.shape[:2], dtype=dtype),
        )


def _all_steps(chosen, previous, mode):
    """Alignments and the last of them, `(B, S)`, for the probabilities of one step `(B, S)` or of all `(B, T, S)`."""
    if len(chosen.shape) == 2:
        alignment = monotonic_alignment(chosen, previous, mode)
        return alignment, alignment

    def step(previous, chosen):
        alignment = monotonic_alignment(chosen, previous, mode)
        return alignment, alignment

    last, alignments = scan(step, previous, ops.transpose(chosen, (1, 0, 2)))  # (T, B, S)
    return ops.transpose(alignments, (1, 0, 2)), last


def _shifted(x, places, fill):
    """x moved to the right by that many places along its last axis, or to the left by a negative number of them."""
    if not places:
        return x
    before, after = max(places, 0), max(-places, 0)
    padded = ops.pad(x, [(0, 0)] * (len(x.shape) - 1) + [(before, after)], constant_values=fill)
    return padded[..., :-before] if before else padded[..., after:]


@register_attention("additive_monotonic")
class BahdanauMonotonicAttention(_MonotonicAttention, BahdanauAttention):
    """Monotonic attention with the additive score, in expectation, or hard; with chunks it is MoChA.

        e_ij = score(s_{i-1}, h_j) + r + sigmoid_noise * N(0, 1),  p_ij = sigmoid(e_ij)    (Raffel 2017, eqs. 11 and 12)
        alpha_ij = p_ij sum_{k <= j} (alpha_{i-1,k} prod_{l=k}^{j-1} (1 - p_il))                                (eq. 9)

    alpha_ij is the probability that step i stops at word j, when it starts where step i - 1 stopped and goes to the
    right. With mode "hard" p is 1 where e > 0 and 0 elsewhere, so that one word is chosen, or none. With `chunk_size`
    w, what stops at word k is spread over the w words that end at it, by a second score u with weights of its own:

        beta_ij = sum_{k=j}^{j+w-1} alpha_ik exp(u_ij) / sum_{l=k-w+1}^{k} exp(u_il)   (Chiu & Raffel 2018, section 2.3)

    Args:
        units, use_bias, normalize, query_initializer, key_initializer, score_initializer: As in `BahdanauAttention`;
            the paper's score is that with `normalize=True`. The score of chunks has a bias and is not normalised.
        mode: "recursive", "parallel" or "hard"; see `keras_attn.layers.monotonic`.
        inference_mode: The mode outside of training, such as "hard"; None: `mode`.
        sigmoid_noise: Standard deviation of the noise, which makes the model prefer probabilities near 0 and 1.
            `AttentionDecoder` adds it in training, and draws it outside the loop. For hard mode 1, as in the paper,
            may be too little; see `tests/benchmarks/learned.py`.
        score_bias_initializer: For r; the paper starts with a negative constant, the lower the longer the sources. At
            first a step passes about exp(-r) words, so 0 is right for targets as long as their sources.
        chunk_size: w; None: no chunks.

    Call arguments and mask behaviour: see `Attention`. Further ones are `noise`, `(B, S)` or `(B, T, S)` from N(0, 1),
    None for none; and `training`, which chooses the mode. The state is alpha_{i-1}, `(B, S)`; `()` stands for 1 at
    the first word.

    Returns:
        As `Attention`. The alignment, beta with chunks, sums to less than 1 by the probability that no word is chosen.

    Raises:
        ValueError: for an unknown mode, a negative `sigmoid_noise`, a size that is not a positive whole number, or a
            `normalizer`.

    Example:
        >>> zeros = {"score_initializer": "zeros", "score_bias_initializer": "ones"}  # e = 1 everywhere
        >>> attention = keras_attn.BahdanauMonotonicAttention(7, mode="hard", **zeros)
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, state = attention(query, values)
        >>> print(keras.ops.convert_to_numpy(alignment)[0])
        [1. 0. 0.]

    Differences from the paper: none. From tensorflow_addons' layer of this name: that one adds the noise outside of
    training, too, until it is made anew without.

    References: Raffel, Luong, Liu, Weiss, Eck. Online and Linear-Time Attention by Enforcing Monotonic Alignments. ICML
    2017, arXiv:1704.00784. Chiu, Raffel. Monotonic Chunkwise Attention. ICLR 2018, arXiv:1712.05382.
    """

    def make_chunk_score(self):
        return BahdanauAttention(
            self.units,
            use_bias=True,
            query_initializer=clone_initializer(self.query_initializer),
            key_initializer=clone_initializer(self.key_initializer),
            score_initializer=clone_initializer(self.score_initializer),
            dtype=self.dtype_policy,
            name="chunk_score",
            **self.weight_options,
        )


@register_attention("general_monotonic")
class GeneralMonotonicAttention(_MonotonicAttention, GeneralAttention):
    """Monotonic attention with Luong's general score: tensorflow_addons' `LuongMonotonicAttention`.

        e_ij = s_i^T W_a h_j + r,   p_ij = sigmoid(e_ij),   alpha_i as in `BahdanauMonotonicAttention`

    It is not `LocalMonotonicAttention`, which is Luong's local-m.

    Args:
        use_scale, kernel_initializer: As in `GeneralAttention`; chunks have a matrix and a factor of their own.
        mode, inference_mode, sigmoid_noise, score_bias_initializer, chunk_size: As in `BahdanauMonotonicAttention`.

    Call arguments, returns, mask behaviour and errors: see `BahdanauMonotonicAttention`.

    Example:
        >>> attention = keras_attn.GeneralMonotonicAttention(mode="recursive", kernel_initializer="zeros")
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, state = attention(query, values)
        >>> print(keras.ops.convert_to_numpy(alignment)[0])
        [0.5   0.25  0.125]

    Differences from the paper and from tensorflow_addons: see `BahdanauMonotonicAttention`.

    Reference: Raffel, Luong, Liu, Weiss, Eck. ICML 2017, arXiv:1704.00784.
    """

    def make_chunk_score(self):
        return GeneralAttention(
            use_scale=self.use_scale,
            kernel_initializer=clone_initializer(self.kernel_initializer),
            dtype=self.dtype_policy,
            name="chunk_score",
            **self.weight_options,
        )
