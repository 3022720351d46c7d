"""The shortlist of a batch inside a graph: what `keras_attn.Shortlist.reduced` does in Python."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from keras_attn.models import Seq2Seq
    from keras_attn.translation import Shortlist


class GraphShortlist:
    """Which target tokens each sentence of a batch may have.

    With a sentence of the whole vocabulary all columns of the projection are copied, once for a batch, which then takes
    longer than without a shortlist.

    Args:
        shortlist: Of the translator.
        model: The model that searches in it.
        banned_token_ids: Target ids that are never produced.

    Attributes:
        candidates, always: Its ids as variables, `(source vocabulary, N)` and `(A,)`.
        arguments: What a search in it is given instead of the vocabulary's own ids: places in the shortlist.
    """

    def __init__(self, shortlist: "Shortlist", model: "Seq2Seq", banned_token_ids: Sequence[int]):
        self.candidates = tf.Variable(shortlist.candidates, trainable=False, name="shortlist_candidates")
        self.always = tf.Variable(shortlist.always, trainable=False, name="shortlist_always")
        self._size, self._model = shortlist.target_vocabulary_size, model
        target = model.target_special_ids
        # First in every batch, so that their places are numbers of the graph.
        self._first = list(dict.fromkeys([*target.all, *banned_token_ids]))
        self._own = len(target.all)
        places = {name: None if i is None else self._first.index(i) for name, i in target.get_config().items()}
        banned = [self._first.index(i) for i in banned_token_ids]
        self.arguments = {"special_ids": replace(target, **places), "banned_token_ids": banned}

    def with_output(self, listed: dict[str, tf.Tensor]) -> dict[str, Any]:
        """A shortlist as `beam_search` takes it, with its part of the output projection."""
        return listed | {"output": self._model.output_part(listed["token_ids"])}

    def __call__(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """The shortlist `(n,)` for source ids `(B, S)`, and which of its tokens each sentence may have."""
        allowed = self._allowed(token_ids)  # (B, V)
        others = tf.reduce_any(allowed, axis=0) & ~tf.reduce_any(tf.one_hot(self._first, self._size, True, False), 0)
        others = tf.cast(tf.where(others)[:, 0], tf.int32)
        shortlist = tf.concat([self._first, others], axis=0)  # (n,)
        specials = tf.range(tf.size(shortlist)) < self._own  # (n,)
        return {
            "token_ids": shortlist,
            "allowed": tf.gather(allowed, shortlist, axis=1) | specials,  # (B, n)
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
        places = tf.reshape(tf.stack([rows, found], axis=-1), (-1, 2))  # (B * S * N, 2)
        counts = tf.scatter_nd(places, tf.ones_like(places[:, 0]), (batch, self._size + 1))[:, :-1]  # (B, V)
        always = tf.scatter_nd(self.always[:, None], tf.ones_like(self.always), (self._size,)) > 0  # (V,)
        return (counts > 0) | always | ~tf.reduce_all(is_known, axis=1, keepdims=True)
