"""Additive attention: a hidden layer of tanh units between the query and each word, with or without a state."""

from typing import Any

from keras import initializers, ops

from keras_attn.backend import dense, matmul, scan, tanh
from keras_attn.layers.attention import Attention, register_attention
from keras_attn.layers.layer import Layer, check_size, layer_norm, refuse_unknown_arguments
from keras_attn.layers.normalizers import at_least_float32, score_dtype


def additive_scores(query, keys, vector):
    """v^T tanh(query + keys), at least float32: `(B, A)` or `(B, T, A)` and `(B, S, A)` -> `(B, S)` or `(B, T, S)`."""
    if len(query.shape) == 3:
        keys = keys[:, None]  # (B, 1, S, A)
    hidden = tanh(keys + query[..., None, :])  # (B, S, A) or (B, T, S, A)
    # One product of rank 2: half the time of a product and a sum, and rank 3 has no gradient in TensorFlow's XLA loops.
    flat = ops.reshape(at_least_float32(hidden), (-1, hidden.shape[-1]))  # (B * S, A) or (B * T * S, A)
    scores = matmul(flat, ops.cast(vector, flat.dtype)[:, None])  # (B * S, 1) or (B * T * S, 1)
    return ops.reshape(scores, ops.shape(hidden)[:-1])


@register_attention("additive")
class BahdanauAttention(Attention):
    """Additive attention, as in RNNsearch.

        e_ij = v^T tanh(W s_{i-1} + U h_j)                                  (Bahdanau 2015, appendix A.1.2)
        e_ij = g v^T/|v| tanh(W s_{i-1} + U h_j + b)      with `normalize`  (Salimans & Kingma 2016, eq. 2)

    Args:
        units: A, the width of the alignment model (n' of the paper).
        use_bias: Adds a bias to W s + U h. The paper has none.
        normalize: Weight normalisation of v, with a learned gain g (starting at sqrt(1 / A)) and bias b.
        query_initializer, key_initializer, score_initializer: For W `(H, A)`, U `(M, A)` and v `(A,)`.

    Call arguments, returns and mask behaviour: see `Attention`. `keys(values)` is U h, `(B, S, A)`.

    Raises:
        ValueError: if `units` is not a positive whole number, or `keys` is called before the layer is built.

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
        keys = dense(values, self.key_kernel)  # (B, S, A)
        # The bias is added to the keys: once a sentence instead of once a step.
        return keys if self.bias is None else keys + ops.cast(self.bias, keys.dtype)

    def scores(self, query, keys):
        query = dense(query, self.query_kernel)  # (B, A) or (B, T, A)
        v = at_least_float32(self.score_vector)  # (A,)
        if self.normalize:
            v = ops.cast(self.gain, v.dtype) * v * ops.rsqrt(ops.sum(ops.square(v)))
        return additive_scores(query, keys, v)


@register_attention("layer_norm_additive")
class LayerNormAttention(BahdanauAttention):
    """Additive attention whose hidden layer is normalised, state and word each by themselves.

        e_ij = v^T tanh(LN(W s) + LN(U h_j) + b),   LN(a) = g (a - mean(a)) / sqrt(var(a) + epsilon)

                                                                (Ba 2016, eq. 4; Marian, `rnn/attention.h`)

    Args:
        units: A.
        epsilon: Added to the variance.
        query_initializer, key_initializer, score_initializer: As in `BahdanauAttention`.

    Call arguments, returns and mask behaviour: see `Attention`. `keys(values)` is LN(U h) + b, `(B, S, A)`.

    Example:
        >>> attention = keras_attn.layers.LayerNormAttention(7)
        >>> context, alignment, _ = attention(np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32"))
        >>> context.shape, alignment.shape
        ((2, 11), (2, 3))

    References: Bahdanau, Cho, Bengio. ICLR 2015, arXiv:1409.0473. Ba, Kiros, Hinton. Layer Normalization. 2016,
    arXiv:1607.06450.
    """

    _replaces_arguments = True

    def __init__(
        self,
        units: int,
        *,
        epsilon: float = 1e-5,
        query_initializer="glorot_uniform",
        key_initializer="glorot_uniform",
        score_initializer="glorot_uniform",
        **kwargs,
    ):
        refuse_unknown_arguments(type(self), kwargs, base=Layer)
        super().__init__(
            units,
            query_initializer=query_initializer,
            key_initializer=key_initializer,
            score_initializer=score_initializer,
            **kwargs,
        )
        self.epsilon = epsilon
        self.query_norm, self.key_norm = layer_norm(self, "query_norm"), layer_norm(self, "key_norm", center=True)

    def build(self, query_shape, values_shape, **_):
        super().build(query_shape, values_shape)
        for norm in (self.query_norm, self.key_norm):
            norm.build((None, self.units))

    def keys(self, values):
        return self.key_norm(super().keys(values))  # (B, S, A)

    def scores(self, query, keys):
        query = self.query_norm(dense(query, self.query_kernel))  # (B, A) or (B, T, A)
        return additive_scores(query, keys, self.score_vector)


@register_attention("gated_additive")
class GatedAttention(BahdanauAttention):
    """Additive attention with a gate on the context: how much the next word needs the source.

        z_i = beta_i sum_j alpha_ij h_j,   beta_i = sigmoid(w_g^T s_{i-1} + b_g)             (Xu 2015, section 4.2.1)

    Args:
        units: A.
        gate_initializer: For w_g `(H, 1)`; b_g is 0 at first.
        use_bias, normalize, query_initializer, key_initializer, score_initializer: As in `BahdanauAttention`.

    Call arguments, returns and mask behaviour: see `Attention`. The alignment is the one without the gate.

    Example:
        >>> attention = keras_attn.GatedAttention(7)
        >>> context, alignment, _ = attention(np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32"))
        >>> context.shape, alignment.shape
        ((2, 11), (2, 3))

    Reference: Xu et al. Show, Attend and Tell: Neural Image Caption Generation with Visual Attention. ICML 2015,
    arXiv:1502.03044.
    """

    def __init__(self, units: int, *, gate_initializer="zeros", **kwargs):
        super().__init__(units, **kwargs)
        self.gate_initializer = initializers.get(gate_initializer)

    def build(self, query_shape, values_shape, **_):
        super().build(query_shape, values_shape)
        self.add_weights(self.gate_initializer, gate_kernel=(query_shape[-1], 1))
        self.gate_bias = self.add_weight(name="gate_bias", shape=(1,), initializer="zeros")

    def call(self, query, values, keys=None, mask=None, state=(), noise=None, training=False, values_mask=None):
        context, *rest = super().call(query, values, keys, mask, state, noise, training, values_mask)
        gate = dense(query, self.gate_kernel) + ops.cast(self.gate_bias, query.dtype)  # (B, 1) or (B, T, 1)
        return context * ops.sigmoid(gate), *rest


class StatefulAdditiveAttention(BahdanauAttention):
    """Base of additive attentions that have a state for each source word.

        e_ij = v^T tanh(W s_{i-1} + U h_j + f(C_{i-1,j}) + b),   C_ij = g(C_{i-1,j}, alpha_ij, s_{i-1}, h_j)

    Subclasses define f by `seen`, g by `next_state`, and a state that is not one number for each word by
    `initial_state`. What f and g need of h is computed once a sentence by `words`.
    """

    _keeps_state = True

    def words(self, values) -> Any:
        """The source side of `seen` and `next_state`, `(B, S, ...)`, computed once a sentence; None: there is none."""
        return None

    def seen(self, state, words, dtype):
        """f(C_{i-1,j}): `(B, S, A)`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `seen(state, words, dtype)`.")

    def next_state(self, state, alignment, query, words):
        """C_ij, of the shape of the state and its dtype, from the step's alignment `(B, S)` and query `(B, H)`."""
        return state + alignment

    def keys(self, values):
        keys, words = super().keys(values), self.words(values)
        return keys if words is None else (keys, words)

    def align(self, query, keys, mask, state):
        keys, words = keys if isinstance(keys, tuple) else (keys, None)
        state = self.initial_state(keys) if isinstance(state, tuple) else state
        state = ops.cast(state, score_dtype(keys.dtype))

        def step(state, x):
            query, mask = x
            seen = keys + self.seen(state, words, keys.dtype)  # (B, S, A)
            alignment, _ = super(StatefulAdditiveAttention, self).align(query, seen, mask, ())
            return self.next_state(state, alignment, query, words), alignment

        if len(query.shape) == 2:
            state, alignment = step(state, (query, mask))
            return alignment, state
        by_step = mask is not None and len(mask.shape) == 3
        xs = ops.transpose(query, (1, 0, 2)), ops.transpose(mask, (1, 0, 2)) if by_step else ()
        run = step if by_step else lambda state, x: step(state, (x[0], mask))
        state, alignments = scan(run, state, xs)  # (T, B, S)
        return ops.transpose(alignments, (1, 0, 2)), state

    def initial_state(self, values):
        return ops.zeros_like(values[:, :, 0], dtype=score_dtype(values.dtype))  # (B, S)


@register_attention("concat")
class ConcatAttention(Attention):
    """Luong's concat score: query and word, side by side, through one hidden layer.

        e_ij = v_a^T tanh(W_a [s_i ; h_j])                                  (Luong 2015, section 3.1, eq. 8, concat)

    W_a is one matrix; its rows for h are multiplied once a sentence, those for s once a step. The layer computes what
    `BahdanauAttention` computes, with weights that are initialised as one matrix.

    Args:
        units: A, the width of the hidden layer; None: the query's width H.
        kernel_initializer, score_initializer: For W_a `(H + M, A)` and v_a `(A,)`.

    Call arguments, returns and mask behaviour: see `Attention`. `keys(values)` is `(B, S, A)`.

    Raises:
        ValueError: if `units` is neither None nor a positive whole number, or `keys` is called before the layer is
            built.

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
        self.query_width = query_shape[-1]  # H, the rows of W_a that multiply the query
        units = self.units or self.query_width
        shape = (self.query_width + values_shape[-1], units)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=self.kernel_initializer)
        self.score_vector = self.add_weight(name="score_vector", shape=(units,), initializer=self.score_initializer)

    def keys(self, values):
        self.check_built()
        return dense(values, self.kernel, rows=slice(self.query_width, None))  # (B, S, A)

    def scores(self, query, keys):
        query = dense(query, self.kernel, rows=slice(self.query_width))  # (B, A) or (B, T, A)
        return additive_scores(query, keys, self.score_vector)


@register_attention("location_sensitive")
class LocationSensitiveAttention(StatefulAdditiveAttention):
    """Additive attention with filters over the earlier alignments, for sources that are read from left to right.

        f_i = F * a_i,   e_ij = v^T tanh(W s_{i-1} + U h_j + L f_ij + b)              (Chorowski 2015, eqs. 8 and 9)

    where * is a convolution over the source and a_i is the last alignment, alpha_{i-1}, or with `cumulative` the sum of
    all earlier ones (Shen 2018, section 2.2, Tacotron 2).

    Args:
        units: A, the width of the alignment model.
        filters: Number of filters in F.
        kernel_size: Their length in words, an odd number.
        cumulative: Whether a_i is the sum of the earlier alignments, as in Tacotron 2, or the last one.
        use_bias: Whether b is added.
        filter_initializer: For F `(kernel_size, 1, filters)` and L `(filters, A)`.
        normalize, query_initializer, key_initializer, score_initializer: As in `BahdanauAttention`.
        normalizer: As in `Attention`.

    Call arguments, returns and mask behaviour: see `Attention`. The state is a_i, `(B, S)`; `()` stands for zeros.

    Raises:
        ValueError: for a size that is not a positive whole number, or an even `kernel_size`.

    Example:
        >>> attention = keras_attn.LocationSensitiveAttention(7, filters=2, kernel_size=3)
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, state = attention(query, values)
        >>> context.shape, alignment.shape, state.shape
        ((2, 11), (2, 3), (2, 3))

    Differences from the papers: none with `cumulative` chosen; the sizes are Tacotron 2's.

    References: Chorowski, Bahdanau, Serdyuk, Cho, Bengio. Attention-Based Models for Speech Recognition. NeurIPS 2015,
    arXiv:1506.07503. Shen et al. Natural TTS Synthesis by Conditioning WaveNet on Mel Spectrogram Predictions. ICASSP
    2018, arXiv:1712.05884.
    """

    def __init__(
        self,
        units: int,
        *,
        filters: int = 32,
        kernel_size: int = 31,
        cumulative: bool = True,
        use_bias: bool = True,
        filter_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(units, use_bias=use_bias, **kwargs)
        check_size("filters", filters)
        check_size("kernel_size", kernel_size)
        if kernel_size % 2 == 0:
            raise ValueError(f"Expected an odd `kernel_size`. Received: kernel_size={kernel_size}")
        self.filters = filters
        self.kernel_size = kernel_size
        self.cumulative = cumulative
        self.filter_initializer = initializers.get(filter_initializer)

    def build(self, query_shape, values_shape, **_):
        super().build(query_shape, values_shape)
        self.add_weights(
            self.filter_initializer,
            filter_kernel=(self.kernel_size, 1, self.filters),
            location_kernel=(self.filters, self.units),
        )

    def seen(self, state, words, dtype):
        # F and L in one convolution: as many products as two, and no matrix product of rank 3.
        kernel = matmul(self.filter_kernel[:, 0], self.location_kernel)[:, None]  # (kernel_size, 1, A)
        inputs, kernel = ops.cast(state, dtype)[:, :, None], ops.cast(kernel, dtype)
        return ops.conv(inputs, kernel, padding="same", data_format="channels_last")  # L f_ij

    def next_state(self, state, alignment, query, words):
        return state + alignment if self.cumulative else alignment
