"""Translations as records, and the vote of several systems. Needs NumPy alone, for clients of a server."""

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False, repr=False)
class Translation:
    """One translation with its tokens, scores and alignment.

    `text` is the translation, and `token_ids` and `source_token_ids` are the ids of `tokens` and `source_tokens`. The
    end token counts as a step: it is the last entry of `tokens` and `source_tokens`, which therefore label the rows and
    the columns of `alignment`. In a notebook it is shown with them.
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

    def __repr__(self) -> str:
        others = f", {len(self.n_best)} hypotheses" if self.n_best else ""
        return f"<Translation {self.text!r}, score {self.score:.4g}{others}>"

    def _repr_html_(self) -> str:
        text = f"<p>{html.escape(self.text)} <small>score {self.score:.4g}</small></p>"
        if self.alignment is None or not len(self.alignment):
            return text
        names = [html.escape(token) for token in (*self.source_tokens, *self.tokens)]
        columns, rows = names[: len(self.source_tokens)], names[len(self.source_tokens) :]
        lines = [f"<tr><th></th>{''.join(f'<th>{name}</th>' for name in columns)}</tr>"]
        for name, weights in zip(rows, self.alignment, strict=True):
            cells = "".join(
                f'<td style="background: rgba(31, 119, 180, {weight:.2f})" title="{weight:.2f}"></td>'
                for weight in np.clip(weights, 0, 1)
            )
            lines.append(f"<tr><th>{name}</th>{cells}</tr>")
        return f"{text}<table>{''.join(lines)}</table>"


def vote(candidates: Sequence[Sequence[Translation]]) -> list[Translation]:
    """Returns for each sentence the text that most translators chose.

    With y_n the text of translator n, and s_n its score:

        y* = argmax_y sum_n [y_n = y];   of equally frequent ones, the one with the highest s_n

    Translators may be of any kind, with any tokenizers: only texts are compared. Such an ensemble suits short outputs,
    on which translators often agree, such as pronunciations. Of those that chose y*, the translation with the highest
    score is returned, with its alignment; of equal scores, the first translator's.
    `keras_attn.models.Ensemble` averages distributions instead, in one search.

    Args:
        candidates: A list of translations from each translator, all of the same sentences.

    Raises:
        ValueError: If there is no list, or they differ in length.

    Example:
        >>> words = [("K AE T", -0.9), ("K AE T", -0.7), ("S AE T", -0.1)]  # two of three
        >>> candidates = [[keras_attn.Translation(text, score=score)] for text, score in words]
        >>> [(best.text, best.score) for best in keras_attn.translation.vote(candidates)]
        [('K AE T', -0.7)]
    """
    lengths = sorted({len(one) for one in candidates})
    if len(lengths) != 1:
        raise ValueError(
            f"Expected lists of translations, one from each translator, of equal length. Received: lengths {lengths}"
        )
    winners = []
    for row in zip(*candidates, strict=True):
        votes = Counter(translation.text for translation in row)
        winners.append(max(row, key=lambda one, votes=votes: (votes[one.text], one.score)))
    return winners
