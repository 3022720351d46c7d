"""Search as a function of a graph: the code that `generate` runs, with room for as many tokens as rows may have."""

from collections.abc import Callable

import tensorflow as tf

from keras_attn.decoding import beam_or_greedy
from keras_attn.search import length_norm
from keras_attn.serving.export.options import Options
from keras_attn.serving.export.quantized_weights import StoredWeights
from keras_attn.translator import Translator

INPUTS = [
    tf.TensorSpec((None, None), tf.int32),
    tf.TensorSpec((None,), tf.int32),
    tf.TensorSpec((None,), tf.int32),
    tf.TensorSpec((), tf.float64),
]


def finder(
    translator: Translator, options: Options, weights: StoredWeights, *, n_best: int, return_alignments: bool
) -> Callable:
    """One function of the graph, whoever calls it.

    It takes source ids `(R, S)`, longest and shortest outputs `(R,)` and the length penalty, and gives the dict of
    a `SearchResult` with N = n_best and L the longest output of all.
    """
    fixed = {"beam_size": options.beam_size, "n_best": n_best, "return_alignments": return_alignments}
    if return_alignments:
        fixed["halvings"] = 0  # not the signature of large requests, and every loop more makes the graph larger
    search = dict(options.search)
    normalization = search.pop("normalization", "gnmt")
    function, arguments = beam_or_greedy(fixed | search)
    model = translator.model

    def find(token_ids, row_max_length, row_min_length, length_penalty):
        # Not a room for the longest sentence there may be: what search writes into is copied at every step.
        room = tf.maximum(tf.reduce_max(row_max_length), search.get("no_repeat_ngram_size", 0))
        lengths = tf.cast(tf.range(1, room + 1), tf.float64)  # (L,)
        norms = tf.cast(length_norm(normalization, 1.0, lengths) ** length_penalty, tf.float32)  # (L,)
        with weights.scope():
            memory, state = model.encode(token_ids, room)
            found = function(
                model.step,
                memory,
                state,
                normalization=norms,
                max_length=room,
                row_max_length=row_max_length,
                row_min_length=row_min_length,
                **arguments,
            )
        return {name: value for name, value in found._asdict().items() if value is not None}

    # Concrete: of a tf.function the first caller and the others would get two.
    return tf.function(find, input_signature=INPUTS, autograph=False).get_concrete_function()
