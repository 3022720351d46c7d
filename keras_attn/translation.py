"""One translation as a record. It needs NumPy alone, so that a client of a server can use it without Keras."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Translation:
    """One translation with its tokens, scores and alignment.

    `text` is the translation, and `token_ids` and `source_token_ids` are the ids of `tokens` and `source_tokens`. The
    end token counts as a step: it is the last entry of `tokens` and `source_tokens`, which therefore label the rows and
    the columns of `alignment`.
    """

    text: str
    tokens: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    score: float = 0.0  # what search ranks by: the log-probability after the length penalty
    token_log_probs: np.ndarray | None = None  # (T,)
    alignment: np.ndarray | None = None  # (T, S), rows sum to 1: the mean of the heads, where there are several
    source_tokens: tuple[str, ...] = ()
    source_token_ids: tuple[int, ...] = ()
    n_best: tuple["Translation", ...] = ()  # all hypotheses, best first, if several were requested; samples in order
    head_alignments: np.ndarray | None = None  # (heads, T, S), from `score(..., each_head=True)`
