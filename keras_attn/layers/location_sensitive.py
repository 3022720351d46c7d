"""Location-sensitive attention: additive attention that also sees where it has attended before."""

from keras import initializers, ops

from keras_attn.backend import matmul
from keras_attn.layers.additive import StatefulAdditiveAttention
from keras_attn.layers.attention import register_attention
from keras_attn.layers.layer import check_size


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
        shapes = {"filter_kernel": (self.kernel_size, 1, self.filters), "location_kernel": (self.filters, self.units)}
        for name, shape in shapes.items():
            setattr(self, name, self.add_weight(name=name, shape=shape, initializer=self.filter_initializer.clone()))

    def seen(self, state, words, dtype):
        # F and L in one convolution: as many products as two, and no matrix product of rank 3.
        kernel = matmul(self.filter_kernel[:, 0], self.location_kernel)[:, None]  # (kernel_size, 1, A)
        inputs, kernel = ops.cast(state, dtype)[:, :, None], ops.cast(kernel, dtype)
        return ops.conv(inputs, kernel, padding="same", data_format="channels_last")  # L f_ij

    def next_state(self, state, alignment, query, words):
        return state + alignment if self.cumulative else alignment
