"""The deep encoders of Edinburgh's systems: two stacks of recurrent layers that read the source in turns."""

import keras
from keras import ops

from keras_attn.layers.cell_checks import check_cell
from keras_attn.layers.cell_dropout import draw_masks
from keras_attn.layers.cells import as_lists, concatenate, output_width, unroll
from keras_attn.layers.layer import Layer, build_once, check_mask

ORDERS = ("parallel", "alternating", "upwards")


@keras.saving.register_keras_serializable(package="keras_attn")
class StackedEncoder(Layer):
    """Two stacks of recurrent layers, whose top outputs are concatenated.

        ->h_j^k = cell_k(->h_j^{k-1}, ->h_{j-1}^k),   h_j = [->h_j^n ; <-h_j^n]       (Miceli Barone 2017, section 2.1)

    Unlike in `RNNEncoder`, whose layers read both directions of the layer below, each stack reads its own alone. The
    layers of the first stack read

    * order="parallel": from the first word to the last, those of the second stack from the last to the first;
    * order="alternating" (Zhou 2016): forwards and backwards in turns, and those of the second stack the other way.

    With order="upwards" only the first layer of each stack reads the words; the rest of `cells` is one stack above
    both, which reads h_j forwards.

    Args:
        cells: A list of Keras RNN cells, one a layer; those of the first stack.
        backward_cells: Those of the second one: as many, or one with order="upwards".
        order: "parallel", "alternating" or "upwards".
        residual: Whether a layer's outputs have its inputs added to them, in each stack from its second layer on.
        dropout: Dropout rate of each layer's outputs but the last's, before inputs are added to them.

    Call arguments:
        inputs: `(B, S, E)`, embeddings.
        mask: Boolean `(B, S)`, True = real token; None: the implicit mask of the inputs, or else all are real.
        training: Whether to apply dropout.

    Returns:
        `(values, states, final)`: outputs `(B, S, M)`; the final states of all layers, in the order of `cells` and then
        `backward_cells`; and the final h `(B, H)` of the last of `cells`, without a skip connection.

    Mask behaviour: masked steps carry the state over and output zeros, so padding changes nothing. The mask is handed
    on to `values`.

    Raises:
        ValueError: for an unknown order, or another number of backward cells.

    Example:
        >>> cells = [[keras.layers.GRUCell(5) for _ in range(2)] for _ in range(2)]
        >>> values, states, final = keras_attn.layers.StackedEncoder(*cells)(np.ones((2, 3, 7), "float32"))
        >>> values.shape, len(states), final.shape
        ((2, 3, 10), 4, (2, 5))

    References: Miceli Barone et al. Deep Architectures for Neural Machine Translation. WMT 2017, arXiv:1707.07631.
    Zhou et al. Deep Recurrent Models with Fast-Forward Connections. TACL 2016, arXiv:1606.04199.
    """

    _layer_arguments = ("cells", "backward_cells")

    def __init__(
        self,
        cells,
        backward_cells,
        *,
        order: str = "parallel",
        residual: bool = False,
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        cells, backward_cells = list(cells), list(backward_cells)
        for cell in (*cells, *backward_cells):
            check_cell(cell)
        expected = 1 if order == "upwards" else len(cells)
        if order not in ORDERS or not cells or len(backward_cells) != expected:
            raise ValueError(
                f"Expected `order` to be one of {', '.join(ORDERS)}, and as many backward cells as cells, or one with "
                f"'upwards'. Received: order={order!r}, {len(cells)} cells and {len(backward_cells)} backward cells"
            )
        self.cells = cells
        self.backward_cells = backward_cells
        self.order = order
        self.residual = residual
        self.dropout = dropout
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    @property
    def _stacks(self):
        """The stacks that read the words, and the one above: lists of `(cell, backwards)`."""

        def stack(cells, backwards):
            turns = self.order == "alternating"
            return [(cell, backwards ^ (turns and i % 2 == 1)) for i, cell in enumerate(cells)]

        wide = len(self.backward_cells)
        return stack(self.cells[:wide], False), stack(self.backward_cells, True), stack(self.cells[wide:], False)

    def build(self, inputs_shape, **_):
        forward, backward, above = self._stacks
        widths = [self._build_stack(stack, inputs_shape[-1]) for stack in (forward, backward)]
        self.output_width = self._build_stack(above, sum(widths))

    def _build_stack(self, stack, width: int) -> int:
        for cell, _ in stack:
            build_once(cell, (None, width))
            width = output_width(cell)
        return width

    def call(self, inputs, mask=None, training=False):
        mask = check_mask(mask, inputs)
        inputs = ops.transpose(inputs, (1, 0, 2))  # (S, B, E)
        mask = None if mask is None else ops.transpose(mask)  # (S, B)
        forward, backward, above = self._stacks
        lower = [self._read(stack, inputs, mask, training, last=not above) for stack in (forward, backward)]
        (a, a_states), (b, b_states) = lower
        values, states = self._read(above, concatenate(a, b), mask, training, last=True)
        states = [*a_states, *states, *b_states]
        return ops.transpose(values, (1, 0, 2)), states, states[len(self.cells) - 1][0]

    def _read(self, stack, inputs, mask, training, last: bool):
        """The outputs (S, B, H) of a stack, and its final states; `last`: no other stack reads them."""
        states = []
        for i, (cell, backwards) in enumerate(stack):
            batch = ops.shape(inputs)[1]
            initial = as_lists(cell.get_initial_state(batch_size=batch))
            drops = draw_masks(cell, batch, inputs.shape[-1]) if training else None
            outputs, final = unroll(cell, inputs, initial, mask=mask, reverse=backwards, drops=drops)
            if not last or i < len(stack) - 1:
                outputs = self.dropout_layer(outputs, training=training)
            inputs = outputs + inputs if self.residual and i else outputs
            states.append(final)
        return inputs, states

    def compute_output_spec(self, inputs, mask=None, training=False):
        batch, length = inputs.shape[:2]

        def spec(*shape):
            return keras.KerasTensor((batch, *shape), dtype=self.compute_dtype)

        states = [[spec(size) for size in as_lists(cell.state_size)] for cell in (*self.cells, *self.backward_cells)]
        return spec(length, self.output_width), states, spec(output_width(self.cells[-1]))
