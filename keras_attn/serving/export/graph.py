"""A translator as functions of batches, to be saved: repair, tokenize, search, join.

The search is one function of the graph, which the signatures share (but for `translate_n_best`, which keeps
alignments and so has its own).
"""

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from keras_attn.decoding import ScoreModel
from keras_attn.serving.export import length_limits as limits
from keras_attn.serving.export.chunking import by_chunks
from keras_attn.serving.export.graph_optimization import merge_constants
from keras_attn.serving.export.graph_tokenizer import GraphTokenizer, closed, graph_tokenizer, kept, read, without_end
from keras_attn.serving.export.options import Options
from keras_attn.serving.export.quantized_weights import StoredWeights
from keras_attn.serving.export.search_function import finder
from keras_attn.text import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_attn.translator import Translator

SCORE_TOKENS = 2048  # padded tokens scored at once: each has the logits of the whole vocabulary


def _strings(name: str) -> tf.TensorSpec:
    return tf.TensorSpec((None,), tf.string, name=name)


def _lengths(rows: tf.RaggedTensor, blank: tf.Tensor) -> tf.Tensor:
    return tf.where(blank, 0, tf.cast(rows.row_lengths(), tf.int32))  # (B,)


class ServedTranslator:
    """The signatures of a translator as graphs, and what they need to be saved.

    Attributes:
        functions: dict by signature, as `tf.saved_model.save` takes them; `keras_attn.serving.export_translator`
            describes them.
    """

    def __init__(self, translator: Translator, options: Options):
        self._translator, self._options = translator, options
        self._most = limits.most_tokens(translator, options)
        # What the saved object reaches: tables and the captured variables themselves. Reached through the
        # Keras model, every weight would be saved a second time.
        self._saved = tf.Module(name="translator")
        same = translator.source_tokenizer.fingerprint == translator.target_tokenizer.fingerprint
        self._source = self._saved.source_tokenizer = graph_tokenizer(translator.source_tokenizer)
        self._target = self._source if same else graph_tokenizer(translator.target_tokenizer)
        self._saved.target_tokenizer = self._target
        self._weights = self._saved.stored_weights = StoredWeights(translator.model, options.quantize)
        self._read_source = self._reader(self._source)
        self._read_target = self._read_source if same else self._reader(self._target)
        self._scorer = ScoreModel(translator.model, return_alignments=False)
        parts = translator, options, self._weights
        self._find = finder(*parts, n_best=1, return_alignments=False)
        self._find_n_best = finder(*parts, n_best=options.hypotheses, return_alignments=True)
        # No Python condition hangs on a tensor here, and autograph alone would take most of the time.
        numbers = [tf.TensorSpec((), number.dtype) for number in self._exported()]
        specs = [_strings("text"), limits.Request(*numbers)]
        self._best = tf.function(
            self._best_translations, input_signature=specs, autograph=False
        ).get_concrete_function()
        self.functions = self._signatures()
        concrete = [f for f in self.functions.values() if f is not self.functions["translate_with_options"]]
        variables = [variable for function in concrete for variable in function.graph.variables]
        self._saved.weights = list({id(variable): variable for variable in variables}.values())

    def save(self, directory: str) -> None:
        """Writes `saved_model.pb` and `variables/`."""
        tf.saved_model.save(self._saved, directory, signatures=self.functions)
        merge_constants(Path(directory))

    def translate(self, text):
        return self._best(text, self._exported())

    def translate_n_best(self, text):
        token_ids, blank = self._read_source(text)  # (B, (S)), (B,)
        hypotheses = self._options.hypotheses

        def work(rows):
            found = self._search(self._find_n_best, tf.gather(token_ids, rows), self._exported())
            lengths = found["lengths"]  # (R, K)
            longest = tf.reduce_max(lengths)  # T
            ids = found["token_ids"][:, :, :longest]  # (R, K, T)
            tokens = self._target.tokens(ids)  # (R, K, T)
            return {
                "translations": tf.reshape(self._text(found), tf.shape(lengths)),
                "scores": found["scores"],
                "target_tokens": tf.where(tf.sequence_mask(lengths, longest), tokens, ""),
                "target_lengths": lengths,
                "alignments": found["alignments"][:, :, :longest],  # (R, K, T, S)
            }

        specs = {
            "translations": tf.TensorSpec((None, hypotheses), tf.string),
            "scores": tf.TensorSpec((None, hypotheses), tf.float32),
            "target_tokens": tf.TensorSpec((None, hypotheses, None), tf.string),
            "target_lengths": tf.TensorSpec((None, hypotheses), tf.int32),
            "alignments": tf.TensorSpec((None, hypotheses, None, None), tf.float32),
        }
        found = self._by_chunks(token_ids, blank, work, specs)
        lengths = _lengths(token_ids, blank)  # (B,)
        padded = token_ids.to_tensor(PAD_ID, shape=(None, None))  # (B, S)
        tokens = tf.where(tf.sequence_mask(lengths, tf.shape(padded)[1]), self._source.tokens(padded), "")
        return found | {"source_tokens": tokens, "source_lengths": lengths}

    def translate_token_ids(self, token_ids, lengths):
        ids = token_ids  # (B, S)
        real = tf.sequence_mask(lengths, tf.shape(ids)[1])  # (B, S)
        real &= (ids != PAD_ID) & (ids != START_ID) & (ids != END_ID)
        known = (ids >= 0) & (ids < self._translator.source_tokenizer.vocabulary_size)
        blank = ~tf.reduce_any(real, axis=1)  # (B,)
        rows = kept(tf.where(known, ids, UNKNOWN_ID), real)  # (B, (S))
        rows = closed(rows, blank, self._options.max_source_length)

        def work(chosen):
            found = self._search(self._find, tf.gather(rows, chosen), self._exported())
            lengths = found["lengths"][:, 0]  # (R,)
            ids = found["token_ids"][:, 0, : tf.reduce_max(lengths)]  # (R, T)
            return {"token_ids": ids, "lengths": lengths, "score": found["scores"][:, 0]}

        specs = {"token_ids": tf.TensorSpec((None, None), tf.int32), "lengths": tf.TensorSpec((None,), tf.int32)}
        return self._by_chunks(rows, blank, work, specs | {"score": tf.TensorSpec((None,), tf.float32)})

    def score(self, source, target):
        source_ids, blank = self._read_source(source)  # (B, (S)), (B,)
        target_ids, empty = self._read_target(target)  # (B, (T)), (B,); of a blank target the end token alone

        def work(rows):
            inputs = {
                "encoder_token_ids": tf.gather(source_ids, rows).to_tensor(PAD_ID, shape=(None, None)),
                "target_token_ids": tf.gather(target_ids, rows).to_tensor(PAD_ID, shape=(None, None)),
            }
            with self._weights.scope():
                return {"log_prob": self._scorer.call(inputs)["log_probs"][:, 0]}

        longer = tf.maximum(_lengths(source_ids, blank), _lengths(target_ids, blank))  # (B,)
        specs = {"log_prob": tf.TensorSpec((None,), tf.float32)}
        found = by_chunks(longer, self._options.batch_size, SCORE_TOKENS, work, specs)["log_prob"]  # (B,)
        lengths = _lengths(target_ids, blank & empty)  # (B,)
        return {"log_prob": tf.where(blank & ~empty, float("-inf"), found), "lengths": lengths}

    def _signatures(self) -> dict[str, Callable]:
        def signature(function, *specs):
            return tf.function(function, input_signature=specs, autograph=False)

        def traced(function, *specs):  # now, for saving would trace it once more
            return signature(function, *specs).get_concrete_function()

        text, said = _strings("text"), limits.exported(self._options)
        # What a tf.function (not a concrete one) has as defaults, if they are tensors, a SignatureDef has as its own.
        numbers = {n: tf.constant(v, tf.int32 if isinstance(v, int) else tf.float32) for n, v in said._asdict().items()}

        def translate_with_options(
            text,
            length_penalty=numbers["length_penalty"],
            max_length=numbers["max_length"],
            max_length_ratio=numbers["max_length_ratio"],
            min_length=numbers["min_length"],
            min_length_ratio=numbers["min_length_ratio"],
        ):
            request = limits.Request(length_penalty, max_length, max_length_ratio, min_length, min_length_ratio)
            return self._best(text, limits.checked(request))

        scalars = [tf.TensorSpec((), number.dtype, name) for name, number in numbers.items()]
        ids = tf.TensorSpec((None, None), tf.int32, "token_ids"), tf.TensorSpec((None,), tf.int32, "lengths")
        translate = traced(self.translate, text)
        return {
            "serving_default": translate,
            "translate": translate,
            "translate_n_best": traced(self.translate_n_best, text),
            "translate_with_options": signature(translate_with_options, text, *scalars),
            "translate_token_ids": traced(self.translate_token_ids, *ids),
            "score": traced(self.score, _strings("source"), _strings("target")),
        }

    def _best_translations(self, text, request):
        token_ids, blank = self._read_source(text)  # (B, (S)), (B,)

        def work(rows):
            found = self._search(self._find, tf.gather(token_ids, rows), request)
            return {"translation": self._text(found), "score": found["scores"][:, 0]}

        return self._by_chunks(token_ids, blank, work, {"translation": _strings(None), "score": tf.TensorSpec((None,))})

    def _reader(self, tokenizer: GraphTokenizer) -> Callable:
        def reader(text):
            return read(tokenizer, text, self._options.max_source_length)

        return tf.function(reader, input_signature=[_strings("text")], autograph=False).get_concrete_function()

    def _exported(self) -> limits.Request:
        return limits.constants(limits.exported(self._options))

    def _search(self, find: Callable, token_ids, request: limits.Request) -> dict:
        """Source ids `(R, (S))`, none of them empty -> the dict of a `SearchResult`."""
        longest, shortest = limits.row_limits(token_ids.row_lengths(), request, self._translator, self._most)
        return find(token_ids.to_tensor(PAD_ID, shape=(None, None)), longest, shortest, request.length_penalty)

    def _text(self, found: dict):
        """The text `(R * N,)` of all hypotheses."""
        token_ids = tf.reshape(found["token_ids"], [-1, tf.shape(found["token_ids"])[-1]])  # (R * N, L)
        return self._target.decode(without_end(token_ids, tf.reshape(found["lengths"], [-1])))

    def _by_chunks(self, token_ids, blank, work: Callable, specs: dict) -> dict:
        options = self._options
        return by_chunks(_lengths(token_ids, blank), options.batch_size, options.tokens_per_batch, work, specs)
