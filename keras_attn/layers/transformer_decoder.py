"""The Transformer's decoder layer, the same for all target steps in training and for one step in decoding."""

import keras
from keras import ops

from keras_attn.layers.layer import SourceReader, check_mask, check_size
from keras_attn.requirements import require


def kerashub_layers():
    """KerasHub's layers, imported on first use: the import takes seconds, and imports TensorFlow where it is installed.

    Raises:
        ModuleNotFoundError: if KerasHub is not installed. The message says how to install it.
    """
    require("tensorflow", "keras_hub", purpose="the Transformer (without TensorFlow: see docs/installation.md)")
    from keras_hub import layers

    return layers


@keras.saving.register_keras_serializable(package="keras_attn")
class TransformerDecoder(SourceReader):
    """One decoder layer: self-attention, attention to the source, and a feed-forward network, each with a residual.

        x <- LN(x + Attention(x, x, x))       over x_1 .. x_t                        (Vaswani 2017, section 3.1)
        x <- LN(x + Attention(x, h, h))
        x <- LN(x + FFN(x)),  FFN(x) = max(0, x W_1 + b_1) W_2 + b_2                 (section 3.3, eq. 2)

    and with `normalize_first` x <- x + Attention(LN(x), ...) (Xiong 2020, arXiv:2002.04745).

    Its attention layers are KerasHub's `CachedMultiHeadAttention`. KerasHub's own `TransformerDecoder` returns no
    alignments, and writes its cache with `ops.slice_update`: on TensorFlow an XLA operation, which TensorFlow Serving
    does not run, as it disables XLA. Here the new keys and values enter the cache by `ops.where`.

    Args:
        num_heads: N; the width H of the inputs is a multiple of it.
        feed_forward_units: Width of the hidden layer of FFN.
        dropout: Dropout rate of each part's output, and of the alignments.
        normalize_first: Layer normalisation before each part instead of after its sum.
        kernel_initializer: For the matrices.

    Call arguments:
        inputs: `(B, T, H)`, target words; with a cache `(B, 1, H)`, the word at `position`.
        values: `(B, S, H)`, the encoder's h; with a cache only its shape is used, in `build`, and it may be None.
        mask: Boolean `(B, S)`, True = real source token; None: the implicit mask of `values`, or else all are real.
        cache: None, or a dict of "target" `(B, 2, L, N, H / N)`, keys and values of the words before `position`;
            "source" `(B, 2, S, N, H / N)`, those of `values` (see `source_cache`); and "position" `(B,)` int32.
        return_alignments: Whether to return the alignments too.
        training: Whether dropout acts.

    Returns:
        `outputs`, of the shape of `inputs`. With `return_alignments`, `(outputs, (target_alignment (B, N, T, T),
        source_alignment (B, N, T, S)))`, in float32; with a cache, `(outputs, alignments, cache)`, where the first
        alignment is `(B, N, 1, L)` and "target" has the new word.

    Mask behaviour: a masked source word gets alignment 0. Target padding needs no mask: it stands at the right.

    Raises:
        ModuleNotFoundError: if KerasHub is not installed.
        ValueError: for an unknown argument, or a size that is not a positive whole number.

    Example:
        >>> decoder = keras_attn.layers.TransformerDecoder(2, 11)
        >>> y, values = np.ones((2, 5, 6), "float32"), np.ones((2, 3, 6), "float32")
        >>> outputs, (target_alignment, source_alignment) = decoder(y, values, return_alignments=True)
        >>> outputs.shape, source_alignment.shape
        ((2, 5, 6), (2, 2, 5, 3))

    Differences from the paper: dropout acts on alignments too, as in its authors' code.

    Reference: Vaswani et al. Attention Is All You Need. NeurIPS 2017, arXiv:1706.03762.
    """

    def __init__(
        self,
        num_heads: int,
        feed_forward_units: int,
        *,
        dropout: float = 0.0,
        normalize_first: bool = False,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_size("num_heads", num_heads)
        check_size("feed_forward_units", feed_forward_units)
        self.num_heads = num_heads
        self.feed_forward_units = feed_forward_units
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, inputs_shape, values_shape=None, **_):
        width = inputs_shape[-1]
        values_shape = inputs_shape if values_shape is None else values_shape
        # The names of attributes and layers are KerasHub's: models saved with its decoder load.
        self._self_attention_layer = self._attention("self_attention", width)
        self._self_attention_layer.build(inputs_shape, inputs_shape)
        self._self_attention_layer_norm = self._normalization("self_attention", inputs_shape)
        self._self_attention_dropout = self._dropout("self_attention")
        self._cross_attention_layer = self._attention("cross_attention", width)
        self._cross_attention_layer.build(inputs_shape, values_shape)
        self._cross_attention_layer_norm = self._normalization("cross_attention", inputs_shape)
        self._cross_attention_dropout = self._dropout("cross_attention")
        self._feedforward_intermediate_dense = self._dense("intermediate", self.feed_forward_units, activation="relu")
        self._feedforward_intermediate_dense.build(inputs_shape)
        self._feedforward_output_dense = self._dense("output", width)
        self._feedforward_output_dense.build((*inputs_shape[:-1], self.feed_forward_units))
        self._feedforward_layer_norm = self._normalization("feedforward", inputs_shape)
        self._feedforward_dropout = self._dropout("feedforward")

    def _attention(self, name, width):
        return kerashub_layers().CachedMultiHeadAttention(
            self.num_heads,
            width // self.num_heads,
            dropout=self.dropout,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def _normalization(self, name, shape):
        layer = keras.layers.LayerNormalization(epsilon=1e-5, dtype=self.dtype_policy, name=f"{name}_layer_norm")
        layer.build(shape)
        return layer

    def _dropout(self, name):
        return keras.layers.Dropout(self.dropout, dtype=self.dtype_policy, name=f"{name}_dropout")

    def _dense(self, name, units, **options):
        initializer = self.kernel_initializer.clone()
        name = f"feedforward_{name}_dense"
        return keras.layers.Dense(units, kernel_initializer=initializer, dtype=self.dtype_policy, name=name, **options)

    def call(
        self,
        inputs,
        values=None,
        mask=None,
        cache=None,
        return_alignments=False,
        training=False,
        values_mask=None,
    ):
        read = return_alignments or cache is not None
        mask = values_mask if mask is None else mask
        if mask is not None:
            source = inputs if values is None else values
            mask = check_mask(mask, source if cache is None else cache["source"][:, 0])[:, None]  # (B, 1, S)

        def attend(attention, query, values, mask, cache):
            """The context, and the alignment or None; with a cache, of the keys and values in it."""
            options = {"cache": cache, "return_attention_scores": read, "training": training}
            result = attention(query, query if values is None else values, attention_mask=mask, **options)
            return (result[0], ops.cast(result[1], "float32")) if read else (result, None)

        # KerasHub's layers warn of implicit masks, which they do not read.
        inputs, values = _without_mask(inputs), None if values is None else _without_mask(values)

        # Self-attention
        query = self._before(self._self_attention_layer_norm, inputs)
        if cache is None:
            words = ops.arange(ops.shape(inputs)[1])  # (T,)
            visible, keys_and_values = (words[:, None] >= words)[None], None  # (1, T, T)
        else:
            words = ops.arange(ops.shape(cache["target"])[2], dtype="int32")  # (L,)
            position = cache["position"][:, None]  # (B, 1)
            visible = (words <= position)[:, None]  # (B, 1, L)
            new = _keys_and_values(self._self_attention_layer, query)  # (B, 2, 1, N, D)
            keys_and_values = ops.where((words == position)[:, None, :, None, None], new, cache["target"])
        part, target_alignment = attend(self._self_attention_layer, query, query, visible, keys_and_values)
        part = self._self_attention_dropout(part, training=training)
        x = self._after(self._self_attention_layer_norm, inputs + part)

        # Attention to the source
        query = self._before(self._cross_attention_layer_norm, x)
        source = None if cache is None else cache["source"]
        part, source_alignment = attend(self._cross_attention_layer, query, values, mask, source)
        part = self._cross_attention_dropout(part, training=training)
        x = self._after(self._cross_attention_layer_norm, x + part)

        # Feed-forward network
        part = self._feedforward_intermediate_dense(self._before(self._feedforward_layer_norm, x))
        part = self._feedforward_dropout(self._feedforward_output_dense(part), training=training)
        x = self._after(self._feedforward_layer_norm, x + part)

        if cache is not None:
            return x, (target_alignment, source_alignment), {**cache, "target": keys_and_values}
        return (x, (target_alignment, source_alignment)) if read else x

    def _before(self, norm, x):
        return norm(x) if self.normalize_first else x

    def _after(self, norm, x):
        return x if self.normalize_first else norm(x)

    def source_cache(self, values):
        """Keys and values of the source, the same for every step: `(B, S, H)` -> `(B, 2, S, N, H / N)`."""
        return _keys_and_values(self._cross_attention_layer, values)


def _without_mask(x):
    """The same numbers as a tensor of their own, to which Keras has given no mask."""
    return ops.squeeze(x[None], axis=0)


def _keys_and_values(attention, x):
    """The cache of a `CachedMultiHeadAttention` for `x (B, T, H)`: (B, 2, T, N, H / N)."""
    return ops.stack([attention.key_dense(x), attention.value_dense(x)], axis=1)
