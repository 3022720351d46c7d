"""A Keras recurrent cell, cut into the part that can leave the loop and the part that cannot.

A cell computes something of W x_t and U h_{t-1}. W x_t does not depend on the recurrence: `project` does it for
all T in one matrix product, and `recurrence` does the rest one step at a time with the very same weights. Cells that
are not cut (any other Keras cell) go through `recurrence` whole: the answer is the same, only slower.
"""

from functools import singledispatch

import keras
from keras import ops, tree

from keras_attn.backend import loop_product, scan


def dense(inputs, kernel):
    """`inputs @ kernel` in the dtype of `inputs`; the inputs may be (..., I), the kernel is (I, O)."""
    return ops.matmul(inputs, ops.cast(kernel, inputs.dtype))


def check_cell(cell) -> None:
    """Refuses what is not a recurrent cell, and cells that would draw random numbers inside the loop."""
    for part in getattr(cell, "cells", [cell]):
        if not hasattr(part, "state_size") or not hasattr(part, "get_initial_state"):
            raise ValueError(f"Expected a Keras RNN cell such as `keras.layers.GRUCell(512)`. Received: {cell!r}")
        if getattr(part, "dropout", 0) or getattr(part, "recurrent_dropout", 0):
            raise ValueError(
                f"Expected a cell without dropout of its own: the layer around it drops whole sequences, outside "
                f"the loop. Received: {part.name} with dropout={part.dropout}, "
                f"recurrent_dropout={part.recurrent_dropout}"
            )


def as_lists(state):
    """A cell's state as (nested) lists, whatever mixture of tensors, tuples and lists it came as."""
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


def unroll(cell, inputs, states, *, mask=None, reverse=False):
    """All T steps of a cell that reads nothing but its inputs; of a stack, one layer after the other.

    So every layer's input projection is one product over all T.

    Args:
        inputs: `(T, B, I)`.
        states: The first, as lists nested as the cell's.
        mask, reverse: As in `scan`; outputs stay aligned with inputs.

    Returns:
        `(outputs (T, B, H), states)`, the last ones.
    """
    if hasattr(cell, "cells"):
        finals = []
        for layer, state in zip(cell.cells, states, strict=True):
            inputs, final = unroll(layer, inputs, state, mask=mask, reverse=reverse)
            finals.append(final)
        return inputs, finals
    recur = recurrence(cell)

    def step(state, projected):
        output, state = recur(projected, None, state)
        return state, output

    final, outputs = scan(step, states, project(cell, inputs), reverse=reverse, mask=mask, owner=cell)
    return outputs, final


def read(layers, inputs, *, mask=None, between):
    """Layers over a whole source, from zero states; each reads all that the one below puts out.

    Args:
        layers: Of each its directions, `(cell, reverse)`: one, or two whose outputs are put side by side.
        inputs: `(S, B, I)`.
        mask: `(S, B)`, or None.
        between: What becomes of a layer's outputs on the way to the next.

    Returns:
        `(outputs (S, B, M), states)`: the last ones by layer and direction, each a list as its cell's.
    """
    states = []
    for i, directions in enumerate(layers):
        inputs = between(inputs) if i else inputs
        runs = []
        for cell, reverse in directions:
            first = as_lists(cell.get_initial_state(batch_size=ops.shape(inputs)[1]))
            runs.append(unroll(cell, inputs, first, mask=mask, reverse=reverse))
        outputs, finals = zip(*runs, strict=True)
        inputs = side_by_side(*outputs)
        states.append(list(finals))
    return inputs, states


def side_by_side(*parts):
    """Tensors put together along their last axis."""
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)


@singledispatch
def project(cell, inputs):
    """What `cell` makes of the leading part of its inputs, (..., I) -> (..., P), for any number of steps at once."""
    return inputs


@singledispatch
def recurrence(cell, fed_width: int = 0):
    """The part of `cell` that stays in the loop: a function of one step, with its weights cut out beforehand.

    Returns:
        `(projected (B, P), fed (B, F) or None, states) -> (output (B, H), states)`; `fed` is what comes back from
        the last step, standing behind the projected part of the inputs; states are lists, nested as the cell's.
    """

    def step(projected, fed, states):
        inputs = projected if fed is None else ops.concatenate([projected, fed], axis=-1)  # (B, I + F)
        output, new_states = cell(inputs, states)
        return output, tree.pack_sequence_as(states, tree.flatten(new_states))

    return step


def _input_bias(cell):
    if not cell.use_bias:
        return None
    return cell.bias[0] if getattr(cell, "reset_after", False) else cell.bias


@project.register(keras.layers.GRUCell)
@project.register(keras.layers.LSTMCell)
def _(cell, inputs):
    projected = dense(inputs, cell.kernel[: inputs.shape[-1]])  # (..., 3 H) or (..., 4 H)
    bias = _input_bias(cell)
    return projected if bias is None else projected + ops.cast(bias, projected.dtype)


@project.register(keras.layers.StackedRNNCells)
def _(cell, inputs):
    return project(cell.cells[0], inputs)


def _fed_inputs(cell, fed_width):
    """Adds what is fed back to the projected inputs; the rows of the kernel are cut here, before the loop."""
    if not fed_width:
        return lambda projected, _: projected
    product = _loop_dense(cell, cell.kernel[-fed_width:])
    return lambda projected, fed: projected + product(fed)


def _loop_dense(cell, kernel):
    return loop_product(ops.cast(kernel, cell.compute_dtype))


@recurrence.register(keras.layers.GRUCell)
def _(cell, fed_width=0):
    """GRU, Cho 2014, section 2.3, with Keras' update gate, one minus the paper's.

    z = sigma(W_z x + U_z h), r = sigma(W_r x + U_r h), h' = tanh(W x + U (r * h)), h_t = z h + (1 - z) h';
    with `reset_after=True`, cuDNN's h' = tanh(W x + r * (U h + b)).
    """
    units, sigmoid, tanh = cell.units, cell.recurrent_activation, cell.activation
    with_fed = _fed_inputs(cell, fed_width)
    hidden = [cell.recurrent_kernel]
    if not cell.reset_after:
        hidden = [cell.recurrent_kernel[:, : 2 * units], cell.recurrent_kernel[:, 2 * units :]]
    hidden = [_loop_dense(cell, kernel) for kernel in hidden]

    def reset_after(projected, fed, states):
        (h,) = states  # (B, H)
        gates, candidate = ops.split(with_fed(projected, fed), [2 * units], axis=-1)  # (B, 2 H), (B, H)
        inner = hidden[0](h)  # (B, 3 H)
        if cell.use_bias:
            inner = inner + ops.cast(cell.bias[1], inner.dtype)
        inner_gates, inner_candidate = ops.split(inner, [2 * units], axis=-1)
        z, r = ops.split(sigmoid(gates + inner_gates), 2, axis=-1)
        candidate = tanh(candidate + r * inner_candidate)
        h = candidate + z * (h - candidate)
        return h, [h]

    def reset_before(projected, fed, states):
        (h,) = states  # (B, H)
        gates, candidate = ops.split(with_fed(projected, fed), [2 * units], axis=-1)  # (B, 2 H), (B, H)
        z, r = ops.split(sigmoid(gates + hidden[0](h)), 2, axis=-1)
        candidate = tanh(candidate + hidden[1](r * h))
        h = candidate + z * (h - candidate)
        return h, [h]

    return reset_after if cell.reset_after else reset_before


@recurrence.register(keras.layers.LSTMCell)
def _(cell, fed_width=0):
    """LSTM, Hochreiter & Schmidhuber 1997 with forget gates: c = f c + i g, h = o tanh(c)."""
    sigmoid, tanh = cell.recurrent_activation, cell.activation
    with_fed = _fed_inputs(cell, fed_width)
    hidden = _loop_dense(cell, cell.recurrent_kernel)

    def step(projected, fed, states):
        h, c = states  # (B, H), (B, H)
        gates = with_fed(projected, fed) + hidden(h)  # (B, 4 H)
        i, f, candidate, o = ops.split(gates, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(candidate)
        h = sigmoid(o) * tanh(c)
        return h, [h, c]

    return step


@recurrence.register(keras.layers.StackedRNNCells)
def _(cell, fed_width=0):
    steps = [recurrence(layer, 0 if i else fed_width) for i, layer in enumerate(cell.cells)]

    def step(projected, fed, states):
        output, new_states = None, []
        for i, (layer, run, state) in enumerate(zip(cell.cells, steps, states, strict=True)):
            if i:
                projected, fed = project(layer, output), None
            output, state = run(projected, fed, state)
            new_states.append(state)
        return output, new_states

    return step
