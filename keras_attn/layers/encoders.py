"""Encoders: any recurrent cell in one direction or both, the bidirectional GRU, pyramids, stacks, several series."""

import keras
from keras import ops, tree

from keras_attn.backend import scan
from keras_attn.layers.attention import Attention
from keras_attn.layers.layer import (
    Layer,
    build_once,
    check_mask,
    check_sequence,
    check_size,
    clone_initializer,
    half_precision_safe,
    refuse_unknown_arguments,
    shapes_of,
)
from keras_attn.layers.normalizers import score_dtype
from keras_attn.layers.recurrence import (
    as_lists,
    check_cell,
    check_states,
    concatenate,
    draw_masks,
    output_width,
    read,
    recurrence,
    skip,
    state_sizes,
    top_state,
)

_MERGES = {
    "concat": concatenate,
    "sum": lambda one, other: one + other,
    "mul": lambda one, other: one * other,
    "ave": lambda one, other: (one + other) / 2,
}


def _states(cell) -> list[int]:
    """The number of states of each layer of a cell."""
    return [len(tree.flatten(layer.state_size)) for layer in getattr(cell, "cells", [cell])]


def _same_sizes(cell, other) -> bool:
    return other is not None and state_sizes(cell) == state_sizes(other)


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
        merge_mode: How the outputs of both directions become one, and so their final states: "concat", "sum", "mul" or
            "ave", as in `keras.layers.Bidirectional`. But for "concat" both have the same widths.
        return_state: Whether states are returned, too. Without them the layer stands in a `Sequential` model or in
            `TimeDistributed`.

    Call arguments:
        inputs: `(B, S, E)`, embeddings.
        mask: Boolean `(B, S)`, True = real token; None: the implicit mask of the inputs, or else all are real.
        training: Whether to apply dropout.
        initial_state: h_0 in the cell's own structure, with a `backward_cell` a pair of them; None: zeros.

    Returns:
        `(values, states, final)`: the top layer's outputs `(B, S, H)`; the final states of every layer, in lists nested
        as the cell's (h and c for an LSTM), from which a decoder of the same layers can start; and the top layer's
        final h `(B, H)`, without a skip connection. In both directions, concatenated, H is the sum of the two cells'
        units. Without `return_state`, `values` alone.

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
    _step = 1  # outputs of a layer that the next one reads at a time

    def __init__(
        self,
        cell,
        *,
        backward_cell=None,
        reverse: bool = False,
        dropout: float = 0.0,
        merge_mode: str = "concat",
        return_state: bool = True,
        **kwargs,
    ):
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
        if merge_mode not in _MERGES or (merge_mode != "concat" and not _same_sizes(cell, backward_cell)):
            raise ValueError(
                f"Expected `merge_mode` to be one of {', '.join(_MERGES)}, and a `backward_cell` of the widths of "
                f"`cell` with all but concat. Received: merge_mode={merge_mode!r}, backward_cell={backward_cell!r}"
            )
        self.cell = cell
        self.backward_cell = backward_cell
        self.reverse = reverse
        self.dropout = dropout
        self.merge_mode = merge_mode
        self.return_state = return_state
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, inputs_shape, **_):
        check_sequence("inputs", inputs_shape)
        batch, width = inputs_shape[0], inputs_shape[-1]
        if self.backward_cell is None and self._step == 1:
            build_once(self.cell, (batch, width))
            return
        for directions in self._directions():
            for cell, _ in directions:
                build_once(cell, (batch, width))
            width = self._step * self._merged_width(*[output_width(cell) for cell, _ in directions])

    def _merged_width(self, *widths: int) -> int:
        return sum(widths) if self.merge_mode == "concat" else widths[0]

    def call(self, inputs, mask=None, training=False, initial_state=None):
        values, states = self._read(inputs, mask, training, initial_state)
        if not self.return_state:
            return values
        states = [tree.map_structure(_MERGES[self.merge_mode], *directions) for directions in states]
        states = states if hasattr(self.cell, "cells") else states[0]
        return values, states, top_state(states)

    def _first_states(self, given) -> list:
        """Of each layer, the states before its first step in each direction, or None for zeros."""
        cells = [self.cell] if self.backward_cell is None else [self.cell, self.backward_cell]
        if given is None:
            return [[None] * len(cells)] * len(self._directions())
        if len(cells) == 1:
            given = [given]
        elif not isinstance(given, (list, tuple)) or len(given) != 2:
            raise ValueError(
                "Expected `initial_state` to be a pair with a `backward_cell`: the states of each direction. "
                f"Received: {given!r}"
            )
        states = [check_states("initial_state", *pair) for pair in zip(cells, given, strict=True)]
        return list(zip(*[state if hasattr(self.cell, "cells") else [state] for state in states], strict=True))

    def _directions(self):
        """Of each layer: `(cell, reverse)` for each of its directions."""
        cells = [self.cell] if self.backward_cell is None else [self.cell, self.backward_cell]
        directions = [self.reverse, True]
        layers = zip(*[getattr(cell, "cells", [cell]) for cell in cells], strict=True)
        return [list(zip(layer, directions, strict=False)) for layer in layers]

    def _read(self, inputs, mask, training, initial_state=None):
        """The top layer's outputs (B, S, H), and the final states by layer and direction, in lists as the cell's."""
        firsts = self._first_states(initial_state)
        mask = check_mask(mask, inputs)
        outputs = ops.transpose(inputs, (1, 0, 2))  # (S, B, E)
        mask = None if mask is None else ops.transpose(mask)  # (S, B)
        states = []
        layers = self._directions()
        for i, directions in enumerate(layers):
            inputs, mask = self._between(outputs, mask) if i else (outputs, mask)
            runs = [
                read(cell, inputs, mask=mask, reverse=reverse, training=training, states=first)
                for (cell, reverse), first in zip(directions, firsts[i], strict=True)
            ]
            outputs, finals = zip(*runs, strict=True)
            outputs = _MERGES[self.merge_mode](*outputs)  # (S, B, H)
            outputs = self.dropout_layer(outputs, training=training) if i < len(layers) - 1 else outputs
            outputs = skip(self.cell, i, inputs, outputs) if i else outputs
            states.append(list(finals))
        return ops.transpose(outputs, (1, 0, 2)), states

    def _between(self, outputs, mask):
        """The inputs (S, B, I) of a layer and their mask (S, B), from the outputs of the layer below."""
        return outputs, mask

    def compute_output_spec(self, inputs, mask=None, training=False, initial_state=None):
        batch, length = inputs.shape[:2]

        def spec(*shape):
            return keras.KerasTensor((batch, *shape), dtype=self.compute_dtype)

        layers = [[cell for cell, _ in directions] for directions in self._directions()]
        sizes = [
            tree.map_structure(self._merged_width, *[as_lists(cell.state_size) for cell in cells]) for cells in layers
        ]
        states = tree.map_structure(spec, sizes if hasattr(self.cell, "cells") else sizes[0])
        width = self._merged_width(*map(output_width, layers[-1]))
        return (spec(length, width), states, spec(width)) if self.return_state else spec(length, width)

    def compute_output_shape(self, inputs_shape):
        return shapes_of(self.compute_output_spec(keras.KerasTensor(inputs_shape)))


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
        kernel_regularizer, recurrent_regularizer, bias_regularizer: As in `keras.layers.GRUCell`.
        kernel_constraint, recurrent_constraint, bias_constraint: As in `keras.layers.GRUCell`.
        merge_mode, return_state: As in `RNNEncoder`.

    Call arguments:
        inputs: `(B, S, E)`, embeddings.
        mask: Boolean `(B, S)`, True = real token; None: the implicit mask of the inputs, or else all are real. Padding
            may be left, right or anywhere.
        training: Whether to apply dropout.
        initial_state: As in `RNNEncoder`; for one layer `(forward, backward)`, `(B, H)` each.

    Returns:
        `(values, forward, backward)`: the memory `(B, S, 2 H)`, and the top layer's final states `(B, H)`:
        ->h after the last real word, <-h after the first (<-h_1 of the paper). Without `return_state`, `values` alone.

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
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        merge_mode: str = "concat",
        return_state: bool = True,
        **kwargs,
    ):
        weights = {
            "kernel_regularizer": keras.regularizers.get(kernel_regularizer),
            "recurrent_regularizer": keras.regularizers.get(recurrent_regularizer),
            "bias_regularizer": keras.regularizers.get(bias_regularizer),
            "kernel_constraint": keras.constraints.get(kernel_constraint),
            "recurrent_constraint": keras.constraints.get(recurrent_constraint),
            "bias_constraint": keras.constraints.get(bias_constraint),
        }
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
                    kernel_initializer=clone_initializer(kernel_initializer),
                    recurrent_initializer=half_precision_safe(
                        clone_initializer(recurrent_initializer), kwargs.get("dtype")
                    ),
                    dtype=kwargs.get("dtype"),
                    name=f"{direction}_{i}",
                    **weights,
                )
                for i in range(num_layers)
            ]
            return cells[0] if num_layers == 1 else keras.layers.StackedRNNCells(cells, dtype=kwargs.get("dtype"))

        options = {"dropout": dropout, "merge_mode": merge_mode, "return_state": return_state}
        super().__init__(cell("forward"), backward_cell=cell("backward"), **options, **kwargs)
        self.units = units
        self.num_layers = num_layers
        self.reset_after = reset_after
        self.recurrent_dropout = recurrent_dropout
        self.kernel_initializer = kernel_initializer
        self.recurrent_initializer = recurrent_initializer
        for name, value in weights.items():
            setattr(self, name, value)

    def call(self, inputs, mask=None, training=False, initial_state=None):
        values, states = self._read(inputs, mask, training, initial_state)
        return (values, *[h for (h,) in states[-1]]) if self.return_state else values

    @property
    def forward_cells(self):
        """The cells that read forwards, layer by layer."""
        return list(getattr(self.cell, "cells", [self.cell]))

    @property
    def backward_cells(self):
        """The cells that read backwards, layer by layer."""
        return list(getattr(self.backward_cell, "cells", [self.backward_cell]))

    def compute_output_spec(self, inputs, mask=None, training=False, initial_state=None):
        batch, length = inputs.shape[:2]
        state = keras.KerasTensor((batch, self.units), dtype=self.compute_dtype)
        width = self._merged_width(self.units, self.units)
        values = keras.KerasTensor((batch, length, width), dtype=self.compute_dtype)
        if not self.return_state:
            return values
        return values, state, keras.KerasTensor(state.shape, dtype=self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_attn")
class PyramidEncoder(RNNEncoder):
    """A stack of recurrent layers, each of which reads several outputs of the one below at a time.

        h_i^j = cell_j([h_{2i}^{j-1} ; h_{2i+1}^{j-1}], h_{i-1}^j)                     (Chan 2016, section 3.1, eq. 5)

    With n layers the memory is `reduce ** (n - 1)` times shorter than the source, so that an attention over thousands
    of frames has few places to choose from. A last group that is not full is filled up with zeros.

    Args:
        cell: `keras.layers.StackedRNNCells` of at least two layers.
        backward_cell: As in `RNNEncoder`.
        reduce: How many outputs a layer reads at a time.
        reverse, dropout: As in `RNNEncoder`.

    Call arguments and returns: as in `RNNEncoder`, but `values` is `(B, S', H)` with S' = S / reduce, rounded up, once
    for each layer but the first.

    Mask behaviour: masked steps carry the state over and output zeros. Groups count from the first real position of a
    row, so padding changes nothing. A group is real if one of its outputs is. The mask `(B, S')` is handed on to
    `values`; `compute_mask(None, mask)` is that of an explicit mask `(B, S)`.

    Raises:
        ValueError: for a single layer, a stack with skip connections, or a `reduce` that is not a whole number above 1.

    Example:
        >>> cells = [keras.layers.StackedRNNCells([keras.layers.LSTMCell(5) for _ in range(3)]) for _ in range(2)]
        >>> encoder = keras_attn.PyramidEncoder(cells[0], backward_cell=cells[1])
        >>> values, states, final = encoder(np.ones((2, 13, 7), "float32"))
        >>> values.shape, final.shape
        ((2, 4, 10), (2, 10))

    Differences from the paper: none with LSTM cells in both directions; the paper has four layers, and 8 times fewer
    places.

    Reference: Chan, Jaitly, Le, Vinyals. Listen, Attend and Spell. ICASSP 2016, arXiv:1508.01211.
    """

    def __init__(self, cell, *, backward_cell=None, reduce: int = 2, reverse=False, dropout: float = 0.0, **kwargs):
        super().__init__(cell, backward_cell=backward_cell, reverse=reverse, dropout=dropout, **kwargs)
        check_size("reduce", reduce)
        if reduce < 2 or len(getattr(cell, "cells", ())) < 2 or hasattr(cell, "first_skip"):
            raise ValueError(
                "Expected `reduce` above 1 and a stack of at least two layers without skip connections. "
                f"Received: reduce={reduce} and {cell!r}"
            )
        self.reduce = self._step = reduce

    def _between(self, outputs, mask):
        groups = concatenate(*self._groups(outputs, mask))  # (S', B, I)
        return groups, mask if mask is None else self._any(mask)

    def _groups(self, x, mask):
        """The first, second, ... of each group of places of x (S, B, ...), filled up with zeros: (S', B, ...) each."""
        if mask is not None:  # padding that would be in the first group of a row goes to its end
            excess = ops.argmax(ops.cast(mask, "int32"), axis=0) % self.reduce  # (B,)
            excess = ops.reshape(excess, (-1, *[1] * (len(x.shape) - 2)))
            turned = [ops.roll(x, -n, axis=0) for n in range(1, self.reduce)]
            for n, one in enumerate(turned, 1):
                x = ops.where(excess == n, one, x)
        rest = [[0, 0]] * (len(x.shape) - 1)
        return [ops.pad(x[n:, ...], [[0, n], *rest])[:: self.reduce, ...] for n in range(self.reduce)]

    def _any(self, mask):
        """The mask (S', B) of groups, from that of the outputs in them, (S, B)."""
        return ops.any(ops.stack(self._groups(mask, mask)), axis=0)

    def compute_mask(self, inputs, previous_mask):
        if previous_mask is None:
            return None
        mask = ops.transpose(ops.cast(previous_mask, "bool"))  # (S, B)
        for _ in self.cell.cells[1:]:
            mask = self._any(mask)
        return ops.transpose(mask)  # (B, S')

    def compute_output_spec(self, inputs, mask=None, training=False, initial_state=None):
        found = super().compute_output_spec(inputs)
        values, *states = found if self.return_state else [found]
        batch, length, width = values.shape
        for _ in self.cell.cells[1:]:
            length = length and -(-length // self.reduce)
        values = keras.KerasTensor((batch, length, width), dtype=self.compute_dtype)
        return (values, *states) if states else values


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
        initial_state: h_0 of all layers, in the order of the final ones; None: zeros.

    Returns:
        `(values, states, final)`: outputs `(B, S, M)`; the final states of all layers, in the order of `cells` and then
        `backward_cells`; and the final h `(B, H)` of the last of `cells`, without a skip connection.

    Mask behaviour: masked steps carry the state over and output zeros, so padding changes nothing. The mask is handed
    on to `values`.

    Raises:
        ValueError: for an unknown order, another number of backward cells, or initial states that are not those of the
            cells.

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
        check_sequence("inputs", inputs_shape)
        forward, backward, above = self._stacks
        widths = [self._build_stack(stack, inputs_shape[-1]) for stack in (forward, backward)]
        self.output_width = self._build_stack(above, sum(widths))

    def _build_stack(self, stack, width: int) -> int:
        for cell, _ in stack:
            build_once(cell, (None, width))
            width = output_width(cell)
        return width

    def call(self, inputs, mask=None, training=False, initial_state=None):
        cells = [*self.cells, *self.backward_cells]
        firsts = [None] * len(cells) if initial_state is None else list(initial_state)
        if len(firsts) != len(cells):
            raise ValueError(f"Expected `initial_state` to have {len(cells)} states. Received: {len(firsts)}")
        if initial_state is not None:
            firsts = [check_states("initial_state", *pair) for pair in zip(cells, firsts, strict=True)]
        mask = check_mask(mask, inputs)
        inputs = ops.transpose(inputs, (1, 0, 2))  # (S, B, E)
        mask = None if mask is None else ops.transpose(mask)  # (S, B)
        forward, backward, above = self._stacks
        wide, tall = len(forward), len(self.cells)
        a, a_states = self._read(forward, inputs, mask, training, firsts[:wide], last=not above)
        b, b_states = self._read(backward, inputs, mask, training, firsts[tall:], last=not above)
        values, states = self._read(above, concatenate(a, b), mask, training, firsts[wide:tall], last=True)
        states = [*a_states, *states, *b_states]
        return ops.transpose(values, (1, 0, 2)), states, states[len(self.cells) - 1][0]

    def _read(self, stack, inputs, mask, training, firsts, last: bool):
        """The outputs (S, B, H) of a stack, and its final states; `last`: no other stack reads them."""
        states = []
        for i, ((cell, backwards), first) in enumerate(zip(stack, firsts, strict=True)):
            outputs, final = read(cell, inputs, mask=mask, reverse=backwards, training=training, states=first)
            if not last or i < len(stack) - 1:
                outputs = self.dropout_layer(outputs, training=training)
            inputs = outputs + inputs if self.residual and i else outputs
            states.append(final)
        return inputs, states

    def compute_output_spec(self, inputs, mask=None, training=False, initial_state=None):
        batch, length = inputs.shape[:2]

        def spec(*shape):
            return keras.KerasTensor((batch, *shape), dtype=self.compute_dtype)

        states = [[spec(size) for size in as_lists(cell.state_size)] for cell in (*self.cells, *self.backward_cells)]
        return spec(length, self.output_width), states, spec(output_width(self.cells[-1]))


@keras.saving.register_keras_serializable(package="keras_attn")
class InputAttentionEncoder(Layer):
    """Runs a recurrent cell over several series, of which an attention weighs each anew at every step.

        e_t^k = v^T tanh(W [h_{t-1} ; s_{t-1}] + U x^k),   alpha_t = softmax(e_t)                  (Qin 2017, eqs. 8, 9)
        h_t = cell((alpha_t^1 x_t^1, .., alpha_t^n x_t^n), h_{t-1})                             (Qin 2017, eqs. 10, 11)

    The memory of the attention are the series x^k, each a vector of all its T values, and its query is made of the
    states of the cell.

    Args:
        cell: A Keras RNN cell of one layer.
        attention: An `Attention` without a state, such as `BahdanauAttention(T)`. Only its alignment is used: a
            dropout and a gate of the context do nothing.

    Call arguments:
        inputs: `(B, T, n)`, n series of T values; T is static. There is no padding.
        training: Whether the cell's dropout acts.

    Returns:
        `(values, alignments)`: the outputs `(B, T, H)`, a memory for a decoder, and alpha `(B, T, n)`.

    Mask behaviour: every value is read. An implicit mask is handed on to `values`.

    Raises:
        ValueError: for what is not a cell, or no attention layer; inputs of unknown length; an attention with a state.

    Example:
        >>> encoder = keras_attn.InputAttentionEncoder(keras.layers.LSTMCell(5), keras_attn.BahdanauAttention(7))
        >>> values, alignments = encoder(np.ones((2, 7, 3), "float32"))
        >>> values.shape, alignments.shape
        ((2, 7, 5), (2, 7, 3))

    Differences from the paper: none with an LSTM cell and `BahdanauAttention(T)`.

    Reference: Qin, Song, Chen, Cheng, Jiang, Cottrell. A Dual-Stage Attention-Based Recurrent Neural Network for Time
    Series Prediction. IJCAI 2017, arXiv:1704.02971.
    """

    _layer_arguments = ("cell", "attention")

    def __init__(self, cell, attention, **kwargs):
        super().__init__(**kwargs)
        check_cell(cell)
        if not isinstance(attention, Attention):
            raise ValueError(f"Expected `attention` to be an `Attention` layer. Received: {attention!r}")
        self.cell = cell
        self.attention = attention

    def build(self, inputs_shape):
        check_sequence("inputs", inputs_shape)
        batch, length, number = inputs_shape
        if length is None:
            raise ValueError(f"Expected inputs (B, T, n) of a static length T. Received: shape {inputs_shape}")
        series = keras.KerasTensor((batch, number, length), dtype=self.compute_dtype)
        if tree.flatten(self.attention.initial_state(series)):
            raise ValueError(f"Expected an `attention` without a state. Received: {self.attention!r}")
        build_once(self.cell, (batch, number))
        build_once(self.attention, (batch, sum(tree.flatten(self.cell.state_size))), (batch, number, length))

    def call(self, inputs, training=False):
        series = ops.transpose(inputs, (0, 2, 1))  # (B, n, T)
        keys = self.attention.keys(series)
        batch, number = ops.shape(inputs)[0], inputs.shape[-1]
        drops = draw_masks(self.cell, batch, number) if training else None
        recur = recurrence(self.cell, number, drops)

        def step(states, x, constants):
            series, keys, drops = constants
            query = ops.concatenate(tree.flatten(states), axis=-1)  # (B, H) of a GRU, (B, 2 H) of an LSTM
            _, alignment, _ = self.attention(query, series, keys=keys, training=False)  # (B, n)
            output, states = recur(None, ops.cast(alignment, x.dtype) * x, states, drops)
            return states, (output, alignment)

        first = as_lists(self.cell.get_initial_state(batch_size=batch))
        _, found = scan(step, first, ops.transpose(inputs, (1, 0, 2)), constants=(series, keys, drops))
        return tuple(ops.transpose(x, (1, 0, 2)) for x in found)

    def compute_output_spec(self, inputs, training=False):
        values = keras.KerasTensor((*inputs.shape[:2], output_width(self.cell)), dtype=self.compute_dtype)
        return values, keras.KerasTensor(inputs.shape, dtype=score_dtype(self.compute_dtype))

    def compute_output_shape(self, inputs_shape):
        return shapes_of(self.compute_output_spec(keras.KerasTensor(inputs_shape)))
