"""Attention over a memory, for recurrent decoders: scores, then mask, softmax, context.

The last three are written once, in `Attention`. A sibling defines its weights, its keys and its scores (`scores.py`),
or what becomes of any sibling's scores, with a state of its own where it has one (`luong.py`).
"""

from typing import Any

import keras
from keras import initializers, ops


@keras.saving.register_keras_serializable(package="keras_attn")
class Attention(keras.layers.Layer):
    """Base of every attention layer: turns scores e into an alignment alpha and a context c.

        alpha_ij = exp(e_ij) / sum_k exp(e_ik),   c_i = sum_j alpha_ij h_j          (Bahdanau 2015, eqs. 5 and 6)

    Shapes: B batch, T target length, S source length, H query units, M memory width, A attention width.

    Call arguments:
        query: `(B, H)` for one step of the decoder, or `(B, T, H)` for all of them at once.
        values: `(B, S, M)`, the memory h.
        keys: what `keys(values)` returned, computed once a sentence; `None` computes it here.
        mask: Boolean `(B, S)`, True = real token; `None` means that every position is real.
        state: The mechanism's own state; `()` for mechanisms without memory of earlier steps.

    Returns:
        `(context, alignment, state)`: `(B, M)` and `(B, S)` for one step, `(B, T, M)` and `(B, T, S)` for all.

    Mask behaviour: a masked position gets alignment exactly 0. A row with no real position gets a zero alignment,
    a zero context, and finite gradients. Scores and softmax are float32 under every dtype policy; the context has
    the layer's compute dtype.

    Subclasses implement `keys` and `scores`, or `align`, which makes the alignment of them.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, query, values, keys=None, mask=None, state=()):
        if keys is None:
            keys = self.keys(values)
        alignment, state = self.align(query, keys, mask, state)
        return self.context(alignment, values), alignment, state

    def keys(self, values):
        """The source side of the score, the same for every target step: `(B, S, M) -> (B, S, A)`."""
        return values

    def scores(self, query, keys):
        """e_ij for `(B, H)` or `(B, T, H)` queries: `(B, S)` or `(B, T, S)`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `scores(query, keys)`.")

    def align(self, query, keys, mask, state):
        """alpha_ij `(B, S)` or `(B, T, S)`, float32, and the next state."""
        scores = ops.cast(self.scores(query, keys), "float32")  # (B, S) or (B, T, S)
        return masked_softmax(scores, mask), state

    def context(self, alignment, values):
        """sum_j alpha_ij h_j."""
        alignment = ops.cast(alignment, values.dtype)
        if len(alignment.shape) == 3:
            return ops.matmul(alignment, values)  # (B, T, M)
        return ops.squeeze(ops.matmul(alignment[:, None, :], values), axis=1)  # (B, M)

    def initial_state(self, values) -> Any:
        """State before the first step; `()` unless the mechanism remembers earlier steps."""
        return ()

    def check_built(self) -> None:
        """Refuses a call of `keys` before there are weights."""
        if not self.built:
            raise ValueError("Expected a built layer: call it, or `build(query_shape, values_shape)`, before `keys`.")

    def compute_mask(self, *_):
        """None: the source mask says nothing about the outputs, and Keras would hang it on them."""

    def compute_output_spec(self, query, values, keys=None, mask=None, state=()):
        steps = query.shape[:-1]  # (B,) or (B, T)
        return (
            keras.KerasTensor((*steps, values.shape[-1]), dtype=self.compute_dtype),
            keras.KerasTensor((*steps, values.shape[1]), dtype="float32"),
            state,
        )

    def get_config(self):
        # Without this, Keras would record the arguments itself for siblings that have none, and refuse a dtype policy.
        return super().get_config()


def masked_softmax(scores, mask=None):
    """Softmax over the last axis of float32 scores `(B, ..., S)`; masked positions get exactly 0.

    The mask is `(B, S)`, or has as many axes as the scores.
    """
    if mask is None:
        return ops.softmax(scores, axis=-1)
    mask = ops.cast(mask, "bool")
    while len(mask.shape) < len(scores.shape):
        mask = mask[:, None]  # (B, 1, S)
    # A finite floor, not -inf: a row without any real position would otherwise be 0 / 0 in both directions.
    alignment = ops.softmax(ops.where(mask, scores, -1e9), axis=-1)
    return ops.where(mask, alignment, 0.0)


def check_size(name: str, size) -> None:
    """Refuses what is no size."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"Expected `{name}` to be a positive whole number. Received: {name}={size!r}")


def additive_scores(query, keys, vector):
    """v^T tanh(query + keys) in float32: `(B, A)` or `(B, T, A)` and `(B, S, A)` -> `(B, S)` or `(B, T, S)`."""
    if len(query.shape) == 3:
        keys = keys[:, None]  # (B, 1, S, A)
    hidden = ops.tanh(keys + query[..., None, :])  # (B, S, A) or (B, T, S, A)
    # One product of rank 2: half the time of a product and a sum, and rank 3 has no gradient in TensorFlow's XLA loops.
    flat = ops.reshape(ops.cast(hidden, "float32"), (-1, hidden.shape[-1]))  # (B * S, A) or (B * T * S, A)
    scores = ops.matmul(flat, ops.cast(vector, "float32")[:, None])  # (B * S, 1) or (B * T * S, 1)
    return ops.reshape(scores, ops.shape(hidden)[:-1])


@keras.saving.register_keras_serializable(package="keras_attn")
class BahdanauAttention(Attention):
    """Additive attention, as in RNNsearch.

        e_ij = v^T tanh(W s_{i-1} + U h_j)                                  (Bahdanau 2015, appendix A.1.2)
        e_ij = g v^T/|v| tanh(W s_{i-1} + U h_j + b)      with `normalize`  (Salimans & Kingma 2016, eq. 2)

    Arguments:
        units: A, the width of the alignment model (n' of the paper).
        use_bias: Adds a bias to W s + U h. The paper has none.
        normalize: Weight normalisation of v, with a learned gain g (starting at sqrt(1 / A)) and bias b.
        query_initializer, key_initializer, score_initializer: For W `(H, A)`, U `(M, A)` and v `(A,)`.

    Call arguments, returns and mask behaviour: see `Attention`. `keys(values)` is U h, `(B, S, A)`.

    Raises:
        ValueError: if `units` is not a positive whole number, or if `keys` is asked for before the layer is built.

    Example:
        >>> attention = keras_attn.BahdanauAttention(7)
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, _ = attention(query, values)
        >>> context.shape, alignment.shape
        ((2, 11), (2, 3))

    Differences from the paper: none with the defaults but the initialisers; `RNNSearch` sets the paper's.

    Reference: Bahdanau, Cho, Bengio. Neural Machine Translation by Jointly Learning to Align and Translate.
    ICLR 2015, arXiv:1409.0473.
    """

    def __init__(
        self,
        units: int,
        *,
        use_bias: bool = False,
        normalize: bool = False,
        query_initializer="glorot_uniform",
        key_initializer="glorot_uniform",
        score_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_size("units", units)
        self.units = units
        self.use_bias = use_bias
        self.normalize = normalize
        self.query_initializer = initializers.get(query_initializer)
        self.key_initializer = initializers.get(key_initializer)
        self.score_initializer = initializers.get(score_initializer)

    def build(self, query_shape, values_shape, **_):
        def weight(name, *shape, initializer="zeros"):
            return self.add_weight(name=name, shape=shape, initializer=initializer)

        self.query_kernel = weight("query_kernel", query_shape[-1], self.units, initializer=self.query_initializer)
        self.key_kernel = weight("key_kernel", values_shape[-1], self.units, initializer=self.key_initializer)
        self.score_vector = weight("score_vector", self.units, initializer=self.score_initializer)
        self.bias = weight("bias", self.units) if self.use_bias or self.normalize else None
        gain = initializers.Constant(self.units**-0.5)
        self.gain = weight("gain", initializer=gain) if self.normalize else None

    def keys(self, values):
        self.check_built()
        keys = ops.matmul(values, ops.cast(self.key_kernel, values.dtype))  # (B, S, A)
        # The bias goes with the keys, added once a sentence instead of once a step.
        return keys if self.bias is None else keys + ops.cast(self.bias, keys.dtype)

    def scores(self, query, keys):
        query = ops.matmul(query, ops.cast(self.query_kernel, query.dtype))  # (B, A) or (B, T, A)
        v = ops.cast(self.score_vector, "float32")  # (A,)
        if self.normalize:
            v = ops.cast(self.gain, "float32") * v * ops.rsqrt(ops.sum(ops.square(v)))
        return additive_scores(query, keys, v)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "normalize": self.normalize,
            "query_initializer": initializers.serialize(self.query_initializer),
            "key_initializer": initializers.serialize(self.key_initializer),
            "score_initializer": initializers.serialize(self.score_initializer),
        }
