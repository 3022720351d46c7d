"""Splits a request of any size into chunks of bounded size, sentences of similar lengths together, longest first.

So memory is bounded, apart from that of the answer itself; one long line among short ones costs them little; and a
single sentence is a single chunk.
"""

from collections.abc import Callable

import tensorflow as tf


def run_in_chunks(
    lengths: tf.Tensor,
    batch_size: int,
    tokens_per_batch: int,
    function: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    specs: dict[str, tf.TensorSpec],
    apart: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Calls `function` for one chunk of rows after another and returns its outputs in the order of the rows.

    Args:
        lengths: `(B,)` int32, the length of each row. Rows of length 0 are in no chunk; their outputs are 0 or "".
        batch_size, tokens_per_batch: Limits of a chunk: its rows, and its rows times the longest length among them.
        function: Maps row numbers `(R,)` to a dict of outputs `(R, ...)`.
        specs: The specs of the outputs. An axis of unknown size is as long as the longest output, and at least 1.
        apart: `(B,)` bool, the longest rows, which are in no chunk with others; None: no such rows. Rows of
            length 0 may be marked, too.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)  # (B,), empty rows last
    count = tf.math.count_nonzero(lengths, dtype="int32")
    first = 0 if apart is None else tf.math.count_nonzero(apart & (lengths > 0), dtype="int32")

    def body(begin, outputs):
        room = tf.clip_by_value(tokens_per_batch // lengths[order[begin]], 1, batch_size)
        end = tf.minimum(begin + room, tf.where(begin < first, first, count))
        rows = order[begin:end]  # (R,)
        chunk = function(rows)
        placed = {name: _place(old, rows, chunk[name]) for name, old in outputs.items()}
        return end, {name: tf.ensure_shape(output, specs[name].shape) for name, output in placed.items()}

    def empty(spec):
        _, *others = spec.shape.as_list()
        return tf.zeros([tf.size(lengths), *(size or 1 for size in others)], spec.dtype)  # (B, ...)

    start = tf.constant(0), {name: empty(spec) for name, spec in specs.items()}
    shapes = tf.TensorShape(()), {name: spec.shape for name, spec in specs.items()}
    # One chunk at a time: several at once would each take memory.
    _, outputs = tf.while_loop(
        lambda begin, _: begin < count, body, start, shape_invariants=shapes, parallel_iterations=1
    )
    return outputs


def _place(old: tf.Tensor, rows: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """`old` (B, ...) with `rows` (R,) replaced by `new` (R, ...), both padded to the longer axes."""
    if old.shape.rank > 1:
        size = tf.maximum(tf.shape(old)[1:], tf.shape(new)[1:])
        old, new = _padded(old, size), _padded(new, size)
    return tf.tensor_scatter_nd_update(old, rows[:, None], new)


def _padded(x: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    after = tf.concat([[0], size - tf.shape(x)[1:]], axis=0)
    return tf.pad(x, tf.stack([tf.zeros_like(after), after], axis=1))
