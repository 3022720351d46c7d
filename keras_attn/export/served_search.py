"""The signatures of a served search, as graphs: encode arrays, search in chunks of rows, decode the ids."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import tree

from keras_attn.export.options import ExportOptions
from keras_attn.export.search import QuantizedWeights
from keras_attn.export.signatures import run_in_chunks
from keras_attn.export.tokenizers import graph_tokenizer, without_end
from keras_attn.models import Seq2Seq
from keras_attn.search import beam_search, greedy_search, length_norm, run_beam_search, start_beam_search
from keras_attn.text import Tokenizer


class ServedSearch:
    """The signatures of a model and its search, with the variables and tables that are saved with them.

    Args:
        model: A `Seq2Seq`, on the TensorFlow backend.
        options: The options of the export.
        tokenizer: Of the target, or None.

    Attributes:
        functions: dict of a graph function for each signature; see `export_search`.
    """

    def __init__(self, model: Seq2Seq, options: ExportOptions, tokenizer: Tokenizer | None):
        self._model, self._options, self._ids = model, options, model.target_special_ids
        self._source = {name: model.input[name] for name in model.source_names}
        self._saved = tf.Module(name="search")  # not the model, whose weights would be saved twice
        self._weights = self._saved.quantized_weights = QuantizedWeights(model, options.quantize)
        self._tokenizer = self._saved.tokenizer = None if tokenizer is None else graph_tokenizer(tokenizer)
        best = self._traced(self._best)
        self.functions = {"serving_default": best, "search": best, "search_n_best": self._traced(self._n_best)}
        variables = [variable for function in self.functions.values() for variable in function.graph.variables]
        self._saved.weights = list({id(variable): variable for variable in variables}.values())

    def save(self, directory: str) -> None:
        """Writes `saved_model.pb` and `variables/`."""
        tf.saved_model.save(self._saved, directory, signatures=self.functions)

    def _traced(self, function: Callable) -> Callable:
        specs = {
            "_".join(map(str, path)): tf.TensorSpec([None, *x.shape[1:]], x.dtype)
            for path, x in tree.flatten_with_path(self._source)
        }
        return tf.function(lambda **inputs: function(inputs), autograph=False).get_concrete_function(**specs)

    def _best(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def chunk(rows):
            result = self._search(inputs, rows, n_best=1, return_alignments=False)
            lengths = result.lengths[:, 0]  # (R,)
            ids = self._padded(result.token_ids[:, 0, : tf.reduce_max(lengths)], lengths)  # (R, T)
            found = {"token_ids": ids, "lengths": lengths, "score": result.scores[:, 0]}
            return found if self._tokenizer is None else found | {"text": self._text(ids, lengths)}

        specs = {"token_ids": tf.TensorSpec((None, None), tf.int32), "lengths": tf.TensorSpec((None,), tf.int32)}
        specs |= {"score": tf.TensorSpec((None,), tf.float32)}
        return self._by_chunks(inputs, chunk, specs, tf.TensorSpec((None,), tf.string))

    def _n_best(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        hypotheses = self._options.hypotheses

        def chunk(rows):
            result = self._search(inputs, rows, n_best=hypotheses, return_alignments=True)
            lengths = result.lengths  # (R, K)
            longest = tf.reduce_max(lengths)  # T
            ids = self._padded(result.token_ids[:, :, :longest], lengths)  # (R, K, T)
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
        chosen = [tf.gather(inputs["_".join(map(str, path))], rows) for path, _ in tree.flatten_with_path(self._source)]
        source = model.source_of(tree.pack_sequence_as(self._source, chosen))
        limits = {"max_length": options.max_length, "special_ids": self._ids, "return_alignments": return_alignments}
        limits |= {name: getattr(options, name) for name in ("no_repeat_ngram_size",)}
        limits["banned_token_ids"] = options.banned_tokens
        if options.min_length is not None:
            limits["row_min_length"] = tf.fill(tf.shape(rows), options.min_length)  # (R,)
        norm = {"normalization": options.normalization, "length_penalty": options.length_penalty}
        beam = {name: getattr(options, name) for name in ("beam_size", "coverage_penalty", "early_stopping")}
        with self._weights.scope():
            memory, state = model.encode(source, options.max_length)
            if options.is_greedy:
                return greedy_search(model.step, memory, state, **norm, **limits)
            if not return_alignments:
                return beam_search(model.step, memory, state, n_best=n_best, **beam, **norm, **limits)
            # Alignments are not for large requests, and each compaction of a batch makes the graph larger.
            lengths = tf.range(1, options.max_length + 1, dtype="float32")  # (L,)
            norms = length_norm(options.normalization, options.length_penalty, lengths)
            start = start_beam_search(model.step, memory, state, n_best=n_best, norms=norms, **beam, **limits)
            return run_beam_search(*start, compactions=0)

    def _padded(self, ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Ids padded with 0, as in every signature."""
        return ids if self._ids.pad == 0 else tf.where(tf.sequence_mask(lengths, tf.shape(ids)[-1]), ids, 0)

    def _text(self, ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        return self._tokenizer.decode(without_end(ids, lengths, self._ids))

    def _by_chunks(self, inputs: dict[str, tf.Tensor], chunk: Callable, specs: dict, text: tf.TensorSpec) -> dict:
        if self._tokenizer is not None:
            specs = specs | {"text": text}
        ones = tf.ones(tf.shape(next(iter(inputs.values())))[:1], tf.int32)  # (B,)
        return run_in_chunks(ones, self._options.batch_size, self._options.batch_size, chunk, specs)
