"""The signature `translate_n_best`: its outputs, and the translation of a row of them."""

import dataclasses

import numpy as np

from keras_attn.translation import Translation

N_BEST = ("translations", "scores", "source_tokens", "source_lengths", "target_tokens", "target_lengths", "alignments")


def from_row(texts, scores, source_tokens, source_length, *others) -> Translation:
    """Returns the translation of a row of `translate_n_best`, without the padding of the batch.

    Args:
        texts, scores: K hypotheses, best first.
        source_tokens, source_length, *others: The other outputs, in the order of `N_BEST`.
    """
    source, found = tuple(source_tokens[:source_length]), []
    for text, score, tokens, length, alignment in zip(texts, scores, *others, strict=True):
        if length or not source:  # a search may find fewer than K; a blank text has no tokens
            real = np.array(alignment, "float32")[:length, :source_length] if source else None  # (T, S)
            words = tuple(tokens[:length])
            found.append(Translation(text, words, score=float(score), alignment=real, source_tokens=source))
    return dataclasses.replace(found[0], n_best=tuple(found) if len(texts) > 1 and source else ())
