"""Search as a graph function: the code that `generate` runs, with room for the longest output of its rows.

With `jit_compile` XLA compiles it for the few shapes of `compiled_shapes`, and other batches are searched without XLA.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_attn.backend import kernel_products
from keras_attn.search import beam_search, greedy_search, length_norm, run_beam_search, start_beam_search
from keras_attn.serving.export import compiled_shapes
from keras_attn.serving.export.graph_shortlist import GraphShortlist
from keras_attn.serving.export.options import ExportOptions
from keras_attn.serving.export.quantized_weights import QuantizedWeights

if TYPE_CHECKING:
    from keras_attn.translation import Translator

INPUTS = [
    tf.TensorSpec((None, None), tf.int32),
    tf.TensorSpec((None,), tf.int32),
    tf.TensorSpec((None,), tf.int32),
    tf.TensorSpec((), tf.float64),
]


def build_search(
    engine: "Translator",
    options: ExportOptions,
    weights: QuantizedWeights,
    *,
    banned_token_ids: Sequence[int],
    shortlist: GraphShortlist | None,
    n_best: int,
    return_alignments: bool,
) -> Callable:
    """Search as one function of the graph, which several signatures may call.

    It takes source ids `(R, S)`, maximum and minimum output lengths `(R,)` and the length penalty, and returns the
    dict of a `SearchResult` with N = n_best and L the longest output of all.
    """
    fixed = {
        "banned_token_ids": banned_token_ids,
        "no_repeat_ngram_size": options.no_repeat_ngram_size,
        "return_alignments": return_alignments,
        "special_ids": engine.model.target_special_ids,
    } | (shortlist.arguments if shortlist else {})
    beam = {
        "beam_size": options.beam_size,
        "n_best": n_best,
        "coverage_penalty": options.coverage_penalty,
        "early_stopping": options.early_stopping,
    }

    def search(step, memory, state, norms, compiled, **lengths):
        if options.is_greedy:
            return greedy_search(step, memory, state, normalization=norms, **fixed, **lengths)
        # Alignments are not for large requests, and each compaction of a batch makes the graph larger. XLA cannot
        # compile one where the graph leaves the number of rows open.
        if return_alignments or compiled:
            start = start_beam_search(step, memory, state, norms=norms, **beam, **fixed, **lengths)
            return run_beam_search(*start, compactions=0)
        return beam_search(step, memory, state, normalization=norms, **beam, **fixed, **lengths)

    def run_search(token_ids, row_max_length, row_min_length, norms, listed, compiled=False):
        room = tf.shape(norms)[0]
        limits = {"max_length": room, "row_max_length": row_max_length, "row_min_length": row_min_length}
        products = engine.int8_weights.product if compiled and engine.int8_weights else None
        with weights.scope(), kernel_products(products):
            memory, state = engine.model.encode(token_ids, room)
            if shortlist:
                limits["shortlist"] = shortlist.with_output(listed)
            result = search(engine.model.step, memory, state, norms, compiled, **limits)
        found = {name: value for name, value in result._asdict().items() if value is not None}
        if shortlist:
            found["token_ids"] = tf.gather(listed["token_ids"], found["token_ids"])
        return found

    def norms_of(room, length_penalty):
        lengths = tf.cast(tf.range(1, room + 1), tf.float64)  # (L,)
        return tf.cast(length_norm(options.normalization, 1.0, lengths) ** length_penalty, tf.float32)  # (L,)

    def search_rows(token_ids, row_max_length, row_min_length, length_penalty):
        # Not room for the longest output that the model may give: the buffers of search are copied at every step.
        room = tf.maximum(tf.reduce_max(row_max_length), options.no_repeat_ngram_size)
        listed = shortlist(token_ids) if shortlist else {}
        return run_search(token_ids, row_max_length, row_min_length, norms_of(room, length_penalty), listed)

    function = search_rows
    if options.jit_compile and not return_alignments:
        function = compiled_shapes.compiled(run_search, search_rows, norms_of, shortlist, engine, options)
    # Concrete, because a tf.function would be traced for its first caller and again for the others.
    return tf.function(function, input_signature=INPUTS, autograph=False).get_concrete_function()
