"""Records that the functions of a search exchange."""

from typing import Any, NamedTuple

from keras_attn.text import SpecialIds

NEGATIVE_INFINITY = float("-inf")


class SearchResult(NamedTuple):
    """N hypotheses for each of B sentences, best first.

    A hypothesis ends with the end token, if the vocabulary has one; `lengths`, `log_probs` and `scores` include it. If
    fewer than N hypotheses exist (every continuation has probability 0), the others have length 0 and score -inf.
    """

    token_ids: Any  # (B, N, L) int32, without the start token, padding after the end token
    lengths: Any  # (B, N) int32, the end token included
    scores: Any  # (B, N) float32: the log-probability, normalised for length and coverage; hypotheses rank by it
    log_probs: Any  # (B, N) float32: the sum of token_log_probs
    token_log_probs: Any  # (B, N, L) float32, 0 after the end token
    alignments: Any  # (B, N, L, S) float32, 0 after the end token; None if not requested


class Constraints(NamedTuple):
    """The limits of each of R hypotheses; `()` for no limit."""

    max_lengths: Any  # (R,) int32, end token included
    min_lengths: Any  # (R,) int32, or ()
    forced: Any  # (R, P + 1) int32, pad = free, or ()
    excluded: Any  # (X,) int32: tokens that are not candidates (pad, start, end and banned ones)
    no_repeat_ngram_size: int  # 0 = off
    special_ids: SpecialIds

    def is_last(self, position: Any) -> Any:
        """The mask of hypotheses whose last position is `position`, `(R,)` bool."""
        return self.max_lengths <= position + 1


class Candidates(NamedTuple):
    """Continuations of R hypotheses. The end token is separate: it finishes a hypothesis instead of extending it."""

    token_ids: Any  # (R, C) int32
    log_probs: Any  # (R, C) float32, -inf where not allowed
    end_log_probs: Any  # (R,) float32, -inf where not allowed
