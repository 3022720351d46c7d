"""Which cells the layers of this package take."""

import keras

from keras_attn.layers.cell_dropout import GATES, has_dropout, has_known_call


def check_cell(cell) -> None:
    """Refuses what is not a recurrent cell, another stack than Keras', and dropout that nobody else can draw."""
    known, stack = has_known_call(cell), hasattr(cell, "cells")
    if stack and not (isinstance(cell, keras.layers.StackedRNNCells) and known):
        raise ValueError(
            f"Expected a stack of cells to be Keras' StackedRNNCells or ResidualCells, which run layer by layer. "
            f"Received: {type(cell).__name__}, whose `call` is its own"
        )
    if not hasattr(cell, "state_size") or not hasattr(cell, "get_initial_state"):
        raise ValueError(f"Expected a Keras RNN cell such as `keras.layers.GRUCell(512)`. Received: {cell!r}")
    inner = cell.cells if stack else getattr(cell, "transitions", None)
    for part in inner or []:
        check_cell(part)
    if has_dropout(cell) and not (known and (inner or isinstance(cell, tuple(GATES)))):
        raise ValueError(
            f"Expected a cell without dropout of its own, or Keras' GRUCell, LSTMCell or SimpleRNNCell, whose "
            f"masks can be drawn before the loop. Received: {cell.name}, a {type(cell).__name__} with dropout"
        )
