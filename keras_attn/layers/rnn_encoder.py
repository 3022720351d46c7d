"""The encoder that reads in one direction: any recurrent cell, or a stack of them."""

import keras
from keras import ops, tree

from keras_attn.layers.cells import as_lists, check_cell, output_width, top_state, unroll


@keras.saving.register_keras_serializable(package="keras_attn")
class RNNEncoder(keras.layers.Layer):
    """A recurrent cell run over the source; of a stack, each layer reads the whole output of the one below.

        h_j = cell(x_j, h_{j-1})          (Cho 2014, section 2.2; Sutskever 2014, section 2; Luong 2015, section 2)

    Arguments:
        cell: Any Keras RNN cell; `StackedRNNCells` for several layers. GRU and LSTM cells have their input projections
            made for all S in one product.
        reverse: Reads from the last real word to the first (Sutskever 2014, section 3.3). Outputs stay beside their
            words, and padding is left out wherever it stands.
        dropout: Share of each layer's outputs dropped between layers (none after the last).

    Call arguments:
        inputs: `(B, S, E)`, embeddings.
        mask: Boolean `(B, S)`, True = real token; None: all are real.
        training: Whether dropout acts.

    Returns:
        `(values, states, final)`: the top layer's outputs `(B, S, H)`; the last states of every layer, in lists nested
        as the cell's (for an LSTM h and c each), which a decoder of the same layers can start from; and the top layer's
        last output `(B, H)`.

    Mask behaviour: a masked step hands its state on untouched and puts out zeros, so padding changes nothing. A row
    with no real position has zero states.

    Raises:
        ValueError: for a cell with dropout of its own, or what is no cell.

    Example:
        >>> cell = keras.layers.StackedRNNCells([keras.layers.LSTMCell(5), keras.layers.LSTMCell(7)])
        >>> values, states, final = keras_attn.RNNEncoder(cell)(np.ones((2, 3, 11), "float32"))
        >>> values.shape, [h.shape for layer in states for h in layer], final.shape
        ((2, 3, 7), [(2, 5), (2, 5), (2, 7), (2, 7)], (2, 7))

    References: Cho et al. EMNLP 2014, arXiv:1406.1078. Sutskever, Vinyals, Le. Sequence to Sequence Learning with
    Neural Networks. NeurIPS 2014, arXiv:1409.3215. Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    def __init__(self, cell, *, reverse: bool = False, dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        check_cell(cell)
        self.cell = cell
        self.reverse = reverse
        self.dropout = dropout
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, inputs_shape, **_):
        if not self.cell.built:  # a cell that comes from a file already is
            self.cell.build((inputs_shape[0], inputs_shape[-1]))

    def call(self, inputs, mask=None, training=False):
        states = as_lists(self.cell.get_initial_state(batch_size=ops.shape(inputs)[0]))
        values, states = unroll(
            self.cell,
            ops.transpose(inputs, (1, 0, 2)),  # (S, B, E)
            states,
            mask=None if mask is None else ops.transpose(mask),  # (S, B)
            reverse=self.reverse,
            between=lambda outputs: self.dropout_layer(outputs, training=training),
        )
        return ops.transpose(values, (1, 0, 2)), states, top_state(states)

    def compute_mask(self, *_):
        """None: masks travel as arguments in this package, since Keras' implicit ones are lost between models."""

    def compute_output_spec(self, inputs, mask=None, training=False):
        batch, length = inputs.shape[:2]

        def spec(*shape):
            return keras.KerasTensor((batch, *shape), dtype=self.compute_dtype)

        cells = getattr(self.cell, "cells", None)
        sizes = as_lists(self.cell.state_size) if cells is None else [as_lists(cell.state_size) for cell in cells]
        width = output_width(self.cell)
        return spec(length, width), tree.map_structure(spec, sizes), spec(width)

    def get_config(self):
        return {
            **super().get_config(),
            "cell": keras.saving.serialize_keras_object(self.cell),
            "reverse": self.reverse,
            "dropout": self.dropout,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "cell": keras.saving.deserialize_keras_object(config["cell"])})
