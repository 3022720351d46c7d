"""What cells are made of, and their dropout: one mask for all steps, drawn before the loop."""

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


def parts_of(cell) -> list:
    """The plain cells that a cell is made of: of the layers of a stack, of the transitions of a deep one."""
    inner = getattr(cell, "cells", None) or getattr(cell, "transitions", None)
    return [cell] if inner is None else [part for one in inner for part in parts_of(one)]


def has_known_call(cell) -> bool:
    """Whether a cell computes what its class in Keras or this package does; not if a subclass has its own `call`."""
    call = getattr(type(cell), "call", None)
    return getattr(call, "__module__", "").partition(".")[0] in ("keras", "keras_attn")


def has_dropout(cell) -> bool:
    """Whether one of the cell's parts has dropout of its own."""
    return any(getattr(part, "dropout", 0) or getattr(part, "recurrent_dropout", 0) for part in parts_of(cell))


def draw_masks(cell, batch, width: int):
    """The masks of a cell whose inputs `(B, I)` are `width` wide; a list for a stack; None without dropout."""
    if not has_dropout(cell):
        return None
    if hasattr(cell, "cells"):
        widths = [width, *(tree.flatten(layer.state_size)[0] for layer in cell.cells)]
        return [draw_masks(layer, batch, widths[i]) for i, layer in enumerate(cell.cells)]
    if hasattr(cell, "transitions"):  # only the first has inputs
        return [draw_masks(part, batch, 0 if i else width) for i, part in enumerate(cell.transitions)]

    def draw(rate, width):
        return keras.random.dropout(ops.ones((batch, width), cell.compute_dtype), rate, seed=cell.seed_generator)

    gates = next(gates for kind, gates in GATES.items() if isinstance(cell, kind))
    recurrent = [draw(cell.recurrent_dropout, cell.units) for _ in range(gates)] if cell.recurrent_dropout else None
    return Masks(draw(cell.dropout, width) if cell.dropout and width else None, recurrent)


def drop_inputs(inputs, masks: Masks | None, *, last: bool = False):
    """The first part of a cell's inputs, or the last, `(..., I)`, times that part of their mask."""
    if masks is None or masks.inputs is None:
        return inputs
    width = inputs.shape[-1]
    return inputs * (masks.inputs[:, -width:] if last else masks.inputs[:, :width])


def drop_state(state, masks: Masks | None, gate: int = 0):
    """A cell's state `(B, H)` times the mask of a gate."""
    return state if masks is None or masks.recurrent is None else state * masks.recurrent[gate]
