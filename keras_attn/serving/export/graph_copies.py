"""Words that a model with a pointer copies, inside a graph: the temporary ids of `keras_attn.text`, and back."""

from typing import TYPE_CHECKING

import tensorflow as tf

from keras_attn.serving.export.graph_tokenizer import masked_rows, repair

if TYPE_CHECKING:
    from keras_attn.serving.export.graph_tokenizer import GraphTokenizer
    from keras_attn.text import Tokenizer


class GraphCopies:
    """The extended vocabularies of sentences.

    Args:
        graph: The tokenizer of both sides in the graph, of any level but "bpe".
        tokenizer: The same in Python.
        most: Ids of a source at most, the end token included; words after that cannot be copied.
    """

    def __init__(self, graph: "GraphTokenizer", tokenizer: "Tokenizer", most: int):
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

    def text(self, token_ids: tf.Tensor, lengths: tf.Tensor, words: tf.RaggedTensor) -> tf.Tensor:
        """The texts `(B * N,)` of hypotheses `(B, N, L)` of sources with these words."""
        tokens = self.tokens(token_ids, words)  # (B, N, L)
        real = tf.sequence_mask(lengths, tf.shape(token_ids)[2])  # (B, N, L)
        if self._special_ids.end is not None:
            real &= token_ids != self._special_ids.end
        shape = [-1, tf.shape(token_ids)[2]]
        return self._tokenizer.join(masked_rows(tf.reshape(tokens, shape), tf.reshape(real, shape)))
