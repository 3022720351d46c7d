"""The encoder of any recurrent cell, or stack of cells, in one direction or both."""

import keras
from keras import ops, tree

from keras_attn.layers.cell_checks import check_cell
from keras_attn.layers.cell_dropout import draw_masks
from keras_attn.layers.cells import as_lists, concatenate, output_width, skip, top_state, unroll
from keras_attn.layers.layer import Layer, check_mask


def _states(cell) -> list[int]:
    """How many states each layer of a cell has."""
    return [len(tree.flatten(layer.state_size)) for layer in getattr(cell, "cells", [cell])]


@keras.saving.register_keras_serializable(package="keras_attn")
class RNNEncoder(Layer):
    """Runs a recurrent cell over the source; in a stack, each layer reads all outputs of the one below.

        h_j = cell(x_j, h_{j-1})          (Cho 2014, section 2.2; Sutskever 2014, section 2; Luong 2015, section 2)

    With a `backward_cell` every layer is bidirectional: the outputs of both directions are concatenated, and so are
    their final states.

        h_j = [->h_j ; <-h_j]                                                (Bahdanau 2015, section 3.2, eq. 7)

    Args:
        cell: Any Keras RNN cell; `StackedRNNCells` for several layers. GRU and LSTM cells project their inputs for all
            S in one product. In training, the dropout of Keras' cells has one mask for all steps.
        backward_cell: A second cell, with as many layers and states as `cell`, that reads from the last real word to
            the first; None: one direction.
        reverse: Reads from the last real word to the first (Sutskever 2014, section 3.3); only in one direction.
            Outputs stay aligned with their words, and padding is skipped on either side.
        dropout: Dropout rate of each layer's outputs but the last's, before a skip connection adds the inputs to them.

    Call arguments:
        inputs: `(B, S, E)`, embeddings.
        mask: Boolean `(B, S)`, True = real token; None: the implicit mask of the inputs, or else all are real.
        training: Whether to apply dropout.

    Returns:
        `(values, states, final)`: the top layer's outputs `(B, S, H)`; the final states of every layer, in lists nested
        as the cell's (h and c for an LSTM), from which a decoder of the same layers can start; and the top layer's
        final h `(B, H)`, without a skip connection. In both directions, H is the sum of the two cells' units.

    Mask behaviour: masked steps carry the state over and output zeros, so padding changes nothing. The mask is handed
    on to `values`. A row with no real position has zero states.

    Raises:
        ValueError: for a cell of one's own with dropout, what is not a cell, or two cells whose states do not match.

    Example:
        >>> cell = keras.layers.StackedRNNCells([keras.layers.LSTMCell(5), keras.layers.LSTMCell(7)])
        >>> values, states, final = keras_attn.RNNEncoder(cell)(np.ones((2, 3, 11), "float32"))
        >>> values.shape, [h.shape for layer in states for h in layer], final.shape
        ((2, 3, 7), [(2, 5), (2, 5), (2, 7), (2, 7)], (2, 7))

    References: Cho et al. EMNLP 2014, arXiv:1406.1078. Sutskever, Vinyals, Le. Sequence to Sequence Learning with
    Neural Networks. NeurIPS 2014, arXiv:1409.3215. Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    _layer_arguments = ("cell", "backward_cell")

    def __init__(self, cell, *, backward_cell=None, reverse: bool = False, dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
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
                    "Expected `reverse` or a `backward_cell`, which reads backwards already. Received: both."
                )
        self.cell = cell
        self.backward_cell = backward_cell
        self.reverse = reverse
        self.dropout = dropout
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, inputs_shape, **_):
        batch, width = inputs_shape[0], inputs_shape[-1]
        if self.backward_cell is None:
            if not self.cell.built:  # a cell loaded from a file already is
                self.cell.build((batch, width))
            return
        for directions in self._directions():
            for cell, _ in directions:
                if not cell.built:
                    cell.build((batch, width))
            width = sum(output_width(cell) for cell, _ in directions)

    def call(self, inputs, mask=None, training=False):
        values, states = self._read(inputs, mask, training)
        states = [tree.map_structure(concatenate, *directions) for directions in states]
        states = states if hasattr(self.cell, "cells") else states[0]
        return values, states, top_state(states)

    def _directions(self):
        """Of each layer: `(cell, reverse)` for each of its directions."""
        cells = [self.cell] if self.backward_cell is None else [self.cell, self.backward_cell]
        directions = [self.reverse, True]
        layers = zip(*[getattr(cell, "cells", [cell]) for cell in cells], strict=True)
        return [list(zip(layer, directions, strict=False)) for layer in layers]

    def _read(self, inputs, mask, training):
        """The top layer's outputs (B, S, H), and the final states by layer and direction, in lists as the cell's."""
        mask = check_mask(mask, inputs)
        outputs = ops.transpose(inputs, (1, 0, 2))  # (S, B, E)
        mask = None if mask is None else ops.transpose(mask)  # (S, B)
        states = []
        layers = self._directions()
        for i, directions in enumerate(layers):
            inputs, runs = outputs, []
            for cell, reverse in directions:
                batch = ops.shape(inputs)[1]
                initial = as_lists(cell.get_initial_state(batch_size=batch))
                drops = draw_masks(cell, batch, inputs.shape[-1]) if training else None
                runs.append(unroll(cell, inputs, initial, mask=mask, reverse=reverse, drops=drops))
            outputs, finals = zip(*runs, strict=True)
            outputs = concatenate(*outputs)  # (S, B, H)
            outputs = self.dropout_layer(outputs, training=training) if i < len(layers) - 1 else outputs
            outputs = skip(self.cell, i, inputs, outputs) if i else outputs
            states.append(list(finals))
        return ops.transpose(outputs, (1, 0, 2)), states

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
