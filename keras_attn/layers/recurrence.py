"""Splits a Keras cell into an input projection, hoisted out of the loop, and the recurrence.

A cell computes its gates from W x_t and U h_{t-1}. W x_t does not depend on the recurrence: `project` computes it for
all T in one matrix product, and `recurrence` does the rest, one step at a time, with the same weights. Keras' GRU, LSTM
and SimpleRNN cells are split, and so are the cells of this package, which are made of them; any other cell, also one
of a subclass with a `call` of its own, runs whole inside the loop, with the same result, only slower. A cell with
methods `normalized_inputs`, `normalized_state` and `normalized_cell` gets W x, U h and an LSTM's c by them. A cell's
dropout has one mask for all steps, drawn before the loop.
"""

from functools import singledispatch, wraps
from typing import Any, NamedTuple

import keras
from keras import ops, tree

from keras_attn.backend import dense, keep_float64, loop_product, scan


def as_lists(state):
    """A cell's state as (nested) lists; it may be a tensor, a tuple or a list of either."""
    if isinstance(state, (list, tuple)):
        return [as_lists(part) if isinstance(part, (list, tuple)) else part for part in state]
    return [state]


def top_state(cell_state):
    """h of the top layer, (B, H), from a cell's state or a stack's."""
    top = cell_state[-1] if isinstance(cell_state[0], list) else cell_state
    return top[0]


def output_width(cell) -> int:
    """H: units of the cell, or of the top one of a stack."""
    top = getattr(cell, "cells", [cell])[-1]
    return tree.flatten(top.state_size)[0]


def unroll(cell, inputs, states, *, mask=None, reverse=False, drops=None):
    """Runs a cell over all T steps; a stack runs layer by layer, so that each projects its inputs in one product.

    Args:
        inputs: `(T, B, I)`.
        states: The initial states, in lists nested as the cell's.
        mask, reverse: As in `scan`; outputs stay aligned with inputs.
        drops: The cell's dropout masks, from `draw_masks`.

    Returns:
        `(outputs (T, B, H), states)`, the final states.
    """
    if hasattr(cell, "cells"):
        finals = []
        for i, (layer, state, drop) in enumerate(zip(cell.cells, states, drops or [None] * len(states), strict=True)):
            outputs, final = unroll(layer, inputs, state, mask=mask, reverse=reverse, drops=drop)
            inputs = skip(cell, i, inputs, outputs)
            finals.append(final)
        return inputs, finals
    recur = recurrence(cell, 0, drops)

    def step(state, projected, drops=None):
        output, state = recur(projected, None, state, drops)
        return state, output

    final, outputs = scan(
        step, states, project(cell, inputs, drops), reverse=reverse, mask=mask, owner=cell, constants=drops
    )
    return outputs, final


def read(cell, inputs, *, mask=None, reverse: bool = False, training: bool = False, states=None):
    """`unroll` of an encoder's cell: from zeros or the given states, with dropout masks of its own in training."""
    batch = ops.shape(inputs)[1]
    if states is None:
        states = as_lists(cell.get_initial_state(batch_size=batch))
    drops = draw_masks(cell, batch, inputs.shape[-1]) if training else None
    return unroll(cell, inputs, states, mask=mask, reverse=reverse, drops=drops)


def skip(cell, layer: int, inputs, outputs):
    """The outputs of a layer of a stack of cells; with a skip connection its inputs are added."""
    return outputs + inputs if layer >= getattr(cell, "first_skip", len(cell.cells)) else outputs


def state_sizes(cell) -> list:
    """The widths of a cell's states, in lists nested as these."""
    if hasattr(cell, "cells"):
        return [as_lists(layer.state_size) for layer in cell.cells]
    return as_lists(cell.state_size)


def check_states(name: str, cell, given) -> list:
    """The states of a cell that were given, as lists; `name` is the argument's.

    Raises:
        ValueError: for another number of states than the cell's, or of other widths.
    """
    given = as_lists(given)
    if hasattr(cell, "cells"):
        given = [as_lists(state) for state in given]
    widths = tree.map_structure(lambda state: state.shape[-1], given)
    if widths != state_sizes(cell):
        raise ValueError(
            f"Expected `{name}` to be states of the widths of those of {cell.name}, {state_sizes(cell)}. "
            f"Received: states of the widths {widths}"
        )
    return given


def concatenate(*parts):
    """Tensors concatenated along their last axis."""
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)


def _by_class(function):
    """`singledispatch`, but `function` itself is for every cell whose `call` is its own.

    `of_class` takes no notice of that: a class' own `call` uses it.
    """
    of_class = singledispatch(function)

    @wraps(function)
    def chosen(cell, *args):
        return (of_class if has_known_call(cell) else function)(cell, *args)

    chosen.register, chosen.of_class = of_class.register, of_class
    return chosen


@_by_class
def project(cell, inputs, drops=None):
    """The input projection of `cell`, for any number of steps at once: (..., I) -> (..., P).

    The inputs may be the leading part of the cell's, where the rest is only known inside the loop. `drops` are the
    cell's dropout masks, from `draw_masks`.
    """
    return inputs


@_by_class
def recurrence(cell, loop_width: int = 0, drops=None):
    """The part of `cell` that stays in the loop, as a function of one step whose weights are sliced beforehand.

    Args:
        cell: A Keras RNN cell.
        loop_width: F, the width of the inputs that are only known inside the loop (a context, the previous output).
            They follow the projected part of the inputs.
        drops: The cell's dropout masks, from `draw_masks`, which the function is then called with.

    Returns:
        `(projected (B, P), loop_inputs (B, F) or None, states, drops=None) -> (output (B, H), states)`, where states
        are lists, nested as the cell's. `projected` is None where the loop has all inputs, or there are none.
    """

    def step(projected, loop_inputs, states, drops=None):
        inputs = concatenate(*[x for x in (projected, loop_inputs) if x is not None])  # (B, I + F)
        output, new_states = cell(inputs, states)
        return output, tree.pack_sequence_as(states, tree.flatten(new_states))

    return step


def recurrence_behind(layer, cell, drops=None):
    """`recurrence` of a cell that reads `layer([inputs ; loop_inputs])`: its projection is in the loop, too."""
    recur = recurrence(cell, 0, drops)

    def step(inputs, loop_inputs, states, drops=None):
        read = layer(ops.concatenate([inputs, loop_inputs], axis=-1))  # (B, I)
        return recur(project(cell, ops.cast(read, inputs.dtype), drops), None, states, drops)

    return step


def _input_bias(cell):
    if not cell.use_bias:
        return None
    return cell.bias[0] if getattr(cell, "reset_after", False) else cell.bias


@project.register(keras.layers.GRUCell)
@project.register(keras.layers.LSTMCell)
@project.register(keras.layers.SimpleRNNCell)
def _(cell, inputs, drops=None):
    width = inputs.shape[-1]
    product = dense(drop_inputs(inputs, drops), cell.kernel, rows=slice(width))  # (..., 3 H) or (..., 4 H)
    if width < cell.kernel.shape[0] and hasattr(cell, "normalized_inputs"):
        return product  # the norm is that of the sum with what the loop adds
    return _finished(cell, product)


def _finished(cell, product):
    """W x, normalised if it is so in this cell, with the bias."""
    product, bias = _normalized(cell, "inputs", product), _input_bias(cell)
    return product if bias is None else product + ops.cast(bias, product.dtype)


def _without_inputs(cell):
    """W x + b where there is no x, (3 H,) or (4 H,)."""
    bias = _input_bias(cell)
    return ops.cast(ops.zeros(cell.kernel.shape[1:]) if bias is None else bias, cell.compute_dtype)


def _normalized(cell, which: str, x):
    return getattr(cell, f"normalized_{which}", lambda x: x)(x)


@project.register(keras.layers.StackedRNNCells)
def _(cell, inputs, drops=None):
    return project(cell.cells[0], inputs, drops and drops[0])


def _add_loop_inputs(cell, loop_width):
    """Adds the projection of the loop's inputs; their rows of the kernel are sliced here, before the loop."""
    if not loop_width:
        return lambda projected, _, __: _without_inputs(cell) if projected is None else projected
    product = loop_product(cell.kernel, rows=slice(-loop_width, None), dtype=cell.compute_dtype)

    def add(projected, loop_inputs, drops):
        added = product(drop_inputs(loop_inputs, drops, last=True))
        added = added if projected is None else projected + added
        return _finished(cell, added) if projected is None or hasattr(cell, "normalized_inputs") else added

    return add


def _hidden_product(cell, drops, gates):
    """`(h, drops) -> h @ U` for the gates of a range; with dropout of h, which has a mask a gate, gate by gate."""
    units = cell.units

    def of_columns(start, stop):
        columns = slice(None) if stop - start == cell.recurrent_kernel.shape[1] else slice(start, stop)
        return loop_product(cell.recurrent_kernel, columns=columns, dtype=cell.compute_dtype)

    if drops is None or drops.recurrent is None:
        dot = of_columns(gates.start * units, gates.stop * units)
        return lambda h, _: _normalized(cell, "state", dot(h))
    products = [of_columns(gate * units, (gate + 1) * units) for gate in gates]

    def product(h, drops):
        parts = [dot(drop_state(h, drops, gate)) for gate, dot in zip(gates, products, strict=True)]
        return _normalized(cell, "state", concatenate(*parts))

    return product


@recurrence.register(keras.layers.GRUCell)
def _(cell, loop_width=0, drops=None):
    """GRU, Cho 2014, section 2.3, with Keras' update gate, one minus the paper's.

    z = sigma(W_z x + U_z h), r = sigma(W_r x + U_r h), h' = tanh(W x + U (r * h)), h_t = z h + (1 - z) h';
    with `reset_after=True`, cuDNN's h' = tanh(W x + r * (U h + b)).
    """
    units, sigmoid, tanh = cell.units, cell.recurrent_activation, keep_float64(cell.activation)
    project_all = _add_loop_inputs(cell, loop_width)
    gates_of = [range(3)] if cell.reset_after else [range(2), range(2, 3)]
    hidden = [_hidden_product(cell, drops, gates) for gates in gates_of]

    def reset_after(projected, loop_inputs, states, drops=None):
        (h,) = states  # (B, H)
        inner = hidden[0](h, drops)  # (B, 3 H)
        if cell.use_bias:
            inner = inner + ops.cast(cell.bias[1], inner.dtype)
        z, r, candidate = ops.split(project_all(projected, loop_inputs, drops), 3, axis=-1)  # (B, H) each
        inner_z, inner_r, inner_candidate = ops.split(inner, 3, axis=-1)
        z, r = sigmoid(z + inner_z), sigmoid(r + inner_r)
        candidate = tanh(candidate + r * inner_candidate)
        h = candidate + z * (h - candidate)
        return h, [h]

    def reset_before(projected, loop_inputs, states, drops=None):
        (h,) = states  # (B, H)
        gates, candidate = ops.split(
            project_all(projected, loop_inputs, drops), [2 * units], axis=-1
        )  # (B, 2 H), (B, H)
        z, r = ops.split(sigmoid(gates + hidden[0](h, drops)), 2, axis=-1)
        candidate = tanh(candidate + hidden[1](r * h, drops))
        h = candidate + z * (h - candidate)
        return h, [h]

    return reset_after if cell.reset_after else reset_before


@recurrence.register(keras.layers.LSTMCell)
def _(cell, loop_width=0, drops=None):
    """LSTM, Hochreiter & Schmidhuber 1997 with forget gates: c = f c + i g, h = o tanh(c)."""
    sigmoid, tanh = cell.recurrent_activation, keep_float64(cell.activation)
    shown = tanh if getattr(cell, "output_nonlinearity", True) else lambda c: c
    project_all = _add_loop_inputs(cell, loop_width)
    hidden = _hidden_product(cell, drops, range(4))

    def step(projected, loop_inputs, states, drops=None):
        h, c = states  # (B, H), (B, H)
        gates = project_all(projected, loop_inputs, drops) + hidden(h, drops)  # (B, 4 H)
        i, f, candidate, o = ops.split(gates, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(candidate)
        h = sigmoid(o) * shown(_normalized(cell, "cell", c))
        return h, [h, c]

    return step


@recurrence.register(keras.layers.SimpleRNNCell)
def _(cell, loop_width=0, drops=None):
    """Elman's network: h_t = tanh(W x + U h + b). Keras' own cell draws its masks in the loop."""
    project_all = _add_loop_inputs(cell, loop_width)
    hidden, activation = _hidden_product(cell, drops, range(1)), keep_float64(cell.activation)

    def step(projected, loop_inputs, states, drops=None):
        h = activation(project_all(projected, loop_inputs, drops) + hidden(states[0], drops))  # (B, H)
        return h, [h]

    return step


@recurrence.register(keras.layers.StackedRNNCells)
def _(cell, loop_width=0, drops=None):
    drops = drops or [None] * len(cell.cells)
    steps = [recurrence(layer, 0 if i else loop_width, drops[i]) for i, layer in enumerate(cell.cells)]

    def step(projected, loop_inputs, states, drops=None):
        drops = drops or [None] * len(cell.cells)
        output, new_states = None, []
        for i, (layer, run, state) in enumerate(zip(cell.cells, steps, states, strict=True)):
            if i:
                projected, loop_inputs = project(layer, output, drops[i]), None
            below, (output, state) = output, run(projected, loop_inputs, state, drops[i])
            output = skip(cell, i, below, output) if i else output
            new_states.append(state)
        return output, new_states

    return step


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
    """Returns True if the `call` of a cell is that of a class of Keras or this package, not a subclass's own."""
    call = getattr(type(cell), "call", None)
    return getattr(call, "__module__", "").partition(".")[0] in ("keras", "keras_attn")


def has_dropout(cell) -> bool:
    """Returns True if one of the cell's parts has dropout of its own."""
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


def check_cell(cell) -> None:
    """Raises ValueError for an object that is no recurrent cell, another stack than Keras', or unknown dropout."""
    known, stack = has_known_call(cell), hasattr(cell, "cells")
    if stack and not (isinstance(cell, keras.layers.StackedRNNCells) and known):
        raise ValueError(
            f"Expected a stack of cells to be Keras' StackedRNNCells or ResidualCells, which run layer by layer. "
            f"Received: {type(cell).__name__}, whose `call` is its own"
        )
    if isinstance(cell, keras.layers.RNN):
        raise ValueError(
            f"Expected a Keras RNN cell, which runs one step, such as `keras.layers.{type(cell).__name__}Cell(512)`. "
            f"Received: a layer {type(cell).__name__}, which runs over all steps; its cell is `layer.cell`"
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
