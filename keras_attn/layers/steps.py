"""A loop over a decoder's steps whose inputs are the training data, the decoder's own outputs, or anything else."""

from collections.abc import Callable
from typing import Any

from keras import ops, tree

from keras_attn.backend import scan


def unroll_steps(
    step: Callable,
    first_input: Any,
    memory: Any,
    state: Any,
    *,
    length: int | None = None,
    targets: Any = None,
    next_input: Callable | None = None,
    stop: Callable | None = None,
) -> tuple[Any, Any, Any]:
    """Runs a decoder's step again and again, each time with an input that follows from the output before.

        output_t, state_t = step(x_t, memory, state_{t-1})
        x_{t+1} = next_input(output_t, target_t)

    Outputs need not be tokens: they may be frames of a spectrogram with the probability to stop. By `next_input` the
    decoder is fed by the training data, by itself, or by both in turns: what `BasicDecoder` did with a
    `TrainingSampler`, `InferenceSampler`, `ScheduledOutputTrainingSampler` or `CustomSampler` in tensorflow_addons.
    Gradients flow through all that `next_input` returns, from step to step.

    Args:
        step: `(x, memory, state) -> (output, state)`. It reads no other tensors with a row for each sentence.
        first_input: x_1, a nested structure of tensors `(B, ...)`.
        memory: What is constant for the sentence, a nested structure of tensors `(B, ...)`; None: there is nothing.
        state: The first state, such as `AttentionDecoder.initial_state(values)`. Its structure, shapes and dtypes stay
            the same.
        length: T, the number of steps, without `targets`; None: that of `targets`.
        targets: The outputs of the training data, y_1 .. y_T, or what else the steps need one by one, such as which of
            them are fed: a nested structure of tensors `(B, T, ...)`.
        next_input: `(output, target) -> x`, of the shapes and dtypes of `first_input`; the target is None without
            `targets`. None: the target is the next input (teacher forcing), or without targets the output is.
        stop: `output -> (B,)`, boolean: whether this was a sentence's last step. Its state then stays, and its further
            outputs are zero; all T steps are run. None: every sentence takes T steps.

    Returns:
        `(outputs (B, T, ...), lengths (B,), state)`: the outputs in their own structure, the number of steps of each
        sentence as int32, and the state after its last one.

    Raises:
        ValueError: unless one of `length` and `targets` gives the number of steps.

    Example:
        >>> def step(x, memory, state):
        ...     return x + memory, state + 1
        >>> zeros = keras.ops.zeros((2, 1))
        >>> memory = keras.ops.convert_to_tensor([[1.0], [2.0]])
        >>> outputs, lengths, _ = keras_attn.unroll_steps(
        ...     step, zeros, memory, zeros, length=4, stop=lambda output: output[:, 0] > 3.5
        ... )
        >>> print(keras.ops.convert_to_numpy(outputs)[:, :, 0], keras.ops.convert_to_numpy(lengths))
        [[1. 2. 3. 4.]
         [2. 4. 0. 0.]] [4 2]
    """
    if (length is None) == (targets is None):
        received = "neither" if length is None else f"both, with length={length}"
        raise ValueError(f"Expected `length` or `targets` to give the number of steps. Received: {received}")
    if next_input is None:
        next_input = _output if targets is None else _target
    tensors = first_input, memory, state, targets
    first_input, memory, state, targets = tree.map_structure(_tensor, tensors)
    rows = tree.flatten(first_input)[0]
    running = ops.ones(ops.shape(rows)[:1], dtype="bool")  # (B,)

    def run(carry, target, memory=None):
        x, running, state = carry
        output, new_state = step(x, memory, state)
        x = next_input(output, target if targets is not None else None)
        if stop is None:
            return (x, running, new_state), (output, running)
        new_state, output = (
            tree.map_structure(lambda new, old: _where(running, new, old), new, old)
            for new, old in ((new_state, state), (output, tree.map_structure(ops.zeros_like, output)))
        )
        return (x, running & ~stop(output), new_state), (output, running)

    xs = None if targets is None else tree.map_structure(_swap, targets)  # (T, B, ...)
    carry = first_input, running, state
    (_, _, state), (outputs, ran) = scan(run, carry, xs, length=length, constants=memory)
    lengths = ops.sum(ops.cast(ran, "int32"), axis=0)  # (B,)
    return tree.map_structure(_swap, outputs), lengths, state


def _tensor(x):
    return None if x is None else ops.convert_to_tensor(x)


def _output(output, target):
    return output


def _target(output, target):
    return target


def _swap(x):
    """(B, T, ...) to (T, B, ...), or back."""
    return ops.swapaxes(x, 0, 1)


def _where(rows, new, old):
    return ops.where(ops.reshape(rows, (-1,) + (1,) * (len(new.shape) - 1)), new, old)
