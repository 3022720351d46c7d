"""The Transformer's multi-head attention and self-attention, written out, with their alignments."""

import keras
from keras import initializers, ops

from keras_attn.backend import matmul
from keras_attn.layers.layer import Layer, check_size
from keras_attn.layers.normalizers import at_least_float32, masked_softmax, score_dtype


@keras.saving.register_keras_serializable(package="keras_attn")
class MultiHeadAttention(Layer):
    """Multi-head attention: several attentions in parallel, each with projections of its own.

        alpha^n_ij = softmax_j(q_i W^Q_n (h_j W^K_n)^T / sqrt(D)),  head^n_i = sum_j alpha^n_ij h_j W^V_n
                                                                                         (Vaswani 2017, 3.2.1, eq. 1)
        output_i = [head^1_i ; ... ; head^N_i] W^O                                       (3.2.2)

    The equations of KerasHub's and Keras' layers, without biases, and the alignments of every head.

    Args:
        num_heads: N.
        head_units: D, the width of a head; None: the query's width divided by N.
        kernel_initializer: For the four matrices.

    Call arguments:
        query: `(B, T, E)`, the words that attend.
        values: `(B, S, M)`, the words that are attended to.
        mask: Boolean, True = visible: `(B, S)` for real words, or `(B, 1, T, S)`; None: every word is visible.

    Returns:
        `(outputs, alignments)`: `(B, T, E)` in the compute dtype, and `(B, N, T, S)` in float32, whose rows sum to 1.

    Mask behaviour: a masked word gets alignment exactly 0. A row with no real word gets zero alignments and outputs.

    Raises:
        ValueError: if a size is not a positive whole number, or `head_units` is None and the query's width is not a
            multiple of `num_heads`.

    Example:
        >>> attention = keras_attn.MultiHeadAttention(3)
        >>> query, values = np.ones((2, 5, 6), "float32"), np.ones((2, 7, 11), "float32")
        >>> outputs, alignments = attention(query, values)
        >>> outputs.shape, alignments.shape
        ((2, 5, 6), (2, 3, 5, 7))

    Differences from the paper: none.

    Reference: Vaswani et al. Attention Is All You Need. NeurIPS 2017, arXiv:1706.03762.
    """

    def __init__(self, num_heads: int, *, head_units: int | None = None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_size("num_heads", num_heads)
        if head_units is not None:
            check_size("head_units", head_units)
        self.num_heads = num_heads
        self.head_units = head_units
        self.kernel_initializer = initializers.get(kernel_initializer)

    def build(self, query_shape, values_shape, **_):
        width = query_shape[-1]
        if self.head_units is None and width % self.num_heads:
            raise ValueError(
                f"Expected a query whose width is a multiple of `num_heads`, or `head_units`. Received: width {width}, "
                f"num_heads={self.num_heads}"
            )
        heads = self.num_heads * (self.head_units or width // self.num_heads)  # N D
        shapes = {
            "query_kernel": (width, heads),
            "key_kernel": (values_shape[-1], heads),
            "value_kernel": (values_shape[-1], heads),
            "output_kernel": (heads, width),
        }
        for name, shape in shapes.items():
            setattr(self, name, self.add_weight(name=name, shape=shape, initializer=self.kernel_initializer.clone()))

    def call(self, query, values, mask=None):
        queries = self._heads(query, self.query_kernel)  # (B, N, T, D)
        keys = self._heads(values, self.key_kernel)  # (B, N, S, D)
        values = self._heads(values, self.value_kernel)  # (B, N, S, D)
        scores = matmul(at_least_float32(queries), at_least_float32(ops.swapaxes(keys, 2, 3)))
        alignments = masked_softmax(scores * queries.shape[-1] ** -0.5, mask)  # (B, N, T, S)
        contexts = matmul(ops.cast(alignments, values.dtype), values)  # (B, N, T, D)
        contexts = ops.transpose(contexts, (0, 2, 1, 3))  # (B, T, N, D)
        contexts = ops.reshape(contexts, (*ops.shape(contexts)[:2], self.output_kernel.shape[0]))  # (B, T, N D)
        return matmul(contexts, ops.cast(self.output_kernel, contexts.dtype)), alignments

    def _heads(self, x, kernel):
        """(B, T, E) -> (B, N, T, D)."""
        x = matmul(x, ops.cast(kernel, x.dtype))  # (B, T, N D)
        x = ops.reshape(x, (*ops.shape(x)[:2], self.num_heads, kernel.shape[1] // self.num_heads))  # (B, T, N, D)
        return ops.transpose(x, (0, 2, 1, 3))

    def compute_output_spec(self, query, values, mask=None):
        alignments = (query.shape[0], self.num_heads, query.shape[1], values.shape[1])
        return (
            keras.KerasTensor(query.shape, dtype=self.compute_dtype),
            keras.KerasTensor(alignments, dtype=score_dtype(self.compute_dtype)),
        )


@keras.saving.register_keras_serializable(package="keras_attn")
class SelfAttention(MultiHeadAttention):
    """Self-attention: every word of a sentence attends to the words of the same sentence.

        outputs, alpha = MultiHead(x, x, x)                                          (Vaswani 2017, section 3.2.3)

    Args:
        num_heads, head_units, kernel_initializer: As in `MultiHeadAttention`.
        causal: A word attends to itself and the words before it, as in the Transformer's decoder.

    Call arguments:
        inputs: `(B, S, E)`, the words.
        mask: Boolean `(B, S)`, True = real word; None: all are real.

    Returns:
        `(outputs, alignments)`: `(B, S, E)` in the compute dtype, and `(B, N, S, S)` in float32, whose row i is how
        much word i attends to each word. `keras_attn.plots.relations` draws the table of a sentence.

    Mask behaviour and errors: see `MultiHeadAttention`.

    Example:
        >>> words = np.ones((1, 3, 6), "float32")
        >>> outputs, relations = keras_attn.SelfAttention(2, causal=True)(words)
        >>> print(keras.ops.convert_to_numpy(relations)[0, 0].round(2))
        [[1.   0.   0.  ]
         [0.5  0.5  0.  ]
         [0.33 0.33 0.33]]

    Differences from the paper: none. The layer does not see word order: add `keras_hub.layers.SinePositionEncoding`
    to the words.

    Reference: Vaswani et al. Attention Is All You Need. NeurIPS 2017, arXiv:1706.03762.
    """

    def __init__(self, num_heads: int, *, causal: bool = False, **kwargs):
        super().__init__(num_heads, **kwargs)
        self.causal = causal

    def build(self, inputs_shape, **_):
        super().build(inputs_shape, inputs_shape)

    def call(self, inputs, mask=None):
        if self.causal:
            positions = ops.arange(ops.shape(inputs)[1])  # (S,)
            earlier = (positions[:, None] >= positions)[None, None]  # (1, 1, S, S)
            mask = earlier if mask is None else earlier & ops.cast(mask, "bool")[:, None, None]  # (B, 1, S, S)
        return super().call(inputs, inputs, mask)

    def compute_output_spec(self, inputs, mask=None):
        return super().compute_output_spec(inputs, inputs)
