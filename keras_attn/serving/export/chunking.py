"""A request of any size in chunks of bounded size: sentences of like length together, the longest first.

So a request takes bounded memory beside its own answer, one long line among short ones costs them little, and
one sentence is one chunk.
"""

from collections.abc import Callable

import tensorflow as tf


def by_chunks(
    lengths: tf.Tensor,
    batch_size: int,
    tokens_per_batch: int,
    work: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    specs: dict[str, tf.TensorSpec],
) -> dict[str, tf.Tensor]:
    """Does `work` for some rows at a time and puts the answers into the rows' order.

    Args:
        lengths: `(B,)` int32, what a row costs; those of 0 are in no chunk, and their answers are 0 or "".
        batch_size, tokens_per_batch: a chunk's rows, and the rows times the longest of them, at most.
        work: row numbers `(R,)` -> answers `(R, ...)` by name.
        specs: of the answers. Axes of unknown size are as long as the longest answer needs, and at least 1.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)  # (B,), empty rows last
    count = tf.math.count_nonzero(lengths, dtype="int32")

    def body(begin, found):
        room = tf.clip_by_value(tokens_per_batch // lengths[order[begin]], 1, batch_size)
        end = tf.minimum(begin + room, count)
        rows = order[begin:end]  # (R,)
        answers = work(rows)
        placed = {name: _place(old, rows, answers[name]) for name, old in found.items()}
        return end, {name: tf.ensure_shape(answer, specs[name].shape) for name, answer in placed.items()}

    def nothing(spec):
        _, *others = spec.shape.as_list()
        return tf.zeros([tf.size(lengths), *(size or 1 for size in others)], spec.dtype)  # (B, ...)

    start = tf.constant(0), {name: nothing(spec) for name, spec in specs.items()}
    shapes = tf.TensorShape(()), {name: spec.shape for name, spec in specs.items()}
    # One chunk at a time: the next could start before this one ends, and would take its own memory.
    _, found = tf.while_loop(
        lambda begin, _: begin < count, body, start, shape_invariants=shapes, parallel_iterations=1
    )
    return found


def _place(old: tf.Tensor, rows: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """`old` (B, ...) with its `rows` (R,) replaced by `new` (R, ...), either padded to the longer axes."""
    if old.shape.rank > 1:
        size = tf.maximum(tf.shape(old)[1:], tf.shape(new)[1:])
        old, new = _padded(old, size), _padded(new, size)
    return tf.tensor_scatter_nd_update(old, rows[:, None], new)


def _padded(x: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    after = tf.concat([[0], size - tf.shape(x)[1:]], axis=0)
    return tf.pad(x, tf.stack([tf.zeros_like(after), after], axis=1))
