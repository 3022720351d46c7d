"""The encoder of any recurrent cell, or a stack of them, that reads in one direction or in both."""

import keras
from keras import ops, tree

from keras_attn.layers.cells import as_lists, check_cell, output_width, read, side_by_side, top_state


def _states(cell) -> list[int]:
    """How many states each layer hands on."""
    return [len(tree.flatten(layer.state_size)) for layer in getattr(cell, "cells", [cell])]


@keras.saving.register_keras_serializable(package="keras_attn")
class RNNEncoder(keras.layers.Layer):
    """A recurrent cell run over the source; of a stack, each layer reads the whole output of the one below.

        h_j = cell(x_j, h_{j-1})          (Cho 2014, section 2.2; Sutskever 2014, section 2; Luong 2015, section 2)

    With a second cell each layer reads in both directions and puts the two side by side, as do its last states:

        h_j = [->h_j ; <-h_j]                                                (Bahdanau 2015, section 3.2, eq. 7)

    Arguments:
        cell: Any Keras RNN cell; `StackedRNNCells` for several layers. GRU and LSTM cells have their input projections
            made for all S in one product.
        backward_cell: Another, alike but for its units, that reads from the last real word to the first; None: one
            direction.
        reverse: Reads from the last real word to the first (Sutskever 2014, section 3.3), if in one direction. Outputs
            stay beside their words, and padding is left out wherever it stands.
        dropout: Share of each layer's outputs dropped between layers (none after the last).

    Call arguments:
        inputs: `(B, S, E)`, embeddings.
        mask: Boolean `(B, S)`, True = real token; None: all are real.
        training: Whether dropout acts.

    Returns:
        `(values, states, final)`: the top layer's outputs `(B, S, H)`; the last states of every layer, in lists nested
        as the cell's (for an LSTM h and c each), which a decoder of the same layers can start from; and the top layer's
        last output `(B, H)`. H of two directions is the sum of theirs.

    Mask behaviour: a masked step hands its state on untouched and puts out zeros, so padding changes nothing. A row
    with no real position has zero states.

    Raises:
        ValueError: for a cell with dropout of its own, what is no cell, or two cells of unlike states.

    Example:
        >>> cell = keras.layers.StackedRNNCells([keras.layers.LSTMCell(5), keras.layers.LSTMCell(7)])
        >>> values, states, final = keras_attn.RNNEncoder(cell)(np.ones((2, 3, 11), "float32"))
        >>> values.shape, [h.shape for layer in states for h in layer], final.shape
        ((2, 3, 7), [(2, 5), (2, 5), (2, 7), (2, 7)], (2, 7))

    References: Cho et al. EMNLP 2014, arXiv:1406.1078. Sutskever, Vinyals, Le. Sequence to Sequence Learning with
    Neural Networks. NeurIPS 2014, arXiv:1409.3215. Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    def __init__(self, cell, *, backward_cell=None, reverse: bool = False, dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        check_cell(cell)
        if backward_cell is not None:
            check_cell(backward_cell)
            if _states(cell) != _states(backward_cell):
                raise ValueError(
                    f"Expected a `backward_cell` of as many layers and states as `cell`. Received: "
                    f"{_states(backward_cell)} and {_states(cell)} states by layer"
                )
            if reverse:
                raise ValueError(
                    "Expected `reverse` or a `backward_cell`, which reads backwards already. Received both."
                )
        self.cell = cell
        self.backward_cell = backward_cell
        self.reverse = reverse
        self.dropout = dropout
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, inputs_shape, **_):
        batch, width = inputs_shape[0], inputs_shape[-1]
        if self.backward_cell is None:
            if not self.cell.built:  # a cell that comes from a file already is
                self.cell.build((batch, width))
            return
        for directions in self._directions():
            for cell, _ in directions:
                if not cell.built:
                    cell.build((batch, width))
            width = sum(output_width(cell) for cell, _ in directions)

    def _directions(self):
        """Of each layer its cells, with the direction that each reads in."""
        cells = [self.cell] if self.backward_cell is None else [self.cell, self.backward_cell]
        directions = [self.reverse, True]
        layers = zip(*[getattr(cell, "cells", [cell]) for cell in cells], strict=True)
        return [list(zip(layer, directions, strict=False)) for layer in layers]

    def call(self, inputs, mask=None, training=False):
        values, states = read(
            self._directions(),
            ops.transpose(inputs, (1, 0, 2)),  # (S, B, E)
            mask=None if mask is None else ops.transpose(mask),  # (S, B)
            between=lambda outputs: self.dropout_layer(outputs, training=training),
        )
        states = [tree.map_structure(side_by_side, *directions) for directions in states]
        states = states if hasattr(self.cell, "cells") else states[0]
        return ops.transpose(values, (1, 0, 2)), states, top_state(states)

    def compute_mask(self, *_):
        """None: masks travel as arguments in this package, since Keras' implicit ones are lost between models."""

    def compute_output_spec(self, inputs, mask=None, training=False):
        batch, length = inputs.shape[:2]

        def spec(*shape):
            return keras.KerasTensor((batch, *shape), dtype=self.compute_dtype)

        layers = [[cell for cell, _ in directions] for directions in self._directions()]
        sizes = [
            tree.map_structure(lambda *widths: sum(widths), *[as_lists(cell.state_size) for cell in cells])
            for cells in layers
        ]
        states = tree.map_structure(spec, sizes if hasattr(self.cell, "cells") else sizes[0])
        width = sum(map(output_width, layers[-1]))
        return spec(length, width), states, spec(width)

    def get_config(self):
        return {
            **super().get_config(),
            "cell": keras.saving.serialize_keras_object(self.cell),
            "backward_cell": keras.saving.serialize_keras_object(self.backward_cell),
            "reverse": self.reverse,
            "dropout": self.dropout,
        }

    @classmethod
    def from_config(cls, config):
        cells = {name: keras.saving.deserialize_keras_object(config.get(name)) for name in ("cell", "backward_cell")}
        return cls(**{**config, **cells})
