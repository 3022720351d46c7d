"""The dropout of Keras' cells: one mask for all steps, drawn before the loop."""

from typing import Any, NamedTuple

import keras
from keras import ops, tree


class Masks(NamedTuple):
    """Scaled masks of a cell; None where it has no such dropout.

    Attributes:
        inputs: `(B, I)`.
        recurrent: `(B, H)` for each gate.
    """

    inputs: Any
    recurrent: Any


GATES = {keras.layers.GRUCell: 3, keras.layers.LSTMCell: 4, keras.layers.SimpleRNNCell: 1}


def has_dropout(cell) -> bool:
    """Whether one of the cell's layers has dropout of its own."""
    parts = getattr(cell, "cells", [cell])
    return any(getattr(part, "dropout", 0) or getattr(part, "recurrent_dropout", 0) for part in parts)


def draw_masks(cell, batch, width: int):
    """The masks of a cell whose inputs `(B, I)` are `width` wide, a list of them for a stack; None without dropout."""
    if not has_dropout(cell):
        return None
    if hasattr(cell, "cells"):
        widths = [width, *(tree.flatten(layer.state_size)[0] for layer in cell.cells)]
        return [draw_masks(layer, batch, widths[i]) for i, layer in enumerate(cell.cells)]

    def draw(rate, width):
        return keras.random.dropout(ops.ones((batch, width), cell.compute_dtype), rate, seed=cell.seed_generator)

    gates = next(gates for kind, gates in GATES.items() if isinstance(cell, kind))
    recurrent = [draw(cell.recurrent_dropout, cell.units) for _ in range(gates)] if cell.recurrent_dropout else None
    return Masks(draw(cell.dropout, width) if cell.dropout else None, recurrent)


def drop_inputs(inputs, masks: Masks | None, *, last: bool = False):
    """The first part of a cell's inputs, or the last, `(..., I)`, times that part of their mask."""
    if masks is None or masks.inputs is None:
        return inputs
    width = inputs.shape[-1]
    return inputs * (masks.inputs[:, -width:] if last else masks.inputs[:, :width])


def drop_state(state, masks: Masks | None, gate: int = 0):
    """A cell's state `(B, H)` times the mask of a gate."""
    return state if masks is None or masks.recurrent is None else state * masks.recurrent[gate]
