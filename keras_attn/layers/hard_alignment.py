"""Hard attention, with its alignment as a hidden variable that is summed over exactly by the forward algorithm."""

import keras
from keras import ops

from keras_attn.backend import dense, scan, tanh
from keras_attn.layers.dot import GeneralAttention
from keras_attn.layers.layer import (
    SourceReader,
    WeightLayer,
    check_mask,
    check_sequence,
    check_size,
    clone_initializer,
)
from keras_attn.layers.normalizers import at_least_float32


def observations(log_emissions, token_ids):
    """log p(y_{i-1} | a_{i-1} = j) `(B, T, S)`, of the token that each step reads; 0 for the first, the start.

    Args:
        log_emissions: log p(y_i = v | a_i = j), `(B, T, S, V)`.
        token_ids: y_0 .. y_{T-1}, `(B, T)`.
    """
    # All T are gathered and one dropped, because JAX exports no gather from an unknown T - 1, which may be 0.
    read_next = ops.concatenate([token_ids[:, 1:], ops.zeros_like(token_ids[:, :1])], axis=1)  # (B, T)
    log_probs = of_tokens(log_emissions, read_next)  # (B, T, S), of y_i
    return ops.concatenate([ops.zeros_like(log_probs[:, :1]), log_probs[:, :-1]], axis=1)


def of_tokens(log_emissions, token_ids):
    """The tokens' log-probabilities at each word, `(..., S)` from `(..., S, V)` and ids `(...)`."""
    ids = ops.cast(token_ids, "int32")[..., None, None] + ops.zeros_like(
        log_emissions[..., :1], dtype="int32"
    )  # (..., S, 1)
    return ops.take_along_axis(at_least_float32(log_emissions), ids, axis=-1)[..., 0]


def advance(log_alignment, observed, log_transitions):
    """One step forward, to log p(a_i = j | y_<i, x) `(B, S)`.

    Args:
        log_alignment: The same of the step before, `(B, S)`.
        observed: log p(y_{i-1} | a_{i-1} = k), `(B, S)`.
        log_transitions: log p(a_i = j | a_{i-1} = k), `(B, S, S)`, k before j.
    """
    joint = log_alignment + observed  # (B, S)
    joint = joint - ops.logsumexp(joint, axis=-1, keepdims=True)
    return ops.logsumexp(joint[:, :, None] + log_transitions, axis=1)


def forward(first, observed, log_transitions):
    """log p(a_i = j | y_<i, x) of all steps, `(B, T, S)`.

    Args:
        first: log p(a_0 = j), `(B, S)`.
        observed: As `observations` returns it, `(B, T, S)`.
        log_transitions: log p(a_i = j | a_{i-1} = k), `(B, T, S, S)`.
    """

    def step(log_alignment, x):
        log_alignment = advance(log_alignment, *x)
        return log_alignment, log_alignment

    xs = ops.transpose(observed, (1, 0, 2)), ops.transpose(log_transitions, (1, 0, 2, 3))
    _, log_alignments = scan(step, first, xs)  # (T, B, S)
    return ops.transpose(log_alignments, (1, 0, 2))


def smoothed(log_alignments, observed, log_transitions):
    """p(a_i = j | y_1 .. y_{T-1}, x), `(B, T, S)`.

    Args:
        log_alignments: As `forward` returns them, `(B, T, S)`.
        observed, log_transitions: As `forward` takes them.
    """

    def step(future, x):  # log p(y_{i+1} .. y_{T-1} | a_i = j), (B, S)
        read, log_transitions = x
        weighed = future + read  # (B, S), with y_i
        return ops.logsumexp(log_transitions + weighed[:, None], axis=2), weighed

    zeros = ops.zeros_like(observed[:, :1])  # (B, 1, S)
    read = ops.concatenate([observed[:, 1:], zeros], axis=1)  # (B, T, S), log p(y_i | a_i = j)
    xs = ops.transpose(read, (1, 0, 2)), ops.transpose(log_transitions, (1, 0, 2, 3))
    _, weights = scan(step, zeros[:, 0], xs, reverse=True)  # (T, B, S)
    return ops.softmax(log_alignments + ops.transpose(weights, (1, 0, 2)), axis=-1)


def mixture(log_alignments, log_emissions):
    """log p(y_i | y_<i, x) `(..., V)`, from log p(a_i | y_<i, x) `(..., S)` and log p(y_i | a_i) `(..., S, V)`."""
    return ops.logsumexp(log_alignments[..., None] + at_least_float32(log_emissions), axis=-2)


IMPOSSIBLE = -1e9  # as a logarithm: finite, so that no gradient is 0 / 0


@keras.saving.register_keras_serializable(package="keras_attn")
class HardAlignment(WeightLayer, SourceReader):
    """The next token's distribution, summed over all alignments by the forward algorithm.

        p(a_i = j | a_{i-1} = k) = exp(e_ij) / sum_{l >= k} exp(e_il) for j >= k,   e_ij = s_i^T T h_j     (order 0)
        p(a_i = k + d | a_{i-1} = k) = softmax_d(U s_i + V h_k + b),   0 <= d <= window                    (order 1)
        q_i(j) = p(a_i = j | y_<i, x) = sum_k p(a_i = j | a_{i-1} = k) p(a_{i-1} = k | y_<i, x)
        p(y_i | y_<i, x) = sum_j q_i(j) p(y_i | a_i = j)
        p(a_i = j | y_<=i, x) = q_i(j) p(y_i | a_i = j) / p(y_i | y_<i, x)

    so that the product over i is p(y | x), the sum over all alignments (Wu & Cotterell 2019). Before
    the first step the alignment is at the first word. With `monotonic=False` every word can follow every other, within
    the window for order 1: l, j and d are not bounded from below (Wu, Shapiro & Cotterell 2018).

    Args:
        order: 0 or 1, whether the scores depend on the last alignment.
        monotonic: Whether the alignment never goes back.
        window: The longest jump of order 1, in words.
        kernel_initializer: For T, U and V.

    Call arguments:
        states: `(B, T, H)`, the decoder's s_i, which depend on y_<i and on no alignment.
        values: `(B, S, M)`, the encoder's h_j.
        log_emissions: `(B, T, S, V)`, log p(y_i | a_i = j).
        token_ids: `(B, T)`, y_0 .. y_{T-1}, of which the first is the start.
        mask: Boolean `(B, S)`, True = real token; None: the implicit mask of `values`, or else all are real.

    Returns:
        `(log_probs (B, T, V), log_alignments (B, T, S))`, log p(y_i | y_<i, x) and log q_i, at least in float32. For
        one step at a time: `keys` once, then `step`.

    Mask behaviour: padding has a probability of at most e^-1e9, which is 0.

    Raises:
        ValueError: for another order, or a `window` that is not a positive whole number.

    Example:
        >>> states, values = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 11), "float32")
        >>> log_emissions = np.full((2, 3, 7, 13), np.log(1 / 13), "float32")
        >>> layer = keras_attn.layers.HardAlignment(order=1, window=2)
        >>> log_probs, log_alignments = layer(states, values, log_emissions, np.ones((2, 3), "int32"))
        >>> log_probs.shape, log_alignments.shape
        ((2, 3, 13), (2, 3, 7))

    Differences from the paper: order 1 normalises over the jumps that stay inside of the source.

    References: Wu, Cotterell. Exact Hard Monotonic Attention for Character-Level Transduction. ACL 2019,
    arXiv:1905.06319. Wu, Shapiro, Cotterell. Hard Non-Monotonic Attention. EMNLP 2018, arXiv:1808.10024.
    """

    def __init__(self, order=0, *, monotonic=True, window=4, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**{**kwargs, "autocast": False})  # emissions stay in float32
        if order not in (0, 1):
            raise ValueError(f"Expected `order` 0 or 1. Received: order={order!r}")
        check_size("window", window)
        self.order = order
        self.monotonic = monotonic
        self.window = window
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.jumps = range(0 if monotonic else -window, window + 1)
        options = {"kernel_initializer": clone_initializer(self.kernel_initializer), "dtype": self.dtype_policy}
        self.score = None if order else GeneralAttention(**options, **self.weight_options, name="score")

    def build(self, states_shape, values_shape, *_, **__):
        if self.score is not None:
            self.score.build(states_shape, values_shape)
            return
        width = len(self.jumps)
        kernels = {"state_kernel": (states_shape[-1], width), "memory_kernel": (values_shape[-1], width)}
        self.add_weights(self.kernel_initializer, **kernels)
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros")

    def call(self, states, values, log_emissions, token_ids, mask=None, values_mask=None):
        mask = check_mask(values_mask if mask is None else mask, values)
        states, values = (ops.cast(x, self.compute_dtype) for x in (states, values))
        keys = self.keys(values)
        transitions = self.log_transitions(states, keys, mask)  # (B, T, S, S)
        observed = observations(log_emissions, token_ids)  # (B, T, S)
        log_alignments = forward(self.first(keys, mask), observed, transitions)  # (B, T, S)
        return mixture(log_alignments, log_emissions), log_alignments

    def step(self, state, log_emissions, keys, mask, previous):
        """One step, of the decoder's state `(B, H)`.

        Args:
            log_emissions: `(B, S, V)`.
            previous: `(log_alignment (B, S), observed (B, S))` of the step before: log q_{i-1}, at first
                `first(keys, mask)`, and log p(y_{i-1} | a_{i-1}), at first 0.

        Returns:
            `(log_probs (B, V), log_alignment (B, S))`.
        """
        log_alignment = advance(*previous, self.log_transitions(state, keys, mask))
        return mixture(log_alignment, log_emissions), log_alignment

    def posterior(self, states, values, log_emissions, token_ids, mask=None):
        """p(a_i = j | y_1 .. y_{T-1}, x) `(B, T, S)`, by the forward-backward algorithm; arguments as of the call."""
        keys = self.keys(values)
        transitions = self.log_transitions(states, keys, mask)  # (B, T, S, S)
        observed = observations(log_emissions, token_ids)  # (B, T, S)
        return smoothed(forward(self.first(keys, mask), observed, transitions), observed, transitions)

    def keys(self, values):
        """The source side of the scores, `(B, S, A)`."""
        if self.score is not None:
            return self.score.keys(values)
        return dense(values, self.memory_kernel) + ops.cast(self.bias, values.dtype)

    def first(self, keys, mask=None):
        """log p(a_0 = j) `(B, S)`, all of it at the first real word."""
        zeros = at_least_float32(ops.zeros_like(keys[..., 0]))  # (B, S)
        first = 0 if mask is None else ops.argmax(ops.cast(mask, "int32"), axis=-1)[:, None]  # (B, 1), or 0
        is_first = ops.arange(ops.shape(keys)[1], dtype="int32") == ops.cast(first, "int32")  # (B, S), or (S,)
        return zeros + ops.cast(ops.where(is_first, 0.0, IMPOSSIBLE), zeros.dtype)

    def log_transitions(self, states, keys, mask=None):
        """log p(a_i = j | a_{i-1} = k): `(B, S, S)` for states `(B, H)`, `(B, T, S, S)` for `(B, T, H)`."""
        positions = ops.arange(ops.shape(keys)[1])  # (S,)
        jumps = positions - positions[:, None]  # (S, S), j - k
        allowed = jumps >= (self.jumps[0] if self.monotonic or self.order else -ops.shape(keys)[1])
        if self.order:
            allowed = allowed & (jumps <= self.jumps[-1])
            own = dense(states, self.state_kernel)[..., None, :]  # (B, 1, W) or (B, T, 1, W)
            scores = at_least_float32(own + (keys if len(states.shape) == 2 else keys[:, None]))  # (..., S, W)
            scores = sum(ops.where(jumps == d, scores[..., n][..., None], 0.0) for n, d in enumerate(self.jumps))
        else:
            scores = self.score.scores(states, keys)[..., None, :]  # (B, 1, S) or (B, T, 1, S)
        if mask is not None:
            real = ops.cast(mask, "bool")[:, None]  # (B, 1, S)
            allowed = allowed & (real if len(states.shape) == 2 else real[:, None])
        return ops.log_softmax(ops.where(allowed, scores, IMPOSSIBLE), axis=-1)

    def compute_output_spec(self, states, values, log_emissions, token_ids, mask=None, values_mask=None):
        dtype = at_least_float32(log_emissions).dtype
        shapes = (*states.shape[:2], log_emissions.shape[-1]), (*states.shape[:2], values.shape[1])
        return tuple(keras.KerasTensor(shape, dtype=dtype) for shape in shapes)


@keras.saving.register_keras_serializable(package="keras_attn")
class PairReadout(WeightLayer):
    """Features of each decoder state with each source word, from which the next token is predicted.

        f_ij = tanh(W [s_i ; h_j] + b) = tanh(W_s s_i + W_h h_j + b)                  (Wu, Shapiro & Cotterell 2018)

    Both products are computed once for each state and word, and only their sums for each pair.

    Args:
        units: R, the width of the features.
        kernel_initializer: For W_s and W_h.

    Call arguments: `states (B, T, H)` and `values (B, S, M)`. Returns `(B, T, S, R)`. For one step at a time:
    `keys(values)` once, then `pairs(state (B, H), keys) -> (B, S, R)`.

    Raises:
        ValueError: if `units` is not a positive whole number.

    Example:
        >>> states, values = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 11), "float32")
        >>> keras_attn.layers.PairReadout(13)(states, values).shape
        (2, 3, 7, 13)

    Reference: Wu, Shapiro, Cotterell. Hard Non-Monotonic Attention for Character-Level Transduction. EMNLP 2018,
    arXiv:1808.10024.
    """

    def __init__(self, units: int, *, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_size("units", units)
        self.units = units
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, states_shape, values_shape):
        check_sequence("values", values_shape)
        kernels = {"state_kernel": (states_shape[-1], self.units), "memory_kernel": (values_shape[-1], self.units)}
        self.add_weights(self.kernel_initializer, **kernels)
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")

    def call(self, states, values):
        return self.pairs(states, self.keys(values))

    def keys(self, values):
        """The source side of the features: `(B, S, M) -> (B, S, R)`."""
        return dense(values, self.memory_kernel) + ops.cast(self.bias, values.dtype)

    def pairs(self, states, keys):
        """The features of states `(B, T, H)` or `(B, H)` with every word: `(B, T, S, R)` or `(B, S, R)`."""
        own = dense(states, self.state_kernel)[..., None, :]  # (B, T, 1, R) or (B, 1, R)
        return tanh(own + (keys if len(states.shape) == 2 else keys[:, None]))

    def compute_output_spec(self, states, values):
        return keras.KerasTensor((*states.shape[:-1], values.shape[1], self.units), dtype=self.compute_dtype)
