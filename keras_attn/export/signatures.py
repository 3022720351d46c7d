"""The signatures of a served translator, as graphs: repair the text, tokenize, search in chunks, join the tokens.

Search is one function of the graph, which all signatures share except `translate_n_best`: it returns alignments, and so
it has its own.
"""

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from keras_attn.export.options import ExportOptions
from keras_attn.export.search import (
    GraphSearch,
    GraphShortlist,
    QuantizedWeights,
    RequestOptions,
    are_larger,
    compiled_lengths,
    max_output_length,
)
from keras_attn.export.tokenizers import (
    GraphCopies,
    GraphTokenizer,
    encode_bytes,
    graph_tokenizer,
    known_ids,
    masked_rows,
    with_end,
    without_end,
)
from keras_attn.models import ScoreModel, Seq2Seq
from keras_attn.text import SpecialIds
from keras_attn.translation import Translator, token_ids_of

SCORE_TOKENS = 2048  # padded tokens scored at once, each with logits for the whole vocabulary


class Served:
    """Signatures of a model as graphs, `functions`, with the variables and tables that are saved with them."""

    functions: dict[str, Callable]

    def __init__(self, model: Seq2Seq, options: ExportOptions):
        self._options = options
        # The saved object tracks the tables and the captured variables themselves. If it tracked the Keras model,
        # every weight would be saved twice.
        self._saved = tf.Module()
        self._weights = self._saved.quantized_weights = QuantizedWeights(model, options.quantize)

    def _keep_variables(self) -> None:
        """Keeps the variables of `functions`, whose graphs have weak references to them."""
        concrete = [function for function in self.functions.values() if hasattr(function, "graph")]
        variables = [variable for function in concrete for variable in function.graph.variables]
        self._saved.weights = list({id(variable): variable for variable in variables}.values())

    def save(self, directory: str) -> None:
        """Writes `saved_model.pb` and `variables/`."""
        tf.saved_model.save(self._saved, directory, signatures=self.functions)


class ServedTranslator(Served):
    """The signatures of a translator; see `export_translator`.

    Args:
        engine: Model and tokenizers, on the TensorFlow backend.
        options: The options of the export.
    """

    def __init__(self, engine: Translator, options: ExportOptions):
        super().__init__(engine.model, options)
        self._engine = engine
        self._most = max_output_length(engine, options)
        self._source_ids, self._target_ids = engine.source_tokenizer.special_ids, engine.target_tokenizer.special_ids
        most = options.max_source_length
        self._max_source_length = min(most, engine.model.source_length or most)
        same = engine.source_tokenizer.fingerprint == engine.target_tokenizer.fingerprint
        self._source = self._saved.source_tokenizer = graph_tokenizer(engine.source_tokenizer)
        self._target = self._source if same else graph_tokenizer(engine.target_tokenizer)
        self._saved.target_tokenizer = self._target
        self._copies = None
        if engine.model.pointer and engine.target_tokenizer.level != "bpe":
            self._copies = GraphCopies(self._target, engine.target_tokenizer, self._max_source_length)
        self._read_source = self._reader(self._source, self._source_ids, self._max_source_length)
        cut = self._max_source_length < options.max_source_length  # the source alone, not its translation
        self._read_target = self._read_source
        if not same or cut:
            self._read_target = self._reader(self._target, self._target_ids, options.max_source_length)
        self._rooms = compiled_lengths(engine, options) if options.jit_compile else None
        self._scorer = ScoreModel(engine.model, return_alignments=False)
        banned = token_ids_of(engine.target_tokenizer, options.banned_tokens)
        shortlist = engine.shortlist and GraphShortlist(engine.shortlist, engine.model, banned)
        search = partial(GraphSearch, engine, options, self._weights, shortlist, banned)
        self._search_best = search(n_best=1, return_alignments=False).function
        self._search_n_best = search(n_best=options.hypotheses, return_alignments=True).function
        numbers = [tf.TensorSpec((), number.dtype) for number in self._default_request()]
        self._best = _traced(self._best_translations, _strings("text"), RequestOptions(*numbers))
        self.functions = self._signatures()
        self._keep_variables()

    def translate(self, text):
        return self._best(text, self._default_request())

    def translate_n_best(self, text):
        token_ids, blank = self._read_source(text, text)  # (B, (S)), (B,)
        words = self._copies and self._copies.words(text)  # (B, (S))
        hypotheses = self._options.hypotheses

        def chunk(rows):
            result = self._search(self._search_n_best, tf.gather(token_ids, rows), self._default_request())
            lengths = result["lengths"]  # (R, K)
            longest = tf.reduce_max(lengths)  # T
            ids = result["token_ids"][:, :, :longest]  # (R, K, T)
            own = None if words is None else tf.gather(words, rows)
            tokens = self._copies.tokens(ids, own) if self._copies else self._target.tokens(ids)  # (R, K, T)
            return {
                "translations": tf.reshape(self._text(result, own), tf.shape(lengths)),
                "scores": result["scores"],
                "target_tokens": tf.where(tf.sequence_mask(lengths, longest), tokens, ""),
                "target_lengths": lengths,
                "alignments": result["alignments"][:, :, :longest],  # (R, K, T, S)
            }

        specs = {
            "translations": tf.TensorSpec((None, hypotheses), tf.string),
            "scores": tf.TensorSpec((None, hypotheses), tf.float32),
            "target_tokens": tf.TensorSpec((None, hypotheses, None), tf.string),
            "target_lengths": tf.TensorSpec((None, hypotheses), tf.int32),
            "alignments": tf.TensorSpec((None, hypotheses, None, None), tf.float32),
        }
        outputs = self._by_chunks(token_ids, blank, chunk, specs)
        lengths = _lengths(token_ids, blank)  # (B,)
        padded = token_ids.to_tensor(self._source_ids.pad, shape=(None, None))  # (B, S)
        tokens = self._copies.tokens(padded, words) if self._copies else self._source.tokens(padded)  # (B, S)
        tokens = tf.where(tf.sequence_mask(lengths, tf.shape(padded)[1]), tokens, "")
        return outputs | {"source_tokens": tokens, "source_lengths": lengths}

    def translate_token_ids(self, token_ids, lengths):
        ids = token_ids  # (B, S)
        real = tf.sequence_mask(lengths, tf.shape(ids)[1])  # (B, S)
        for token_id in sorted(self._source_ids.reserved):
            real &= ids != token_id
        known = (ids >= 0) & (ids < self._engine.source_tokenizer.vocabulary_size)
        blank = ~tf.reduce_any(real, axis=1)  # (B,)
        unknown = -1 if self._source_ids.unknown is None else self._source_ids.unknown
        rows = masked_rows(tf.where(known, ids, unknown), real)  # (B, (S))
        rows = rows.with_flat_values(known_ids(rows.flat_values, self._source_ids))
        rows = with_end(rows, blank, self._max_source_length, self._source_ids)

        def chunk(chosen):
            return best_ids(self._search(self._search_best, tf.gather(rows, chosen), self._default_request()))

        return self._by_chunks(rows, blank, chunk, BEST_IDS, self._default_request())

    def score(self, source, target):
        source_ids, blank = self._read_source(source, source)  # (B, (S)), (B,)
        target_ids, empty = self._read_target(target, source)  # (B, (T)), (B,); a blank target is the end token alone

        def chunk(rows):
            inputs = {
                "encoder_token_ids": tf.gather(source_ids, rows).to_tensor(self._source_ids.pad, shape=(None, None)),
                "target_token_ids": tf.gather(target_ids, rows).to_tensor(self._target_ids.pad, shape=(None, None)),
            }
            with self._weights.scope():
                return {"log_prob": self._scorer.call(inputs)["log_probs"][:, 0]}

        longer = tf.maximum(_lengths(source_ids, blank), _lengths(target_ids, blank))  # (B,)
        specs = {"log_prob": tf.TensorSpec((None,), tf.float32)}
        outputs = run_in_chunks(longer, self._options.batch_size, SCORE_TOKENS, chunk, specs)  # (B,)
        no_end = self._target_ids.end is None
        lengths = _lengths(target_ids, empty if no_end else blank & empty)  # (B,)
        impossible = tf.math.logical_xor(blank, empty) if no_end else blank & ~empty  # (B,)
        return {"log_prob": tf.where(impossible, float("-inf"), outputs["log_prob"]), "lengths": lengths}

    def _signatures(self) -> dict[str, Callable]:
        # Defaults of a tf.function (not of a concrete one) that are tensors become those of the SignatureDef.
        numbers = RequestOptions.default(self._options).constants("float32")

        def translate_with_options(
            text,
            length_penalty=numbers.length_penalty,
            max_length=numbers.max_length,
            max_length_ratio=numbers.max_length_ratio,
            min_length=numbers.min_length,
            min_length_ratio=numbers.min_length_ratio,
        ):
            request = RequestOptions(length_penalty, max_length, max_length_ratio, min_length, min_length_ratio)
            return self._best(text, request.validated())

        text = _strings("text")
        scalars = [tf.TensorSpec((), number.dtype, name) for name, number in numbers._asdict().items()]
        ids = tf.TensorSpec((None, None), tf.int32, "token_ids"), tf.TensorSpec((None,), tf.int32, "lengths")
        translate = _traced(self.translate, text)
        return {
            "serving_default": translate,
            "translate": translate,
            "translate_n_best": _traced(self.translate_n_best, text),
            "translate_with_options": tf.function(
                translate_with_options, input_signature=[text, *scalars], autograph=False
            ),
            "translate_token_ids": _traced(self.translate_token_ids, *ids),
            "score": _traced(self.score, _strings("source"), _strings("target")),
        }

    def _best_translations(self, text, request):
        token_ids, blank = self._read_source(text, text)  # (B, (S)), (B,)
        words = self._copies and self._copies.words(text)  # (B, (S))

        def chunk(rows):
            result = self._search(self._search_best, tf.gather(token_ids, rows), request)
            own = None if words is None else tf.gather(words, rows)
            return {"translation": self._text(result, own), "score": result["scores"][:, 0]}

        specs = {"translation": _strings(None), "score": tf.TensorSpec((None,))}
        return self._by_chunks(token_ids, blank, chunk, specs, request)

    def _reader(self, tokenizer: GraphTokenizer, special_ids: SpecialIds, most: int) -> Callable:
        def reader(text, source):
            temporary = self._copies and partial(self._copies.temporary_ids, source=source)
            return encode_bytes(tokenizer, text, most, special_ids, temporary)

        return _traced(reader, _strings("text"), _strings("source"))

    def _default_request(self) -> RequestOptions:
        return RequestOptions.default(self._options).constants()

    def _search(self, search: Callable, token_ids, request: RequestOptions) -> dict:
        """Searches for source ids `(R, (S))`, none of them empty; returns the dict of a `SearchResult`."""
        longest, shortest = request.limits(token_ids.row_lengths(), self._engine, self._most)
        padded = token_ids.to_tensor(self._source_ids.pad, shape=(None, None))  # (R, S)
        return search(padded, longest, shortest, request.length_penalty)

    def _text(self, result: dict, words=None):
        """The text `(R * N,)` of all hypotheses."""
        shape = [-1, tf.shape(result["token_ids"])[-1]]
        found = tf.reshape(result["token_ids"], shape), tf.reshape(result["lengths"], [-1]), self._target_ids
        if words is None:
            return self._target.decode(without_end(*found))
        tokens = tf.reshape(self._copies.tokens(result["token_ids"], words), shape)  # (R * N, L)
        return self._target.join(without_end(*found, tokens))

    def _by_chunks(self, token_ids, blank, function: Callable, specs: dict, request=None) -> dict:
        """The outputs of all chunks.

        With the request of a search that may be compiled, rows that fit no compiled shape are apart from others: so the
        precision, which may be int8 in a compiled search, does not depend on batch mates.
        """
        lengths, apart = _lengths(token_ids, blank), None
        if request is not None and self._rooms:
            longest, _ = request.limits(lengths, self._engine, self._most)
            apart = are_larger(self._rooms, lengths, longest)
        limits = self._options.batch_size, self._options.tokens_per_batch
        return run_in_chunks(lengths, *limits, function, specs, apart)


BEST_IDS = {
    "token_ids": tf.TensorSpec((None, None), tf.int32),
    "lengths": tf.TensorSpec((None,), tf.int32),
    "score": tf.TensorSpec((None,), tf.float32),
}


def best_ids(result: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The outputs `BEST_IDS` of the dict of a `SearchResult`: the best hypotheses."""
    lengths = result["lengths"][:, 0]  # (R,)
    ids = result["token_ids"][:, 0, : tf.reduce_max(lengths)]  # (R, T)
    return {"token_ids": zero_padded(ids, lengths), "lengths": lengths, "score": result["scores"][:, 0]}


def zero_padded(ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Ids `(..., T)` of these lengths, padded with 0, as in every signature."""
    return tf.where(tf.sequence_mask(lengths, tf.shape(ids)[-1]), ids, 0)


def run_in_chunks(
    lengths: tf.Tensor,
    batch_size: int,
    tokens_per_batch: int,
    function: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    specs: dict[str, tf.TensorSpec],
    apart: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Calls `function` for one chunk of rows after another and returns its outputs in the order of the rows.

    Rows of similar lengths share a chunk, longest first. So memory is bounded, apart from that of the answer itself;
    one long line among short ones costs them little; and a single sentence is a single chunk.

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
        placed = {name: _placed(old, rows, chunk[name]) for name, old in outputs.items()}
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


def _placed(old: tf.Tensor, rows: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """`old` (B, ...) with `rows` (R,) replaced by `new` (R, ...), both padded to the longer axes."""
    if old.shape.rank > 1:
        size = tf.maximum(tf.shape(old)[1:], tf.shape(new)[1:])
        old, new = _padded(old, size), _padded(new, size)
    return tf.tensor_scatter_nd_update(old, rows[:, None], new)


def _padded(x: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    after = tf.concat([[0], size - tf.shape(x)[1:]], axis=0)
    return tf.pad(x, tf.stack([tf.zeros_like(after), after], axis=1))


def _traced(function: Callable, *specs) -> Callable:
    """A concrete function: saving would trace another one once more.

    No autograph: no Python condition depends on a tensor, and its conversion would take most of the time.
    """
    return tf.function(function, input_signature=specs, autograph=False).get_concrete_function()


def _strings(name: str | None) -> tf.TensorSpec:
    return tf.TensorSpec((None,), tf.string, name=name)


def _lengths(rows: tf.RaggedTensor, blank: tf.Tensor) -> tf.Tensor:
    return tf.where(blank, 0, tf.cast(rows.row_lengths(), tf.int32))  # (B,)
