"""The signatures of a served search, as graphs: encode arrays, search in chunks of rows, decode the ids."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree

from keras_attn.export.options import ExportOptions
from keras_attn.export.saved_model import by_name
from keras_attn.export.search import search_by_options
from keras_attn.export.signatures import BEST_IDS, Served, best_ids, run_in_chunks, zero_padded
from keras_attn.export.tokenizers import graph_tokenizer, without_end
from keras_attn.models import Seq2Seq
from keras_attn.search import length_norm
from keras_attn.text import Tokenizer


class ServedSearch(Served):
    """The signatures of a model and its search; see `export_search`.

    Args:
        model: A `Seq2Seq`, on the TensorFlow backend.
        options: The options of the export.
        tokenizer: Of the target, or None.
    """

    def __init__(self, model: Seq2Seq, options: ExportOptions, tokenizer: Tokenizer | None):
        super().__init__(model, options)
        self._model, self._ids = model, model.target_special_ids
        self._source = {name: model.input[name] for name in model.source_names}
        self._tokenizer = self._saved.tokenizer = None if tokenizer is None else graph_tokenizer(tokenizer)
        best = self._traced(self._best)
        self.functions = {"serving_default": best, "search": best, "search_n_best": self._traced(self._n_best)}
        self._keep_variables()

    def _traced(self, function: Callable) -> Callable:
        specs = {name: tf.TensorSpec([None, *x.shape[1:]], x.dtype) for name, x in by_name(self._source).items()}
        return tf.function(lambda **inputs: function(inputs), autograph=False).get_concrete_function(**specs)

    def _best(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def chunk(rows):
            result = self._search(inputs, rows, n_best=1, return_alignments=False)
            found = best_ids(result._asdict())
            if self._tokenizer is not None:
                found["text"] = self._text(found["token_ids"], found["lengths"])
            return found

        return self._by_chunks(inputs, chunk, BEST_IDS, tf.TensorSpec((None,), tf.string))

    def _n_best(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        hypotheses = self._options.hypotheses

        def chunk(rows):
            result = self._search(inputs, rows, n_best=hypotheses, return_alignments=True)
            lengths = result.lengths  # (R, K)
            longest = tf.reduce_max(lengths)  # T
            ids = zero_padded(result.token_ids[:, :, :longest], lengths)  # (R, K, T)
            found = {"token_ids": ids, "lengths": lengths, "scores": result.scores}
            found |= {"alignments": result.alignments[:, :, :longest]}
            if self._tokenizer is not None:
                text = self._text(tf.reshape(ids, [-1, longest]), tf.reshape(lengths, [-1]))  # (R * K,)
                found["text"] = tf.reshape(text, tf.shape(lengths))
            return found

        specs = {
            "token_ids": tf.TensorSpec((None, hypotheses, None), tf.int32),
            "lengths": tf.TensorSpec((None, hypotheses), tf.int32),
            "scores": tf.TensorSpec((None, hypotheses), tf.float32),
            "alignments": tf.TensorSpec((None, hypotheses, None, None), tf.float32),
        }
        return self._by_chunks(inputs, chunk, specs, tf.TensorSpec((None, hypotheses), tf.string))

    def _search(self, inputs: dict[str, tf.Tensor], rows: tf.Tensor, n_best: int, return_alignments: bool) -> Any:
        model, options = self._model, self._options
        chosen = [tf.gather(inputs[name], rows) for name in by_name(self._source)]
        source = model.source_of(tree.pack_sequence_as(self._source, chosen))
        limits = {"max_length": options.max_length, "special_ids": self._ids, "return_alignments": return_alignments}
        limits |= {"no_repeat_ngram_size": options.no_repeat_ngram_size, "banned_token_ids": options.banned_tokens}
        if options.min_length is not None:
            limits["row_min_length"] = tf.fill(tf.shape(rows), options.min_length)  # (R,)
        lengths = np.arange(1, options.max_length + 1, dtype="float64")  # (L,)
        norms = length_norm(options.normalization, options.length_penalty, lengths).astype("float32")  # (L,)
        with self._weights.scope():
            memory, state = model.encode(source, options.max_length)
            return search_by_options(model.step, memory, state, norms, options, n_best=n_best, **limits)

    def _text(self, ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        return self._tokenizer.decode(without_end(ids, lengths, self._ids))

    def _by_chunks(self, inputs: dict[str, tf.Tensor], chunk: Callable, specs: dict, text: tf.TensorSpec) -> dict:
        if self._tokenizer is not None:
            specs = specs | {"text": text}
        ones = tf.ones(tf.shape(next(iter(inputs.values())))[:1], tf.int32)  # (B,)
        return run_in_chunks(ones, self._options.batch_size, self._options.batch_size, chunk, specs)
