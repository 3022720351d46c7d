"""The bidirectional GRU encoder of RNNsearch."""

import keras

from keras_attn.layers.initializers import half_precision_safe
from keras_attn.layers.layer import check_size, refuse_unknown_arguments
from keras_attn.layers.rnn_encoder import RNNEncoder


@keras.saving.register_keras_serializable(package="keras_attn")
class BiGRUEncoder(RNNEncoder):
    """Bidirectional GRU: the annotation of a word is the concatenation of its forward and backward states.

        h_j = [->h_j ; <-h_j]                                                (Bahdanau 2015, section 3.2, eq. 7)

    It is an `RNNEncoder` of GRU cells of one size.

    Args:
        units: H, units of one direction (n of the paper); the memory is M = 2 H wide.
        num_layers: Number of layers; each reads the concatenated outputs of the one below.
        reset_after: False for the papers' GRU (reset before the matrix product), True for cuDNN's.
        dropout: Dropout rate of each layer's outputs but the last's.
        recurrent_dropout: Dropout rate of the cells' states, with one mask for all steps.
        kernel_initializer, recurrent_initializer: For the input and the recurrent matrices.

    Call arguments:
        inputs: `(B, S, E)`, embeddings.
        mask: Boolean `(B, S)`, True = real token; None: the implicit mask of the inputs, or else all are real. Padding
            may be left, right or anywhere.
        training: Whether to apply dropout.

    Returns:
        `(values, forward, backward)`: the memory `(B, S, 2 H)`, and the top layer's final states `(B, H)`:
        ->h after the last real word, <-h after the first (<-h_1 of the paper).

    Mask behaviour: masked steps carry the state over and output zeros, so padding changes nothing. The mask is handed
    on to `values`. A row with no real position has zero states.

    Raises:
        ValueError: if `units` or `num_layers` is not a positive whole number.

    Example:
        >>> encoder = keras_attn.BiGRUEncoder(5)
        >>> values, forward, backward = encoder(np.ones((2, 3, 7), "float32"))
        >>> values.shape, backward.shape
        ((2, 3, 10), (2, 5))

    Differences from the paper: the update gate is Keras', one minus the paper's; a bias is added to every gate.

    Reference: Bahdanau, Cho, Bengio. ICLR 2015, arXiv:1409.0473, section 3.2 and appendix A.1.
    """

    _layer_arguments = ()
    _replaces_arguments = True

    def __init__(
        self,
        units: int,
        *,
        num_layers: int = 1,
        reset_after: bool = False,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        **kwargs,
    ):
        refuse_unknown_arguments(type(self), kwargs)
        check_size("units", units)
        check_size("num_layers", num_layers)
        kernel_initializer = keras.initializers.get(kernel_initializer)
        recurrent_initializer = keras.initializers.get(recurrent_initializer)

        def cell(direction):
            cells = [
                keras.layers.GRUCell(
                    units,
                    reset_after=reset_after,
                    recurrent_dropout=recurrent_dropout,
                    kernel_initializer=kernel_initializer.clone(),
                    recurrent_initializer=half_precision_safe(recurrent_initializer.clone(), kwargs.get("dtype")),
                    dtype=kwargs.get("dtype"),
                    name=f"{direction}_{i}",
                )
                for i in range(num_layers)
            ]
            return cells[0] if num_layers == 1 else keras.layers.StackedRNNCells(cells, dtype=kwargs.get("dtype"))

        super().__init__(cell("forward"), backward_cell=cell("backward"), dropout=dropout, **kwargs)
        self.units = units
        self.num_layers = num_layers
        self.reset_after = reset_after
        self.recurrent_dropout = recurrent_dropout
        self.kernel_initializer = kernel_initializer
        self.recurrent_initializer = recurrent_initializer

    def call(self, inputs, mask=None, training=False):
        values, states = self._read(inputs, mask, training)
        return values, *[h for (h,) in states[-1]]

    @property
    def forward_cells(self):
        """The cells that read forwards, layer by layer."""
        return list(getattr(self.cell, "cells", [self.cell]))

    @property
    def backward_cells(self):
        """The cells that read backwards, layer by layer."""
        return list(getattr(self.backward_cell, "cells", [self.backward_cell]))

    def compute_output_spec(self, inputs, mask=None, training=False):
        batch, length = inputs.shape[:2]
        state = keras.KerasTensor((batch, self.units), dtype=self.compute_dtype)
        values = keras.KerasTensor((batch, length, 2 * self.units), dtype=self.compute_dtype)
        return values, state, keras.KerasTensor(state.shape, dtype=self.compute_dtype)
