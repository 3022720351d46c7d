"""The bidirectional GRU encoder of RNNsearch."""

import keras
from keras import ops

from keras_attn.layers.cells import read


@keras.saving.register_keras_serializable(package="keras_attn")
class BiGRUEncoder(keras.layers.Layer):
    """Bidirectional GRU: reads the source from both ends and puts the two states of each word side by side.

        h_j = [->h_j ; <-h_j]                                                (Bahdanau 2015, section 3.2, eq. 7)

    Arguments:
        units: H, units of one direction (n of the paper); the memory is M = 2 H wide.
        num_layers: Layers; each reads the whole output of the one below.
        reset_after: False for the papers' GRU (reset before the matrix product), True for cuDNN's.
        dropout: Share of each layer's outputs dropped between layers (none after the last).
        kernel_initializer, recurrent_initializer: For the input and the recurrent matrices.

    Call arguments:
        inputs: `(B, S, E)`, embeddings.
        mask: Boolean `(B, S)`, True = real token. Padding may stand left, right or anywhere.
        training: Whether dropout acts.

    Returns:
        `(values, forward, backward)`: the memory `(B, S, 2 H)`, and the top layer's final states `(B, H)`:
        ->h after the last real word, <-h after the first (<-h_1 of the paper).

    Mask behaviour: a masked step hands its state on untouched and puts out zeros, so padding changes nothing. A row
    with no real position has zero states.

    Example:
        >>> encoder = keras_attn.BiGRUEncoder(5)
        >>> values, forward, backward = encoder(np.ones((2, 3, 7), "float32"))
        >>> values.shape, backward.shape
        ((2, 3, 10), (2, 5))

    Differences from the paper: the update gate is Keras', one minus the paper's; a bias is added to every gate.

    Reference: Bahdanau, Cho, Bengio. ICLR 2015, arXiv:1409.0473, section 3.2 and appendix A.1.
    """

    def __init__(
        self,
        units: int,
        *,
        num_layers: int = 1,
        reset_after: bool = False,
        dropout: float = 0.0,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        if not isinstance(num_layers, int) or num_layers < 1:
            raise ValueError(f"Expected `num_layers` to be at least 1. Received: num_layers={num_layers!r}")
        self.units = units
        self.num_layers = num_layers
        self.reset_after = reset_after
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.forward_cells = [self._cell(f"forward_{i}") for i in range(num_layers)]
        self.backward_cells = [self._cell(f"backward_{i}") for i in range(num_layers)]
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def _cell(self, name):
        return keras.layers.GRUCell(
            self.units,
            reset_after=self.reset_after,
            kernel_initializer=self.kernel_initializer.clone(),
            recurrent_initializer=self.recurrent_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, inputs_shape, **_):
        shape = (inputs_shape[0], inputs_shape[-1])
        for forward, backward in zip(self.forward_cells, self.backward_cells, strict=True):
            forward.build(shape)
            backward.build(shape)
            shape = (shape[0], 2 * self.units)

    def call(self, inputs, mask=None, training=False):
        layers = zip(self.forward_cells, self.backward_cells, strict=True)
        values, states = read(
            [[(forward, False), (backward, True)] for forward, backward in layers],
            ops.transpose(inputs, (1, 0, 2)),  # (S, B, E)
            mask=None if mask is None else ops.transpose(mask),  # (S, B)
            between=lambda outputs: self.dropout_layer(outputs, training=training),
        )
        return ops.transpose(values, (1, 0, 2)), *[h for (h,) in states[-1]]

    def compute_mask(self, *_):
        """None: masks travel as arguments in this package, since Keras' implicit ones are lost between models."""

    def compute_output_spec(self, inputs, mask=None, training=False):
        batch, length = inputs.shape[:2]
        state = keras.KerasTensor((batch, self.units), dtype=self.compute_dtype)
        values = keras.KerasTensor((batch, length, 2 * self.units), dtype=self.compute_dtype)
        return values, state, keras.KerasTensor(state.shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "num_layers": self.num_layers,
            "reset_after": self.reset_after,
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
        }
