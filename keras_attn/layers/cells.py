"""Splits a Keras cell into an input projection, hoisted out of the loop, and the recurrence.

A cell computes its gates from W x_t and U h_{t-1}. W x_t does not depend on the recurrence: `project` computes it for
all T in one matrix product, and `recurrence` does the rest, one step at a time, with the same weights. GRU and LSTM
cells are split; any other Keras cell runs whole inside the loop, with the same result, only slower.
"""

from functools import singledispatch

import keras
from keras import ops, tree

from keras_attn.backend import loop_product, scan


def dense(inputs, kernel):
    """`inputs @ kernel` in the dtype of `inputs`; the inputs may be (..., I), the kernel is (I, O)."""
    return ops.matmul(inputs, ops.cast(kernel, inputs.dtype))


def check_cell(cell) -> None:
    """Refuses what is not a recurrent cell, and cells with dropout, which would draw random numbers inside the loop."""
    for part in getattr(cell, "cells", [cell]):
        if not hasattr(part, "state_size") or not hasattr(part, "get_initial_state"):
            raise ValueError(f"Expected a Keras RNN cell such as `keras.layers.GRUCell(512)`. Received: {cell!r}")
        if getattr(part, "dropout", 0) or getattr(part, "recurrent_dropout", 0):
            raise ValueError(
                f"Expected a cell without dropout of its own: the layer around it applies dropout, outside the loop. "
                f"Received: {part.name} with dropout={part.dropout}, "
                f"recurrent_dropout={part.recurrent_dropout}"
            )


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


def unroll(cell, inputs, states, *, mask=None, reverse=False):
    """Runs a cell over all T steps; a stack runs layer by layer, so that each projects its inputs in one product.

    Args:
        inputs: `(T, B, I)`.
        states: The initial states, in lists nested as the cell's.
        mask, reverse: As in `scan`; outputs stay aligned with inputs.

    Returns:
        `(outputs (T, B, H), states)`, the final states.
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


def concatenate(*parts):
    """Tensors concatenated along their last axis."""
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)


@singledispatch
def project(cell, inputs):
    """The input projection of `cell`, for any number of steps at once: (..., I) -> (..., P).

    The inputs may be the leading part of the cell's, where the rest is only known inside the loop.
    """
    return inputs


@singledispatch
def recurrence(cell, loop_width: int = 0):
    """The part of `cell` that stays in the loop, as a function of one step whose weights are sliced beforehand.

    Args:
        cell: A Keras RNN cell.
        loop_width: F, the width of the inputs that are only known inside the loop (a context, the previous output).
            They follow the projected part of the inputs.

    Returns:
        `(projected (B, P), loop_inputs (B, F) or None, states) -> (output (B, H), states)`, where states are lists,
        nested as the cell's.
    """

    def step(projected, loop_inputs, states):
        inputs = projected if loop_inputs is None else ops.concatenate([projected, loop_inputs], axis=-1)  # (B, I + F)
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


def _add_loop_inputs(cell, loop_width):
    """Adds the projection of the loop's inputs; their rows of the kernel are sliced here, before the loop."""
    if not loop_width:
        return lambda projected, _: projected
    product = _loop_dense(cell, cell.kernel[-loop_width:])
    return lambda projected, loop_inputs: projected + product(loop_inputs)


def _loop_dense(cell, kernel):
    return loop_product(ops.cast(kernel, cell.compute_dtype))


@recurrence.register(keras.layers.GRUCell)
def _(cell, loop_width=0):
    """GRU, Cho 2014, section 2.3, with Keras' update gate, one minus the paper's.

    z = sigma(W_z x + U_z h), r = sigma(W_r x + U_r h), h' = tanh(W x + U (r * h)), h_t = z h + (1 - z) h';
    with `reset_after=True`, cuDNN's h' = tanh(W x + r * (U h + b)).
    """
    units, sigmoid, tanh = cell.units, cell.recurrent_activation, cell.activation
    project_all = _add_loop_inputs(cell, loop_width)
    hidden = [cell.recurrent_kernel]
    if not cell.reset_after:
        hidden = [cell.recurrent_kernel[:, : 2 * units], cell.recurrent_kernel[:, 2 * units :]]
    hidden = [_loop_dense(cell, kernel) for kernel in hidden]

    def reset_after(projected, loop_inputs, states):
        (h,) = states  # (B, H)
        gates, candidate = ops.split(project_all(projected, loop_inputs), [2 * units], axis=-1)  # (B, 2 H), (B, H)
        inner = hidden[0](h)  # (B, 3 H)
        if cell.use_bias:
            inner = inner + ops.cast(cell.bias[1], inner.dtype)
        inner_gates, inner_candidate = ops.split(inner, [2 * units], axis=-1)
        z, r = ops.split(sigmoid(gates + inner_gates), 2, axis=-1)
        candidate = tanh(candidate + r * inner_candidate)
        h = candidate + z * (h - candidate)
        return h, [h]

    def reset_before(projected, loop_inputs, states):
        (h,) = states  # (B, H)
        gates, candidate = ops.split(project_all(projected, loop_inputs), [2 * units], axis=-1)  # (B, 2 H), (B, H)
        z, r = ops.split(sigmoid(gates + hidden[0](h)), 2, axis=-1)
        candidate = tanh(candidate + hidden[1](r * h))
        h = candidate + z * (h - candidate)
        return h, [h]

    return reset_after if cell.reset_after else reset_before


@recurrence.register(keras.layers.LSTMCell)
def _(cell, loop_width=0):
    """LSTM, Hochreiter & Schmidhuber 1997 with forget gates: c = f c + i g, h = o tanh(c)."""
    sigmoid, tanh = cell.recurrent_activation, cell.activation
    project_all = _add_loop_inputs(cell, loop_width)
    hidden = _loop_dense(cell, cell.recurrent_kernel)

    def step(projected, loop_inputs, states):
        h, c = states  # (B, H), (B, H)
        gates = project_all(projected, loop_inputs) + hidden(h)  # (B, 4 H)
        i, f, candidate, o = ops.split(gates, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(candidate)
        h = sigmoid(o) * tanh(c)
        return h, [h, c]

    return step


@recurrence.register(keras.layers.StackedRNNCells)
def _(cell, loop_width=0):
    steps = [recurrence(layer, 0 if i else loop_width) for i, layer in enumerate(cell.cells)]

    def step(projected, loop_inputs, states):
        output, new_states = None, []
        for i, (layer, run, state) in enumerate(zip(cell.cells, steps, states, strict=True)):
            if i:
                projected, loop_inputs = project(layer, output), None
            output, state = run(projected, loop_inputs, state)
            new_states.append(state)
        return output, new_states

    return step
