"""Tokenizers as TensorFlow graphs, with the same ids and text as `keras_attn.Tokenizer` for any bytes.

The Python API takes `str`, a server takes bytes. **Bytes that are not UTF-8 are read as by
`bytes.decode("utf-8", errors="replace")`**: each truncated character and each byte that starts no character becomes one
U+FFFD. Everything else is unchanged, including control characters, NUL and byte order marks.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_attn.text import BLANKS, LETTERS, SpecialIds, Tokenizer


def graph_tokenizer(tokenizer: Tokenizer) -> "GraphTokenizer":
    """The graph version of a `Tokenizer` of any level but "hugging_face", which `export_translator` refuses."""
    return _Words(tokenizer) if tokenizer.sentencepiece_model is None else _Pieces(tokenizer)


def repair(text: tf.Tensor) -> tf.Tensor:
    """Any bytes `(B,)` as valid UTF-8 `(B,)`, as `bytes.decode("utf-8", errors="replace")` reads them."""
    # ICU and Python place replacements alike, also for surrogates and overlong forms; tested.
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


def is_blank(text: tf.Tensor) -> tf.Tensor:
    """The mask `(B,)` of valid UTF-8 that consists of `BLANKS` only."""
    blanks = "".join(f"\\x{{{ord(character):X}}}" for character in BLANKS)
    return tf.strings.regex_full_match(text, f"[{blanks}]*")


class GraphTokenizer(tf.Module):
    """Text to ids and back, inside a graph. A `tf.Module`, so that the saved object tracks its tables.

    Subclasses have `encode`, valid UTF-8 `(B,)` to int32 ids `(B, (T))` without start and end tokens, and `decode`, ids
    that are none of pad, start and end, to text `(B,)`. The vocabulary is stored once, however many functions use it.
    """

    def __init__(self, tokenizer: Tokenizer, name: str):
        super().__init__(name=name)
        entries = [token.encode() for token in tokenizer.vocabulary]

        def tokens(token_ids):
            return tf.gather(tf.constant(entries), token_ids)

        ids = tf.TensorSpec(None, tf.int32)
        self.tokens = tf.function(tokens, input_signature=[ids], autograph=False).get_concrete_function()


@contextlib.contextmanager
def without_sentencepiece_log():
    """Keeps a line off stderr that tensorflow-text's SentencePiece writes for each model; no variable turns it off."""
    with tempfile.TemporaryFile() as log:
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            log.seek(0)
            os.write(2, b"".join(line for line in log if b"precompiled_charsmap is empty" not in line))


class _Pieces(GraphTokenizer):
    """The level "bpe": tensorflow-text's SentencePiece, which the stock server links. It gives the ids of Python's."""

    def __init__(self, tokenizer: Tokenizer):
        import tensorflow_text  # here, because the other levels need no op but TensorFlow's

        super().__init__(tokenizer, name="pieces")
        model = tokenizer.sentencepiece_model
        # A loaded graph finds the resource by the name of the op: with equal names, two models would both be the first.
        name = f"sentencepiece_{hashlib.sha256(model).hexdigest()[:16]}"
        with without_sentencepiece_log():
            self._tokenizer = tensorflow_text.SentencepieceTokenizer(model=model, out_type=tf.int32, name=name)

    def encode(self, text):
        return self._tokenizer.tokenize(text)

    def decode(self, token_ids):
        return self._tokenizer.detokenize(token_ids)


class _Words(GraphTokenizer):
    """The levels "word", "symbol", "character" and "letter": TensorFlow's own ops, and tensorflow-text's for Unicode.

    Code points are mapped by the tokenizer's character table, because `tf.strings.lower` and the classes of RE2
    differ from Python's.
    """

    def __init__(self, tokenizer: Tokenizer):
        super().__init__(tokenizer, name="words")
        table = {code: -1 if other is None else other for code, other in tokenizer.character_table.items()}
        self._deletes = -1 in table.values()
        pairs = sorted(table.items())
        self._characters = np.array(pairs, "int32").reshape(-1, 2).T  # (2, C): keys, values
        self._separator = tokenizer.separator
        self._tokenizer = tokenizer
        self._table = None

    def encode(self, text):
        words = self.cut(text)  # (B, (T))
        return words.with_flat_values(self._lookup(words.flat_values))

    def cut(self, text):
        """Valid UTF-8 `(B,)` to words `(B, (T))`, one for each id; unknown ones keep their letters."""
        if form := self._tokenizer.unicode_form:
            import tensorflow_text

            text = tensorflow_text.normalize_utf8(text, form)
        codes = tf.strings.unicode_decode(text, "UTF-8")  # (B, (C))
        codes = codes.with_flat_values(self._mapped(codes.flat_values))
        if self._deletes:
            codes = tf.ragged.boolean_mask(codes, codes >= 0)
        if not self._separator:
            # One string for each code point.
            characters = tf.strings.unicode_encode(codes.flat_values[:, None], "UTF-8")
            return codes.with_flat_values(characters)
        text = tf.strings.unicode_encode(codes, "UTF-8")  # (B,)
        if self._tokenizer.level == "letter":
            text = tf.strings.regex_replace(text, f"({LETTERS})", r"\1 ")
        words = tf.strings.split(text, self._separator)  # (B, (T)), empty between two blanks
        return tf.ragged.boolean_mask(words, words != "")

    def decode(self, token_ids):
        return self.join(token_ids.with_flat_values(self.tokens(token_ids.flat_values)))

    def join(self, words):
        """Words `(B, (T))` to text `(B,)`."""
        return tf.strings.reduce_join(words, axis=-1, separator=self._separator)

    def _lookup(self, tokens):
        special = self._tokenizer.special_ids
        if self._table is None:  # made on first use: the target tokenizer may only decode
            ids = special.ordinary(self._tokenizer.vocabulary_size)
            known = [self._tokenizer.vocabulary[token_id].encode() for token_id in ids]
            with tf.init_scope():
                initializer = tf.lookup.KeyValueTensorInitializer(known, ids, tf.string, tf.int32)
                self._table = tf.lookup.StaticHashTable(initializer, -1 if special.unknown is None else special.unknown)
        return known_ids(self._table.lookup(tokens), special)

    def _mapped(self, codes):
        keys, values = self._characters
        if not len(keys):
            return codes
        place = tf.minimum(tf.searchsorted(keys, codes), len(keys) - 1)
        return tf.where(tf.gather(keys, place) == codes, tf.gather(values, place), codes)


def known_ids(token_ids: tf.Tensor, special_ids: SpecialIds) -> tf.Tensor:
    """The ids as they are, if the vocabulary has an unknown token; else the request fails where one is negative."""
    if special_ids.unknown is not None:
        return token_ids
    message = "Expected tokens of the vocabulary, because it has no unknown token."
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(token_ids >= 0), [message])]):
        return tf.identity(token_ids)


def encode_bytes(
    tokenizer: GraphTokenizer, text: tf.Tensor, most: int, special_ids: SpecialIds, temporary: Callable | None = None
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Encodes any bytes `(B,)`: at most `most` ids `(B, (S))`, the end token last; and which rows are blank `(B,)`.

    `temporary`, if given, maps the ids and their text to ids among which are temporary ones.
    """
    text = repair(text)
    token_ids = tokenizer.encode(text)  # (B, (S))
    if temporary is not None:
        token_ids = temporary(token_ids, text)  # (B, (S))
    blank = is_blank(text) | (token_ids.row_lengths() == 0)  # (B,)
    return with_end(token_ids, blank, most, special_ids), blank


def with_end(token_ids: tf.RaggedTensor, blank: tf.Tensor, most: int, special_ids: SpecialIds) -> tf.RaggedTensor:
    """Ids `(B, (S))` cut to `most`, with the end token as the last id of each row and the only one of blank rows.

    If there is no end token, blank rows have another one, so that no row is empty.
    """
    has_end = special_ids.end is not None
    # Each slice or concatenation of ragged tensors would add a hundred nodes to the graph.
    lengths = tf.where(blank, tf.constant(0, tf.int64), tf.minimum(token_ids.row_lengths(), most - has_end))
    starts = token_ids.row_splits[:-1]  # (B,)
    places = tf.ragged.range(starts, starts + lengths + (1 if has_end else tf.cast(blank, tf.int64)))  # (B, (S))
    ids = tf.gather(tf.pad(token_ids.flat_values, [[0, 1]]), places.flat_values)  # (N,)
    ends = places.row_splits[1:] - 1  # (B,)
    ends = ends[:, None] if has_end else tf.gather(ends, tf.where(blank))  # (E, 1)
    ids = tf.tensor_scatter_nd_update(ids, ends, tf.fill(tf.shape(ends)[:1], special_ids.filler))  # (N,)
    return places.with_flat_values(ids)


def without_end(
    token_ids: tf.Tensor, lengths: tf.Tensor, special_ids: SpecialIds, tokens: tf.Tensor | None = None
) -> tf.RaggedTensor:
    """The ids `(B, L)` of a search result, or their `tokens`, as rows `(B, (T))`, without the end token of each."""
    real = tf.sequence_mask(lengths, tf.shape(token_ids)[1])  # (B, L)
    real = real if special_ids.end is None else real & (token_ids != special_ids.end)
    return masked_rows(token_ids if tokens is None else tokens, real)


def masked_rows(token_ids: tf.Tensor, mask: tf.Tensor) -> tf.RaggedTensor:
    """The entries of `(B, L)` where `mask` is True, as rows `(B, (T))`."""
    lengths = tf.reduce_sum(tf.cast(mask, tf.int64), axis=1)  # (B,)
    return tf.RaggedTensor.from_row_lengths(tf.gather_nd(token_ids, tf.where(mask)), lengths, validate=False)


class GraphCopies:
    """The extended vocabularies of sentences.

    Args:
        graph: The tokenizer of both sides in the graph, of any level but "bpe".
        tokenizer: The same in Python.
        most: Ids of a source at most, the end token included; words after that cannot be copied.
    """

    def __init__(self, graph: "GraphTokenizer", tokenizer: Tokenizer, most: int):
        self._tokenizer, self._size, self._most = graph, tokenizer.vocabulary_size, most
        self._special_ids = tokenizer.special_ids

    def words(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Any bytes `(B,)` to words `(B, (S))`."""
        return self._tokenizer.cut(repair(text))

    def temporary_ids(self, token_ids: tf.RaggedTensor, text: tf.Tensor, source: tf.Tensor) -> tf.RaggedTensor:
        """The ids `(B, (T))` of texts `(B,)`, with temporary ids for unknown words that the sources `(B,)` have."""
        words, sources = self._tokenizer.cut(text), self.words(source)  # (B, (T)), (B, (S))
        # A number for each word of each row, by which words are compared.
        strings = tf.concat([sources.flat_values, words.flat_values], axis=0)  # (N,)
        rows = tf.concat([sources.value_rowids(), words.value_rowids()], axis=0)  # (N,)
        _, numbers = tf.unique(strings, out_idx=tf.int64)  # (N,)
        found, numbers = tf.unique(rows * tf.size(strings, tf.int64) + numbers)  # (W,), (N,)
        places = tf.cast(tf.ragged.range(sources.row_lengths()).flat_values, tf.int32)
        places = tf.concat([places, tf.fill([tf.size(words.flat_values)], self._most)], axis=0)  # (N,)
        first = tf.math.unsorted_segment_min(places, numbers, tf.size(found))  # (W,)
        first = tf.gather(first, numbers[tf.size(sources.flat_values) :])  # of each of `words`
        ids = token_ids.flat_values
        copied = (ids == self._special_ids.unknown) & (first < self._most - len(self._special_ids.with_end([])))
        return token_ids.with_flat_values(tf.where(copied, self._size + first, ids))

    def tokens(self, token_ids: tf.Tensor, words: tf.RaggedTensor) -> tf.Tensor:
        """The word of each id `(B, ...)`: the vocabulary's entry, or one of the source's words `(B, (S))`."""
        known = self._tokenizer.tokens(tf.minimum(token_ids, self._size - 1))
        # A column more, because a source may be blank.
        padded = tf.pad(words.to_tensor(""), [[0, 0], [0, 1]])  # (B, S + 1)
        own = tf.gather(padded, tf.maximum(token_ids - self._size, 0), batch_dims=1)
        return tf.where(token_ids < self._size, known, own)
