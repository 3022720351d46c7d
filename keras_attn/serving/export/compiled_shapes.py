"""The shapes for which XLA compiles the search of a served graph.

A batch `(R, S)` is padded to the next of a few shapes: rows to 1, 4, 8, 16, ..., source tokens to 16, 32, 64, 128, each
with room for the longest outputs of so many source tokens, and the tokens of a shortlist to 512, 1024, ... A batch that
is larger is searched without XLA. So the number of programs is bounded, whatever is requested.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_attn.serving.export.graph_shortlist import GraphShortlist
from keras_attn.serving.export.options import ExportOptions

if TYPE_CHECKING:
    from keras_attn.translation import Translator

SOURCE_LENGTHS = (16, 32, 64, 128)
LONGEST_OUTPUT = 512
SHORTLIST_SIZE = 512  # the smallest


def rows(options: ExportOptions) -> list[int]:
    """1, 4, 8, 16, ..., `batch_size`: the numbers of rows."""
    numbers = [1, 4]
    while numbers[-1] < options.batch_size:
        numbers.append(2 * numbers[-1])
    return [*(number for number in numbers if number < options.batch_size), options.batch_size]


def lengths(engine: "Translator", options: ExportOptions) -> dict[int, int]:
    """The numbers of source tokens, end token included, and for each the room of its outputs.

    Raises:
        ValueError: if none has outputs that are short enough to compile.
    """
    most = min(options.max_source_length, engine.model.source_length or options.max_source_length)
    sizes = sorted({min(size, most) for size in SOURCE_LENGTHS})
    limits = engine.limits(max_length=options.max_length, max_length_ratio=options.max_length_ratio)
    rooms = {size: max(limits.longest(size), options.no_repeat_ngram_size) for size in sizes}
    found = {size: room for size, room in rooms.items() if room <= LONGEST_OUTPUT}
    if not found:
        raise ValueError(
            f"Expected outputs of at most {LONGEST_OUTPUT} tokens with jit_compile. Received options that allow "
            f"{min(rooms.values())}"
        )
    return found


def are_larger(rooms: dict[int, int], lengths: tf.Tensor, longest: tf.Tensor) -> tf.Tensor:
    """Whether sources of these lengths, with outputs that may be so long, fit none of the shapes."""
    return (lengths > max(rooms)) | (longest > max(rooms.values()))


def shortlist_sizes(vocabulary_size: int) -> list[int]:
    """512, 1024, ..., the whole vocabulary: the numbers of tokens of a shortlist."""
    sizes = [SHORTLIST_SIZE]
    while sizes[-1] < vocabulary_size:
        sizes.append(2 * sizes[-1])
    return [*sizes[:-1], vocabulary_size]


def compiled(
    search: Callable,
    plain: Callable,
    norms_of: Callable,
    shortlist: GraphShortlist | None,
    engine: "Translator",
    options: ExportOptions,
) -> Callable:
    """A function of the arguments of `plain`, whose batches `search` takes if one of the shapes is large enough.

    Args:
        search: To be compiled: token ids `(R, S)`, longest and shortest outputs `(R,)`, norms `(L,)`, and the dict of
            the shortlist, which is empty without one, to a dict.
        plain: The same of the first three and the length penalty, for any shape.
        norms_of: The norms for a room L and a length penalty.
        shortlist: For the tokens of a batch.
        engine, options: Those of the export.
    """
    compiled_search = tf.function(partial(search, compiled=True), jit_compile=True, autograph=False)
    rooms = lengths(engine, options)
    pad = engine.model.source_special_ids.pad

    def with_xla(token_ids, row_max_length, row_min_length, length_penalty):
        count, length = tf.unstack(tf.shape(token_ids))
        room = _place_of(tf.reduce_max(row_max_length), rooms.values())
        place = tf.maximum(_place_of(length, rooms), room)
        # The last row, the shortest, fills the batch.
        index = tf.minimum(tf.range(tf.gather(rows(options), _place_of(count, rows(options)))), count - 1)
        ids = tf.gather(token_ids, index)
        listed = _padded(shortlist(ids), engine.model.target_vocabulary_size) if shortlist else {}
        found = compiled_search(
            tf.pad(ids, [[0, 0], [0, tf.gather(list(rooms), place) - length]], constant_values=pad),
            tf.gather(row_max_length, index),
            tf.gather(row_min_length, index),
            norms_of(tf.gather(list(rooms.values()), place), length_penalty),
            listed,
        )
        return {name: value[:count] for name, value in found.items()}

    def search_rows(token_ids, row_max_length, row_min_length, length_penalty):
        arguments = token_ids, row_max_length, row_min_length, length_penalty
        too_large = are_larger(rooms, tf.shape(token_ids)[1], tf.reduce_max(row_max_length))
        return tf.cond(too_large, lambda: plain(*arguments), lambda: with_xla(*arguments))

    return search_rows


def _padded(listed: dict[str, tf.Tensor], vocabulary_size: int) -> dict[str, tf.Tensor]:
    """A shortlist of one of the sizes: no sentence may have the tokens that fill it."""
    sizes, size = shortlist_sizes(vocabulary_size), tf.size(listed["token_ids"])
    more = tf.gather(sizes, _place_of(size, sizes)) - size
    return {
        "token_ids": tf.pad(listed["token_ids"], [[0, more]]),
        "allowed": tf.pad(listed["allowed"], [[0, 0], [0, more]]),
    }


def _place_of(size: tf.Tensor, sizes: Iterable[int]) -> tf.Tensor:
    """The place of the first of rising `sizes` that is at least `size`."""
    return tf.searchsorted(tf.constant(list(sizes)), size[None])[0]
