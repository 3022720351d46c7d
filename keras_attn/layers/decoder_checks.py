"""Which arguments of `AttentionDecoder` go together."""

from keras import tree


def check_order(attend: str, cell, second_cell) -> None:
    """Refuses an unknown order, a second cell but with "between", and one whose states are not those of the first."""
    if attend not in ("before", "between", "after"):
        raise ValueError(f'Expected `attend` to be "before", "between" or "after". Received: attend={attend!r}')
    if (second_cell is not None) != (attend == "between"):
        raise ValueError(
            f"Expected a `second_cell` with attend='between', and with it alone. Received: attend={attend!r}, "
            f"second_cell={second_cell!r}"
        )
    if second_cell is None:
        return
    # A stack of one layer has its states in a list of lists.
    sizes = [[tree.flatten(layer.state_size) for layer in getattr(one, "cells", [one])] for one in (cell, second_cell)]
    if sizes[0] != sizes[1] or hasattr(cell, "cells") != hasattr(second_cell, "cells"):
        raise ValueError(
            f"Expected a `second_cell` with states of the same sizes as those of `cell`, which it takes over. "
            f"Received: {second_cell.name} with {sizes[1]} and {cell.name} with {sizes[0]}, layer by layer"
        )


def check_vector(attend, attentional, input_feeding, output_attention, cell_input, dropout) -> None:
    """Refuses a dropout rate out of its range, and arguments of the attentional vector where there is none."""
    if not 0 <= dropout < 1:
        raise ValueError(f"Expected `dropout` from 0 to below 1. Received: dropout={dropout}")
    if attend != "after" and (attentional is not None or input_feeding or dropout):
        raise ValueError(
            f"Expected `attentional`, `input_feeding` and `dropout` only with attend='after': otherwise a cell reads "
            f"the context, and its output is the decoder's. Received: attend={attend!r}, attentional={attentional!r}, "
            f"input_feeding={input_feeding}, dropout={dropout}"
        )
    if not output_attention and (attentional is None or not input_feeding):
        raise ValueError(
            f"Expected `output_attention=False` with `attentional` and `input_feeding=True`: the vector is then only "
            f"fed back. Received: attentional={attentional!r}, input_feeding={input_feeding}"
        )
    if cell_input is not None and attend != "before" and not input_feeding:
        raise ValueError(
            f"Expected `cell_input` with something to add to the inputs: attend='before' or `input_feeding=True`. "
            f"Received: attend={attend!r}, input_feeding=False"
        )


def check_attentions(attend, attentional, attentions: int) -> None:
    """Refuses "between" without any attention, a list of layers that are not one for each, and an unknown text."""
    if attend == "between" and not attentions:
        raise ValueError("Expected an attention layer with attend='between'. Received: none")
    wrong = len(attentional) != attentions if isinstance(attentional, list) else attentional != "context"
    if isinstance(attentional, (str, list)) and wrong:
        raise ValueError(
            f'Expected `attentional` to be a layer, "context", or a list of layers, one for each of {attentions} '
            f"attention layers. Received: {attentional!r}"
        )
