"""Hard attention, with its alignment as a hidden variable that is summed over exactly."""

import keras
from keras import ops

from keras_attn.backend import dense
from keras_attn.layers.dot import GeneralAttention
from keras_attn.layers.forward_algorithm import advance, forward, mixture, observations, smoothed
from keras_attn.layers.layer import SourceReader, check_mask, check_size
from keras_attn.layers.normalizers import at_least_float32

IMPOSSIBLE = -1e9  # as a logarithm: finite, so that no gradient is 0 / 0


@keras.saving.register_keras_serializable(package="keras_attn")
class HardAlignment(SourceReader):
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
        options = {"kernel_initializer": self.kernel_initializer.clone(), "dtype": self.dtype_policy}
        self.score = None if order else GeneralAttention(**options, name="score")

    def build(self, states_shape, values_shape, *_, **__):
        if self.score is not None:
            self.score.build(states_shape, values_shape)
            return

        def kernel(name, width):
            shape = (width, len(self.jumps))
            return self.add_weight(name=name, shape=shape, initializer=self.kernel_initializer.clone())

        self.state_kernel = kernel("state_kernel", states_shape[-1])
        self.memory_kernel = kernel("memory_kernel", values_shape[-1])
        self.bias = self.add_weight(name="bias", shape=(len(self.jumps),), initializer="zeros")

    def call(self, states, values, log_emissions, token_ids, mask=None, values_mask=None):
        mask = check_mask(values_mask if mask is None else mask, values)
        states, values = (ops.cast(x, self.compute_dtype) for x in (states, values))
        keys = self.keys(values)
        transitions = self.log_transitions(states, keys, mask)  # (B, T, S, S)
        observed = observations(log_emissions, token_ids)  # (B, T, S)
        log_alignments = forward(self.first(keys), observed, transitions)  # (B, T, S)
        return mixture(log_alignments, log_emissions), log_alignments

    def step(self, state, log_emissions, keys, mask, previous):
        """One step, of the decoder's state `(B, H)`.

        Args:
            log_emissions: `(B, S, V)`.
            previous: `(log_alignment (B, S), observed (B, S))` of the step before: log q_{i-1}, at first `first(keys)`,
                and log p(y_{i-1} | a_{i-1}), at first 0.

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
        return smoothed(forward(self.first(keys), observed, transitions), observed, transitions)

    def keys(self, values):
        """What of the scores depends on the source alone, `(B, S, A)`."""
        if self.score is not None:
            return self.score.keys(values)
        return dense(values, self.memory_kernel) + ops.cast(self.bias, values.dtype)

    def first(self, keys):
        """log p(a_0 = j) `(B, S)`, all of it at the first word."""
        zeros = at_least_float32(ops.zeros_like(keys[..., 0]))  # (B, S)
        return zeros + ops.cast(ops.where(ops.arange(ops.shape(keys)[1]) == 0, 0.0, IMPOSSIBLE), zeros.dtype)

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
