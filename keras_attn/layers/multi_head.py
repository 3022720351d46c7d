"""Several attentions in parallel, each with projections of its own, over any score; and self-attention."""

import keras
from keras import initializers, ops, tree

from keras_attn.backend import dense
from keras_attn.layers.attention import Attention, get_attention
from keras_attn.layers.layer import (
    Layer,
    WeightLayer,
    build_once,
    check_mask,
    check_size,
    refuse_unknown_arguments,
    shapes_of,
)


@keras.saving.register_keras_serializable(package="keras_attn")
class MultiHeadAttention(Attention):
    """Multi-head attention: several attentions in parallel, each with projections of its own.

        alpha^n_ij = attention_j(q_i W^Q_n, h_j W^K_n),  head^n_i = sum_j alpha^n_ij h_j W^V_n
        c_i = [head^1_i ; ... ; head^N_i] W^O                                    (Vaswani 2017, section 3.2.2)

    The attention is any layer with that contract: with the default, the scaled dot product, these are the Transformer's
    equations, without biases. With "additive" it is the attention of RNMT+ (Chen 2018, section 4). A step of a decoder
    costs one attention over N times as many sentences: heads share the weights of `score`, and differ in their
    projections.

    Args:
        num_heads: N.
        score: The attention of each head: a registered name (see `keras_attn.layers.get_attention`) or an `Attention`
            layer, whose queries and values have the width D. A layer given by name that has `units` gets D of them.
        head_units: D, the width of a head; None: the query's width divided by N.
        kernel_initializer: For W^Q, W^K, W^V and W^O.
        normalizer, dropout, kernel_regularizer, ...: As in `Attention`; also of a score given by name.

    Call arguments:
        query: `(B, H)` for one step of a decoder, or `(B, T, H)` for all.
        values: `(B, S, M)`, the memory h.
        keys: The result of `keys(values)`, `(B, N, S, ...)`, computed once a sentence; None: computed by the call.
        mask: Boolean, True = visible: `(B, S)` for real words, or `(B, T, S)`; None: the implicit
            mask of `values`, or else every word is visible.
        state, noise: Those of `score`, with an axis of heads after that of sentences.

    Returns:
        `(context, alignments, state)`: `(B, H)` and `(B, N, S)` for one step, `(B, T, H)` and `(B, T, N, S)` for all.
        `AttentionDecoder` puts out the heads' mean, or with `each_head=True` all of them.

    Mask behaviour: a masked word gets alignment exactly 0. A row with no real word gets zero alignments and context.
    Alignments are float32 under every dtype policy but float64's.

    Raises:
        ValueError: if a size is not a positive whole number, for a score that is no attention layer or has heads
            itself, or if `head_units` is None and the query's width is not a multiple of `num_heads`.

    Example:
        >>> attention = keras_attn.MultiHeadAttention(3, score="additive")
        >>> query, values = np.ones((2, 6), "float32"), np.ones((2, 7, 11), "float32")
        >>> context, alignments, _ = attention(query, values)
        >>> context.shape, alignments.shape
        ((2, 6), (2, 3, 7))

    Differences from the papers: none from Vaswani's. Chen's leaves the projections open; in its authors' program
    (Lingvo) heads share the score's weights, too, but W^V is W^K and there is no W^O.

    References: Vaswani et al. Attention Is All You Need. NeurIPS 2017, arXiv:1706.03762. Chen et al. The Best of Both
    Worlds: Combining Recent Advances in Neural Machine Translation. ACL 2018, arXiv:1804.09849.
    """

    _keeps_state = True
    _replaces_arguments = True

    def __init__(
        self,
        num_heads: int,
        *,
        score="scaled_dot",
        head_units: int | None = None,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        refuse_unknown_arguments(type(self), kwargs, base=Layer)
        super().__init__(**kwargs)
        check_size("num_heads", num_heads)
        if head_units is not None:
            check_size("head_units", head_units)
        self.num_heads = num_heads
        self.head_units = head_units
        self.kernel_initializer = initializers.get(kernel_initializer)
        self._score_options = {"normalizer": self.normalizer, "dropout": self.dropout, **self.weight_options}
        if isinstance(score, str):
            get_attention(score, head_units or 1, **self._score_options)  # refuses an unknown name before D is known
        elif self.normalizer != "softmax" or self.dropout:
            raise ValueError(
                f"Expected the `normalizer` and `dropout` of the score itself. Received: {score!r} and "
                f"normalizer={self.normalizer!r}, dropout={self.dropout}"
            )
        self.score = score if isinstance(score, str) else get_attention(score)
        if isinstance(self.score, MultiHeadAttention):
            raise ValueError(f"Expected a `score` without heads of its own. Received: score={score!r}")

    def build(self, query_shape, values_shape, **_):
        width = query_shape[-1]
        if self.head_units is None and width % self.num_heads:
            raise ValueError(
                f"Expected a query whose width is a multiple of `num_heads`, or `head_units`. Received: width {width}, "
                f"num_heads={self.num_heads}"
            )
        units = self.head_units or width // self.num_heads  # D
        heads = self.num_heads * units  # N D
        self.add_weights(
            self.kernel_initializer,
            query_kernel=(width, heads),
            key_kernel=(values_shape[-1], heads),
            value_kernel=(values_shape[-1], heads),
            output_kernel=(heads, width),
        )
        self.attention = self.score
        if isinstance(self.score, str):
            self.attention = get_attention(self.score, units, self.dtype_policy, **self._score_options)
        build_once(self.attention, (None, units), (None, values_shape[1], units))

    def call(self, query, values, keys=None, mask=None, state=(), noise=None, training=False, values_mask=None):
        mask = self.source_mask(query, values, mask, values_mask)
        keys, values = self.keys(values) if keys is None else keys  # (B, N, S, ...), (B, N, S, D)
        queries = self._heads(query, self.query_kernel)  # (B, N, D) or (B, N, T, D)
        of_all = len(query.shape) == 3
        if noise is not None:
            noise = {"noise": _fold(ops.swapaxes(noise, 1, 2) if of_all else noise)}  # (B N, S) or (B N, T, S)
        if mask is not None:
            mask = ops.repeat(mask, self.num_heads, axis=0)  # (B N, S) or (B N, T, S)
        keys, state = tree.map_structure(_fold, (keys, state))
        options = {"keys": keys, "mask": mask, "state": state, "training": training, **(noise or {})}
        results = self.attention(_fold(queries), _fold(values), **options)
        contexts, alignments, state = tree.map_structure(self._unfold, results)  # (B, N, ...)
        if of_all:
            contexts, alignments = ops.swapaxes(contexts, 1, 2), ops.swapaxes(alignments, 1, 2)  # (B, T, N, ...)
        contexts = ops.reshape(contexts, (*ops.shape(query)[:-1], self.output_kernel.shape[0]))  # (B, N D), (B, T, N D)
        return dense(contexts, self.output_kernel), alignments, state

    def keys(self, values):
        self.check_built()
        keys = self.attention.keys(_fold(self._heads(values, self.key_kernel)))
        return tree.map_structure(self._unfold, keys), self._heads(values, self.value_kernel)

    def initial_state(self, values):
        return tree.map_structure(self._unfold, self.attention.initial_state(self._repeated(values)))

    def noise(self, steps, values):
        noise = self.attention.noise(steps, self._repeated(values))  # (T, B N, S)
        return noise if noise is None else ops.reshape(noise, (steps, -1, self.num_heads, ops.shape(noise)[-1]))

    def _heads(self, x, kernel):
        """(B, H) -> (B, N, D), or (B, T, H) -> (B, N, T, D)."""
        axes = ops.shape(x)[:-1]  # not of the product: tf2onnx reads a wrong shape between two reshapes
        x = dense(x, kernel)  # (B, N D) or (B, T, N D)
        x = ops.reshape(x, (*axes, self.num_heads, kernel.shape[1] // self.num_heads))
        return ops.swapaxes(x, 1, 2) if len(x.shape) == 4 else x

    def _unfold(self, x):
        """(B N, ...) -> (B, N, ...)."""
        return ops.reshape(x, (-1, self.num_heads, *ops.shape(x)[1:]))

    def _repeated(self, values):
        return ops.repeat(values, self.num_heads, axis=0)  # (B N, S, M)

    def compute_output_spec(self, query, values, *_, **__):
        batch, heads, units = query.shape[0], self.num_heads, self.value_kernel.shape[1] // self.num_heads
        rows = None if batch is None else batch * heads
        folded = [keras.KerasTensor((rows, *x.shape[1:-1], units), dtype=x.dtype) for x in (query, values)]
        _, alignments, state = self.attention.compute_output_spec(*folded)
        state = tree.map_structure(lambda x: keras.KerasTensor((batch, heads, *x.shape[1:]), dtype=x.dtype), state)
        shape = (*query.shape[:-1], heads, values.shape[1])
        return keras.KerasTensor(query.shape, self.compute_dtype), keras.KerasTensor(shape, alignments.dtype), state


def _fold(x):
    """(B, N, ...) -> (B N, ...): heads become rows of the batch."""
    return ops.reshape(x, (-1, *ops.shape(x)[2:]))


@keras.saving.register_keras_serializable(package="keras_attn")
class SelfAttention(WeightLayer):
    """Self-attention: every word of a sentence attends to the words of the same sentence.

        outputs, alpha = MultiHead(x, x, x)                                          (Vaswani 2017, section 3.2.3)

    Args:
        num_heads, head_units, kernel_initializer: As in `MultiHeadAttention`.
        causal: A word attends to itself and the words before it, as in the Transformer's decoder.
        dropout: Dropout rate of the alignments from which the outputs are computed, in training.
        return_attention_scores: Whether the alignments are returned, too. Without them the layer stands in a
            `Sequential` model or in `TimeDistributed`.

    Call arguments:
        inputs: `(B, S, E)`, the words.
        mask: Boolean `(B, S)`, True = real word; None: the implicit mask of the inputs, or else all are real.
        training: Whether to apply dropout.

    Returns:
        `(outputs, alignments)`: `(B, S, E)` in the compute dtype, and `(B, N, S, S)` in float32, whose row i is how
        much word i attends to each word. `keras_attn.plots.alignment` draws the table of a sentence.

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

    def __init__(
        self,
        num_heads: int,
        *,
        causal: bool = False,
        head_units: int | None = None,
        kernel_initializer="glorot_uniform",
        dropout: float = 0.0,
        return_attention_scores: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.attention = MultiHeadAttention(
            num_heads,
            head_units=head_units,
            kernel_initializer=kernel_initializer,
            dropout=dropout,
            dtype=self.dtype_policy,
            name="attention",
            **self.weight_options,
        )
        self.num_heads = num_heads
        self.causal = causal
        self.head_units = head_units
        self.kernel_initializer = self.attention.kernel_initializer
        self.dropout = dropout
        self.return_attention_scores = return_attention_scores

    def build(self, inputs_shape, **_):
        build_once(self.attention, inputs_shape, inputs_shape)

    def call(self, inputs, mask=None, training=False):
        mask = check_mask(mask, inputs)
        if self.causal:
            real = ops.ones_like(inputs[:, :, 0], "bool") if mask is None else mask  # (B, S)
            positions = ops.arange(ops.shape(inputs)[1])  # (S,)
            mask = (positions[:, None] >= positions) & real[:, None]  # (B, S, S)
        options = {"mask": mask, "training": training}
        outputs, alignments, _ = self.attention(inputs, inputs, **options)  # (B, S, E), (B, S, N, S)
        return (outputs, ops.swapaxes(alignments, 1, 2)) if self.return_attention_scores else outputs

    def compute_output_spec(self, inputs, mask=None, training=False):
        outputs, alignments, _ = self.attention.compute_output_spec(inputs, inputs)
        batch, length, heads, _ = alignments.shape
        alignments = keras.KerasTensor((batch, heads, length, length), dtype=alignments.dtype)
        return (outputs, alignments) if self.return_attention_scores else outputs

    def compute_output_shape(self, inputs_shape):
        return shapes_of(self.compute_output_spec(keras.KerasTensor(inputs_shape)))
