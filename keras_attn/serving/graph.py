"""A translator as one function of a batch of strings, to be saved: repair, tokenize, search, join.

It holds the `Translator`'s own search model, so the graph is traced from the code that `generate` runs. As in
`generate`, sentences are sorted by length and searched in chunks of bounded size. So a request of any size
takes bounded memory, one long line among short ones costs them little, and one sentence is one chunk.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_attn.search_models import SearchModel, beam_or_greedy
from keras_attn.serving.options import Options
from keras_attn.serving.text import GraphTokenizer, graph_tokenizer, is_blank, repair, without_end
from keras_attn.tokenizer import END_ID, PAD_ID
from keras_attn.translator import Translator

USUAL_LENGTH = 64  # source tokens; longer sentences are searched by a second copy of the loop


class ServedTranslator:
    """The signatures of a translator as graphs, and what they need to be saved.

    Attributes:
        functions: dict of concrete functions by signature: "serving_default".
    """

    def __init__(self, translator: Translator, options: Options):
        # What the saved object reaches: tables and the captured variables themselves. Reached through the
        # Keras model, every weight would be saved a second time.
        self._saved = tf.Module(name="translator")
        same = translator.source_tokenizer.fingerprint == translator.target_tokenizer.fingerprint
        source = self._saved.source_tokenizer = graph_tokenizer(translator.source_tokenizer)
        target = self._saved.target_tokenizer = source if same else graph_tokenizer(translator.target_tokenizer)
        chunk = _chunk_function(translator, target, options)
        translate = _translate_function(chunk, source, options)
        text = tf.TensorSpec((None,), tf.string, name="text")
        # No Python condition hangs on a tensor here, and autograph alone would take most of the time.
        functions = {"serving_default": tf.function(translate, input_signature=[text], autograph=False)}
        self.functions = {name: function.get_concrete_function() for name, function in functions.items()}
        variables = [variable for function in self.functions.values() for variable in function.graph.variables]
        self._saved.weights = list({id(variable): variable for variable in variables}.values())

    def save(self, directory: str) -> None:
        """Writes `saved_model.pb` and `variables/`."""
        tf.saved_model.save(self._saved, directory, signatures=self.functions)


def source_limits(translator: Translator, options: Options) -> np.ndarray:
    """The longest output in tokens of a source of n tokens, n = 0, 1, ... `(max_source_length + 1,)` int32.

    A table, made by the translator itself: no rounding of ours can differ from Python's.
    """
    lengths = range(options.max_source_length + 1)
    limits = translator.limits(max_length=options.max_length)
    return np.array([limits.longest(length) for length in lengths], "int32")


def _search(translator: Translator, max_length: int, options: Options) -> SearchModel:
    """What `generate` runs, for outputs of at most `max_length` tokens."""
    fixed = {"beam_size": options.beam_size, "n_best": 1, "length_penalty": options.length_penalty}
    fixed["halvings"] = 0  # requests are small, and every loop more makes the graph larger and slower to load
    function, arguments = beam_or_greedy({**fixed, "return_alignments": False, **options.search})
    return SearchModel(translator.model, function, max_length, **arguments)


def _chunk_function(translator: Translator, target_tokenizer: GraphTokenizer, options: Options) -> Callable:
    limits = source_limits(translator, options)  # (S + 1,)
    longest, usual = int(limits.max()), int(limits[: USUAL_LENGTH + 1].max())
    searches = [_search(translator, length, options) for length in (usual, longest)]

    def chunk(token_ids):
        """Source ids `(R, (S))`, none of them empty -> text (R,), score (R,)."""
        row_max_length = tf.gather(limits, token_ids.row_lengths())  # (R,)
        inputs = {"encoder_token_ids": token_ids.to_tensor(PAD_ID), "row_max_length": row_max_length}

        def find(search):
            found = search.call(inputs)
            best = without_end(found["token_ids"][:, 0], found["lengths"][:, 0])  # (R, (T))
            return target_tokenizer.decode(best), found["scores"][:, 0]

        if usual == longest:
            return find(searches[0])
        # A search writes into buffers of a fixed length and copies them at every step: those of the longest
        # sentence would make usual ones slower by a third.
        return tf.cond(tf.reduce_max(row_max_length) <= usual, *(lambda s=s: find(s) for s in searches))

    return chunk


def _translate_function(chunk: Callable, source_tokenizer: GraphTokenizer, options: Options) -> Callable:
    def translate(text):
        text = repair(text)
        token_ids = source_tokenizer.encode(text)  # (B, (S))
        blank = is_blank(text) | (token_ids.row_lengths() == 0)  # (B,)
        token_ids = token_ids[:, : options.max_source_length - 1]
        token_ids = tf.concat([token_ids, tf.fill((tf.size(text), 1), END_ID)], axis=1)
        lengths = tf.where(blank, 0, tf.cast(token_ids.row_lengths(), "int32"))  # (B,)
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)  # (B,), blank rows last
        count = tf.math.count_nonzero(lengths, dtype="int32")

        def body(start, translation, score):
            room = options.tokens_per_batch // lengths[order[start]]
            room = tf.clip_by_value(room, 1, options.batch_size)
            end = tf.minimum(start + room, count)
            rows = order[start:end]  # (R,)
            texts, scores = chunk(tf.gather(token_ids, rows))
            translation = tf.tensor_scatter_nd_update(translation, rows[:, None], texts)
            score = tf.tensor_scatter_nd_update(score, rows[:, None], scores)
            return end, translation, score

        nothing = tf.constant(0), tf.fill(tf.shape(text), ""), tf.zeros(tf.shape(text))
        # One chunk at a time: the next could start before this one ends, and would take its own memory.
        _, translation, score = tf.while_loop(lambda start, *_: start < count, body, nothing, parallel_iterations=1)
        return {"translation": translation, "score": score}

    return translate
