"""Location-sensitive attention: additive attention that also sees where it has attended before."""

import keras
from keras import initializers, ops

from keras_attn.backend import matmul, scan
from keras_attn.layers.additive import BahdanauAttention
from keras_attn.layers.attention import register_attention
from keras_attn.layers.layer import check_size
from keras_attn.layers.normalizers import score_dtype


@register_attention("location_sensitive")
class LocationSensitiveAttention(BahdanauAttention):
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
        shapes = {"filter_kernel": (self.kernel_size, 1, self.filters), "location_kernel": (self.filters, self.units)}
        for name, shape in shapes.items():
            setattr(self, name, self.add_weight(name=name, shape=shape, initializer=self.filter_initializer.clone()))

    def align(self, query, keys, mask, state):
        state = self.initial_state(keys) if isinstance(state, tuple) else state
        state = ops.cast(state, score_dtype(keys.dtype))  # Keras casts what a layer is called with to the compute dtype

        def step(state, query):
            alignment, _ = super(LocationSensitiveAttention, self).align(query, self.placed(keys, state), mask, ())
            return state + alignment if self.cumulative else alignment, alignment

        if len(query.shape) == 2:
            state, alignment = step(state, query)
            return alignment, state
        state, alignments = scan(step, state, ops.transpose(query, (1, 0, 2)))  # (T, B, S)
        return ops.transpose(alignments, (1, 0, 2)), state

    def placed(self, keys, state):
        """U h_j + L f_ij, `(B, S, A)`, for keys U h_j and a_i `(B, S)`."""
        # F and L in one convolution: as many products as two, and no matrix product of rank 3.
        kernel = matmul(self.filter_kernel[:, 0], self.location_kernel)[:, None]  # (kernel_size, 1, A)
        state = ops.cast(state, keys.dtype)[:, :, None]  # (B, S, 1)
        return keys + ops.conv(state, ops.cast(kernel, keys.dtype), padding="same")

    def initial_state(self, values):
        return ops.zeros_like(values[:, :, 0], dtype=score_dtype(values.dtype))  # (B, S)

    def compute_output_spec(self, query, values, keys=None, mask=None, state=()):
        context, alignment, _ = super().compute_output_spec(query, values)
        return context, alignment, keras.KerasTensor(values.shape[:2], dtype=alignment.dtype)
