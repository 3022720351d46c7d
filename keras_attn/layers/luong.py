"""Luong's attention: global over all of the source, or local in a window, each with any score function."""

import keras
from keras import ops

from keras_attn.layers.attention import Attention, BahdanauAttention, check_size, masked_softmax
from keras_attn.layers.cosine import CosineAttention, LocationAttention
from keras_attn.layers.dot import ConcatAttention, DotAttention, GeneralAttention, ScaledDotAttention


def attention_layer(identifier, units: int | None = None, dtype=None) -> Attention:
    """An attention layer by its score function's name, or the layer itself, as it is or serialised.

    Arguments:
        identifier: A score function, "additive", "concat", "cosine", "dot", "general", "location" or "scaled_dot";
            Luong's local attention with the general score, "local_m" or "local_p"; or an `Attention`.
        units: Width of the hidden layer of the two that have one, additive and concat.
        dtype: Dtype policy of a layer made by name.

    Raises:
        ValueError: for another name, or something that is no attention layer.
    """
    named = {
        "additive": lambda: BahdanauAttention(units, name="attention", dtype=dtype),
        "concat": lambda: ConcatAttention(units, name="attention", dtype=dtype),
        "cosine": lambda: CosineAttention(name="attention", dtype=dtype),
        "dot": lambda: DotAttention(name="attention", dtype=dtype),
        "general": lambda: GeneralAttention(name="attention", dtype=dtype),
        "local_m": lambda: LocalMonotonicAttention(name="attention", dtype=dtype),
        "local_p": lambda: LocalPredictiveAttention(name="attention", dtype=dtype),
        "location": lambda: LocationAttention(name="attention", dtype=dtype),
        "scaled_dot": lambda: ScaledDotAttention(name="attention", dtype=dtype),
    }
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, Attention):
        return identifier
    if identifier not in named:
        raise ValueError(f"Expected an `Attention` layer, or one of {sorted(named)}. Received: {identifier!r}")
    return named[identifier]()


@keras.saving.register_keras_serializable(package="keras_attn")
class LuongAttention(Attention):
    """Global attention: every source word is scored, by the function that is chosen.

        alpha_t(j) = exp(score(s_t, h_j)) / sum_k exp(score(s_t, h_k))         (Luong 2015, section 3.1, eq. 7)

    Luong asks with the new state s_t: `AttentionDecoder(..., attend="after")`.

    Arguments:
        score: A name ("dot", "general", "concat", "location", "scaled_dot", "cosine", as in `attention_layer`) or an
            `Attention` layer, such as `GeneralAttention(use_scale=True)` or `ConcatAttention(512)`, whose weights and
            scores are used.

    Call arguments, returns and mask behaviour: see `Attention`.

    Raises:
        ValueError: for a score that is neither.

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

    def __init__(self, score="general", **kwargs):
        super().__init__(**kwargs)
        self.score = attention_layer(score, dtype=self.dtype_policy)
        if isinstance(self.score, LuongAttention):
            raise ValueError(f"Expected a score function, no window around one. Received: {self.score!r}")

    def build(self, query_shape, values_shape, **_):
        if not self.score.built:  # a layer that comes from a file already is
            self.score.build(query_shape, values_shape)

    def keys(self, values):
        return self.score.keys(values)

    def scores(self, query, keys):
        return self.score.scores(query, keys)

    def get_config(self):
        return {**super().get_config(), "score": keras.saving.serialize_keras_object(self.score)}


class _LocalAttention(LuongAttention):
    """Attention to the words at most D away from a position p_t; subclasses say where that is."""

    def __init__(self, score="general", *, window: int = 10, **kwargs):
        super().__init__(score, **kwargs)
        check_size("window", window)
        self.window = window

    def align(self, query, keys, mask, state):
        mask = ops.ones_like(keys[:, :, 0], "int32") if mask is None else ops.cast(mask, "int32")  # (B, S)
        # Counted over real words, so that padding moves nothing wherever it stands.
        positions = ops.cast(ops.cumsum(mask, axis=-1) - 1, "float32")  # (B, S)
        lengths = ops.cast(ops.sum(mask, axis=-1), "float32")  # (B,)
        centres, state = self.centres(query, lengths, state)  # (B,) or (B, T)
        if len(query.shape) == 3:
            positions, mask = positions[:, None], mask[:, None]  # (B, 1, S)
        distances = positions - centres[..., None]  # (B, S) or (B, T, S)
        inside = ops.cast(mask, "bool") & (ops.abs(distances) <= self.window)
        scores = ops.cast(self.scores(query, keys), "float32")  # (B, S) or (B, T, S)
        return self.favour(masked_softmax(scores, inside), distances), state

    def centres(self, query, lengths, state):
        """p_t `(B,)` or `(B, T)`, float32, for sources of `lengths (B,)`; and the next state."""
        raise NotImplementedError(f"{type(self).__name__} must implement `centres(query, lengths, state)`.")

    def favour(self, alignment, distances):
        """What becomes of the alignment inside the window, by the distance from p_t."""
        return alignment

    def get_config(self):
        return {**super().get_config(), "window": self.window}


@keras.saving.register_keras_serializable(package="keras_attn")
class LocalMonotonicAttention(_LocalAttention):
    """local-m: source and target are taken to run side by side, so step t looks around source word t.

        p_t = t,   alpha_t(j) = softmax over j in [p_t - D, p_t + D] of score(s_t, h_j)    (Luong 2015, section 3.2)

    Arguments:
        score: As in `LuongAttention`.
        window: D.

    Call arguments, returns and mask behaviour: see `Attention`. The state is t, `(B,)` int32, the number of steps made;
    `()` is the beginning. A word's position is its number among the real ones of its row, from 0.

    Raises:
        ValueError: for a score that is none, or a window that is no positive whole number.

    Example:
        >>> attention = keras_attn.LocalMonotonicAttention("dot", window=1)
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 4, 5), "float32")
        >>> context, alignment, state = attention(query, values)
        >>> print(keras.ops.convert_to_numpy(alignment)[0], keras.ops.convert_to_numpy(state))
        [0.5 0.5 0.  0. ] [1 1]

    Differences from the paper: p_t = min(t, S - 1), S the row's real length. The paper does not say what a target
    longer than S + D looks at; nothing at all would be of no use to it.

    Reference: Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    def centres(self, query, lengths, state):
        if isinstance(state, tuple):
            state = ops.zeros_like(lengths, "int32")  # (B,)
        if len(query.shape) == 2:
            return ops.minimum(ops.cast(state, "float32"), lengths - 1), state + 1
        steps = ops.shape(query)[1]
        t = state[:, None] + ops.arange(steps, dtype="int32")  # (B, T)
        return ops.minimum(ops.cast(t, "float32"), lengths[:, None] - 1), state + steps

    def initial_state(self, values):
        return ops.zeros_like(values[:, 0, 0], "int32")  # (B,)

    def compute_output_spec(self, query, values, keys=None, mask=None, state=()):
        context, alignment, _ = super().compute_output_spec(query, values)
        return context, alignment, keras.KerasTensor(query.shape[:1], dtype="int32")


@keras.saving.register_keras_serializable(package="keras_attn")
class LocalPredictiveAttention(_LocalAttention):
    """local-p: each step predicts where to look, and words count for less the further they stand from there.

        p_t = S sigmoid(v_p^T tanh(W_p s_t))                                       (Luong 2015, section 3.2, eq. 9)
        alpha_t(j) = align(s_t, h_j) exp(-(j - p_t)^2 / (2 sigma^2)),  sigma = D / 2                     (eq. 10)

    where align is the softmax over j in [p_t - D, p_t + D] and S the real length of the row's own source. p_t is no
    whole number, and the error reaches v_p and W_p through the Gaussian.

    Arguments:
        score: As in `LuongAttention`.
        window: D.
        kernel_initializer: For W_p `(H, H)` and v_p `(H,)`.

    Call arguments, returns and mask behaviour: see `Attention`. As in the paper the alignment is not normalised again:
    its rows sum to less than 1. A word's position is its number among the real ones of its row, from 0.

    Raises:
        ValueError: for a score that is none, or a window that is no positive whole number.

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
        for name, shape in (("position_kernel", (width, width)), ("position_vector", (width,))):
            setattr(self, name, self.add_weight(name=name, shape=shape, initializer=self.kernel_initializer.clone()))

    def centres(self, query, lengths, state):
        hidden = ops.tanh(ops.matmul(query, ops.cast(self.position_kernel, query.dtype)))  # (B, H) or (B, T, H)
        vector = ops.cast(self.position_vector, "float32")  # (H,)
        shares = ops.sigmoid(ops.sum(ops.cast(hidden, "float32") * vector, axis=-1))  # (B,) or (B, T)
        return shares * (lengths if len(shares.shape) == 1 else lengths[:, None]), state

    def favour(self, alignment, distances):
        sigma = self.window / 2
        return alignment * ops.exp(-ops.square(distances) / (2 * sigma**2))  # (B, S) or (B, T, S)

    def get_config(self):
        return {**super().get_config(), "kernel_initializer": keras.initializers.serialize(self.kernel_initializer)}
