"""Search as a graph function: the code that `generate` runs, with the limits, the shortlist and the shapes of a batch.

With `jit_compile` XLA compiles it for a few shapes, to which batches `(R, S)` are padded: rows to 1, 4, 8, 16, ...,
source tokens to 16, 32, 64, 128, each with room for the longest outputs of so many source tokens, and the tokens of a
shortlist to 512, 1024, ... A larger batch is searched without XLA. So the number of programs is bounded, whatever is
requested.
"""

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_attn.backend import kernel_products
from keras_attn.export.options import ExportOptions
from keras_attn.models import Seq2Seq
from keras_attn.saving import QuantizedMatrix, is_quantized, quantize_matrix
from keras_attn.search import Limits, beam_search, greedy_search, length_norm, run_beam_search, start_beam_search
from keras_attn.translation import Shortlist, Translator


class QuantizedWeights(tf.Module):
    """The quantized matrices of a model: stored once, and converted to float32 once, when the graph is loaded.

    All sums and products are computed in float32, so a request takes the same time as without quantization. The disk
    and the download become smaller; memory holds both forms.

    Args:
        model: A `keras.Model`.
        quantize: "int8", "float16", or None for no quantized matrices.
    """

    def __init__(self, model: keras.Model, quantize: str | None):
        super().__init__(name="quantized_weights")
        weights = [weight for weight in model.weights if quantize and is_quantized(weight)]
        self.matrices = [_Dequantized(quantize_matrix(keras.ops.convert_to_numpy(w), quantize)) for w in weights]
        self.variables_of_matrices = [(matrix.values, matrix.scale) for matrix in self.matrices]  # to be saved
        # A function, because every variable that is an attribute of a module is saved.
        self._weights = lambda: weights

    def scope(self) -> contextlib.AbstractContextManager:
        """A scope in which the model computes with the quantized weights, for use inside a `tf.function`."""
        if not self.matrices:
            return contextlib.nullcontext()
        return keras.StatelessScope([(w, m.read()) for w, m in zip(self._weights(), self.matrices, strict=True)])


class _Dequantized(tf.saved_model.experimental.TrackableResource):
    """A float32 matrix that no checkpoint stores: it is computed from the quantized one when a graph is loaded."""

    def __init__(self, matrix: QuantizedMatrix):
        super().__init__()
        self.values = tf.Variable(matrix.values, trainable=False)
        self.scale = tf.Variable(matrix.scale, trainable=False)
        self._shape = matrix.values.shape
        # A loaded graph finds a resource by its name: with equal names, two matrices would both be the first.
        self._name = hashlib.sha256(matrix.values.tobytes() + matrix.scale.tobytes()).hexdigest()
        self._initialize()  # for this process; a loader calls it by itself

    def read(self) -> tf.Tensor:
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=tf.float32)
        return tf.ensure_shape(value, self._shape)

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=self._shape, shared_name=f"widened_{self._name}")

    def _initialize(self):
        value = tf.cast(self.values, tf.float32) * self.scale
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=value)


SOURCE_LENGTHS = (16, 32, 64, 128)
LONGEST_OUTPUT = 512  # tokens of an output of a compiled search, at most
SHORTLIST_SIZE = 512  # the smallest of a compiled search


class GraphSearch:
    """Search as one function of the graph, which several signatures may call.

    Args:
        engine, options: Those of the export.
        weights: The model's quantized weights.
        shortlist: A `GraphShortlist`, or None.
        banned_token_ids: Target ids that are never produced.
        n_best: Hypotheses of each row, N.
        return_alignments: bool, whether results have alignments. Such a search is never compiled.

    Attributes:
        function: Maps source ids `(R, S)`, maximum and minimum output lengths `(R,)` and the length penalty to the dict
            of a `SearchResult` with L the longest output of all.
    """

    def __init__(
        self,
        engine: Translator,
        options: ExportOptions,
        weights: QuantizedWeights,
        shortlist: "GraphShortlist | None",
        banned_token_ids: Sequence[int],
        *,
        n_best: int,
        return_alignments: bool,
    ):
        self._engine, self._options, self._weights, self._shortlist = engine, options, weights, shortlist
        self._fixed = {
            "banned_token_ids": banned_token_ids,
            "no_repeat_ngram_size": options.no_repeat_ngram_size,
            "return_alignments": return_alignments,
            "special_ids": engine.model.target_special_ids,
        } | (shortlist.arguments if shortlist else {})
        self._n_best = n_best
        search_rows = self._search_rows
        if options.jit_compile and not return_alignments:
            self._rooms = compiled_lengths(engine, options)
            run = partial(self._run, compiled=True)
            self._compiled_run = tf.function(run, jit_compile=True, autograph=False)
            search_rows = self._search_rows_or_compiled
        row = tf.TensorSpec((None,), tf.int32)
        inputs = [tf.TensorSpec((None, None), tf.int32), row, row, tf.TensorSpec((), tf.float64)]
        # Concrete, because a tf.function would be traced for its first caller and again for the others.
        self.function = tf.function(search_rows, input_signature=inputs, autograph=False).get_concrete_function()

    def _search_rows(self, token_ids, row_max_length, row_min_length, length_penalty):
        # Not room for the longest output that the model may give: the buffers of search are copied at every step.
        room = tf.maximum(tf.reduce_max(row_max_length), self._options.no_repeat_ngram_size)
        listed = self._shortlist(token_ids) if self._shortlist else {}
        return self._run(token_ids, row_max_length, row_min_length, self._norms(room, length_penalty), listed)

    def _compiled(self, token_ids, row_max_length, row_min_length, length_penalty):
        lengths, rooms, rows = list(self._rooms), list(self._rooms.values()), compiled_rows(self._options)
        count, length = tf.unstack(tf.shape(token_ids))
        place = tf.maximum(_first_at_least(length, lengths), _first_at_least(tf.reduce_max(row_max_length), rooms))
        # The last row, the shortest, fills the batch.
        index = tf.minimum(tf.range(tf.gather(rows, _first_at_least(count, rows))), count - 1)
        ids, pad = tf.gather(token_ids, index), self._engine.model.source_special_ids.pad
        found = self._compiled_run(
            tf.pad(ids, [[0, 0], [0, tf.gather(lengths, place) - length]], constant_values=pad),
            tf.gather(row_max_length, index),
            tf.gather(row_min_length, index),
            self._norms(tf.gather(rooms, place), length_penalty),
            self._shortlist.padded(ids) if self._shortlist else {},
        )
        return {name: value[:count] for name, value in found.items()}

    def _search_rows_or_compiled(self, token_ids, row_max_length, *others):
        arguments = token_ids, row_max_length, *others
        too_large = are_larger(self._rooms, tf.shape(token_ids)[1], tf.reduce_max(row_max_length))
        return tf.cond(too_large, lambda: self._search_rows(*arguments), lambda: self._compiled(*arguments))

    def _norms(self, room, length_penalty):
        lengths = tf.cast(tf.range(1, room + 1), tf.float64)  # (L,)
        return tf.cast(length_norm(self._options.normalization, 1.0, lengths) ** length_penalty, tf.float32)  # (L,)

    def _run(self, token_ids, row_max_length, row_min_length, norms, listed, compiled=False):
        model, room = self._engine.model, tf.shape(norms)[0]
        limits = {"max_length": room, "row_max_length": row_max_length, "row_min_length": row_min_length}
        products = self._engine.int8_weights.product if compiled and self._engine.int8_weights else None
        with self._weights.scope(), kernel_products(products):
            memory, state = model.encode(token_ids, room)
            if self._shortlist:
                limits["shortlist"] = self._shortlist.with_output(listed)
            arguments = {"n_best": self._n_best, "is_compiled": compiled} | self._fixed | limits
            result = search_by_options(model.step, memory, state, norms, self._options, **arguments)
        found = {name: value for name, value in result._asdict().items() if value is not None}
        if self._shortlist:
            found["token_ids"] = tf.gather(listed["token_ids"], found["token_ids"])
        return found


def search_by_options(
    step, memory, state, norms, options: ExportOptions, *, n_best: int, is_compiled: bool = False, **arguments
):
    """The `SearchResult` of greedy or beam search by the options of an export, with `norms` (L,)."""
    if options.is_greedy:
        return greedy_search(step, memory, state, normalization=norms, **arguments)
    arguments |= {name: getattr(options, name) for name in ("beam_size", "coverage_penalty", "early_stopping")}
    # Alignments are not for large requests, and each compaction of a batch makes the graph larger. XLA cannot compile
    # one where the graph leaves the number of rows open.
    if arguments["return_alignments"] or is_compiled:
        start = start_beam_search(step, memory, state, n_best=n_best, norms=norms, **arguments)
        return run_beam_search(*start, compactions=0)
    return beam_search(step, memory, state, n_best=n_best, normalization=norms, **arguments)


class RequestOptions(NamedTuple):
    """The search options that a request may set; scalars, where 0 means "not given" (None in `generate`)."""

    length_penalty: Any  # float64
    max_length: Any  # int32
    max_length_ratio: Any  # float64
    min_length: Any  # int32
    min_length_ratio: Any  # float64

    @classmethod
    def default(cls, options: ExportOptions) -> "RequestOptions":
        """The options of a request that sets none, as Python numbers."""
        return cls(
            float(options.length_penalty),
            options.max_length or 0,
            float(options.max_length_ratio or 0),
            options.min_length or 0,
            float(options.min_length_ratio or 0),
        )

    def constants(self, dtype: str = "float64") -> "RequestOptions":
        """Python numbers as tensors: int32, or of `dtype`."""
        return RequestOptions(*(tf.constant(value, "int32" if isinstance(value, int) else dtype) for value in self))

    def validated(self) -> "RequestOptions":
        """Tensors of a request, int32 and float32, as int32 and float64; values out of range are refused.

        In float32, 1.1 is 1.10000002, and ten times that would be rounded up to 12 tokens. So a float32 is read as the
        shortest decimal number that stands for it, as if it had come as a float64.
        """
        numbers, checks = [], []
        for name, value in self._asdict().items():
            number = value
            if value.dtype != tf.int32:
                number = tf.strings.to_number(tf.strings.as_string(value, shortest=True), tf.float64)
            is_valid = (number >= 0) & (tf.cast(number, "float64") < float("inf"))
            message = f"Expected {name} to be a number of at least 0. Received:"
            checks.append(tf.debugging.Assert(is_valid, [message, value]))
            numbers.append(number)
        with tf.control_dependencies(checks):
            return RequestOptions(*map(tf.identity, numbers))

    def limits(self, lengths: tf.Tensor, engine: Translator, most: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The longest and the shortest output for sources of these lengths, each `(R,)` int32 and at most `most`.

        `keras_attn.search.Limits` for tensors, in float64, as Python calculates.
        """
        sizes = tf.cast(lengths, "float64")  # (R,)
        nothing = tf.constant(float("inf"), "float64")
        counted = tf.minimum(sizes, tf.cast(engine.counted_source_length, "float64"))  # (R,)
        own = tf.math.ceil(engine.max_length_ratio * counted + engine.max_length_constant)  # (R,)
        by_length = tf.where(self.max_length > 0, tf.cast(self.max_length, "float64"), nothing)
        by_ratio = tf.math.ceil(self.max_length_ratio * sizes)  # (R,)
        by_ratio = tf.where(self.max_length_ratio > 0, by_ratio, nothing)  # (R,)
        longest = tf.minimum(by_length, by_ratio)  # (R,)
        longest = tf.where(tf.math.is_inf(longest), own, longest)  # (R,)
        shortest = tf.math.ceil(self.min_length_ratio * sizes)  # (R,)
        shortest = tf.maximum(tf.cast(self.min_length, "float64"), shortest)  # (R,)
        bounded = (tf.clip_by_value(x, tf.constant(1, "float64"), most) for x in (longest, shortest))
        return tuple(tf.cast(x, "int32") for x in bounded)


def max_output_length(engine: Translator, options: ExportOptions) -> int:
    """The longest output that any request can ask for: by the translator's ratio, and the export's own."""
    own = engine.limits(max_length=options.max_length, max_length_ratio=options.max_length_ratio)
    by_ratio = Limits(None, engine.max_length_ratio, engine.max_length_constant)
    longest = max(limits.longest(options.max_source_length) for limits in (by_ratio, own))
    return max(longest, options.max_length or 1)


class GraphShortlist:
    """The lexical shortlist of a batch inside a graph: `keras_attn.Shortlist.reduced` for tensors.

    With a sentence of the whole vocabulary all columns of the projection are copied, once for a batch, which then takes
    longer than without a shortlist.

    Args:
        shortlist: Of the translator.
        model: The model that searches in it.
        banned_token_ids: Target ids that are never produced.

    Attributes:
        candidates, always: Its ids as variables, `(source vocabulary, N)` and `(A,)`.
        arguments: Arguments of a search in it instead of the vocabulary's own ids: indices into the shortlist.
    """

    def __init__(self, shortlist: Shortlist, model: Seq2Seq, banned_token_ids: Sequence[int]):
        self.candidates = tf.Variable(shortlist.candidates, trainable=False, name="shortlist_candidates")
        self.always = tf.Variable(shortlist.always, trainable=False, name="shortlist_always")
        self._size, self._model = shortlist.target_vocabulary_size, model
        target = model.target_special_ids
        # First in every batch, so that their indices are numbers of the graph.
        self._first = list(dict.fromkeys([*target.all, *banned_token_ids]))
        self._own = len(target.all)
        indices = {name: None if i is None else self._first.index(i) for name, i in target.get_config().items()}
        banned = [self._first.index(i) for i in banned_token_ids]
        self.arguments = {"special_ids": replace(target, **indices), "banned_token_ids": banned}

    def with_output(self, listed: dict[str, tf.Tensor]) -> dict[str, Any]:
        """A shortlist as `beam_search` takes it, with its part of the output projection."""
        return listed | {"output": self._model.output_part(listed["token_ids"])}

    def __call__(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """The shortlist `(n,)` for source ids `(B, S)`, and the mask of the tokens that each sentence may have."""
        allowed = self._allowed(token_ids)  # (B, V)
        others = tf.reduce_any(allowed, axis=0) & ~tf.reduce_any(tf.one_hot(self._first, self._size, True, False), 0)
        others = tf.cast(tf.where(others)[:, 0], tf.int32)
        shortlist = tf.concat([self._first, others], axis=0)  # (n,)
        specials = tf.range(tf.size(shortlist)) < self._own  # (n,)
        return {
            "token_ids": shortlist,
            "allowed": tf.gather(allowed, shortlist, axis=1) | specials,  # (B, n)
        }

    def padded(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """The same, of one of the `compiled_shortlists` sizes: no sentence may have the tokens that fill it."""
        listed = self(token_ids)
        sizes, size = compiled_shortlists(self._size), tf.size(listed["token_ids"])
        more = tf.gather(sizes, _first_at_least(size, sizes)) - size
        return {
            "token_ids": tf.pad(listed["token_ids"], [[0, more]]),
            "allowed": tf.pad(listed["allowed"], [[0, 0], [0, more]]),
        }

    def _allowed(self, token_ids: tf.Tensor) -> tf.Tensor:
        """The tokens of each sentence, `(B, V)` bool: all of them if one of its tokens is not known."""
        reserved = tf.constant(sorted(self._model.source_special_ids.reserved), tf.int32)
        is_reserved = tf.reduce_any(token_ids[:, :, None] == reserved, axis=-1)  # (B, S)
        found = tf.gather(self.candidates, token_ids)  # (B, S, N)
        is_known = tf.reduce_any(found >= 0, axis=-1) | is_reserved  # (B, S)
        found = tf.where(is_reserved[:, :, None] | (found < 0), self._size, found)
        batch = tf.shape(token_ids)[0]
        rows = tf.broadcast_to(tf.range(batch)[:, None, None], tf.shape(found))
        indices = tf.reshape(tf.stack([rows, found], axis=-1), (-1, 2))  # (B * S * N, 2)
        counts = tf.scatter_nd(indices, tf.ones_like(indices[:, 0]), (batch, self._size + 1))[:, :-1]  # (B, V)
        always = tf.scatter_nd(self.always[:, None], tf.ones_like(self.always), (self._size,)) > 0  # (V,)
        return (counts > 0) | always | ~tf.reduce_all(is_known, axis=1, keepdims=True)


def compiled_rows(options: ExportOptions) -> list[int]:
    """1, 4, 8, 16, ..., `batch_size`: the numbers of rows for which XLA compiles."""
    return [1, *_doubled(4, options.batch_size)] if options.batch_size > 1 else [1]


def compiled_lengths(engine: Translator, options: ExportOptions) -> dict[int, int]:
    """The numbers of source tokens, end token included, for which XLA compiles, and for each the room of its outputs.

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


def compiled_shortlists(vocabulary_size: int) -> list[int]:
    """512, 1024, ..., the whole vocabulary: the numbers of tokens of a shortlist for which XLA compiles."""
    return _doubled(SHORTLIST_SIZE, vocabulary_size)


def _doubled(first: int, last: int) -> list[int]:
    """first, 2 * first, 4 * first, ..., last."""
    return [first, *_doubled(2 * first, last)] if first < last else [last]


def are_larger(rooms: dict[int, int], lengths: tf.Tensor, longest: tf.Tensor) -> tf.Tensor:
    """The mask of sources, by their lengths and longest outputs, that fit none of `compiled_lengths`."""
    return (lengths > max(rooms)) | (longest > max(rooms.values()))


def _first_at_least(size: tf.Tensor, sizes: list[int]) -> tf.Tensor:
    """The index of the first of rising `sizes` that is at least `size`."""
    return tf.searchsorted(tf.constant(sizes), size[None])[0]
