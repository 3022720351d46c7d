"""A translator without a model, which copies its source."""

import numpy as np

from keras_attn.decoding import TextSearch
from keras_attn.search import beam_search
from keras_attn.text import Tokenizer

LINES = ["two dogs run , l'or café 3 < > & . x", "The queen forgot the oranges. Is it so? été 你好 {n}"]


class Copy(TextSearch):
    """A search whose every hypothesis is the source, or its tokens backwards, with the alignment that says so."""

    def __init__(self, level: str, *, backwards: bool = False, attends: bool = True, **options):
        tokenizer = Tokenizer.train(LINES, level=level, **options)
        super().__init__(tokenizer, tokenizer, 1.0, 0.0)
        self.backwards, self.attends, self.seen = backwards, attends, []

    pointer, source_length = False, None

    def _search_of(self, options):
        return beam_search

    def _searched(self, search, inputs, longest, count, *, n_best=1, return_alignments=True, **options):
        rows = inputs["encoder_token_ids"]  # (B, S)
        lengths = (rows != 0).sum(axis=1)  # (B,)
        order = [[*range(n - 1)] for n in lengths]
        order = [[*(places[::-1] if self.backwards else places), len(places)] for places in order]
        ids, alignments = np.zeros_like(rows), np.zeros((*rows.shape, rows.shape[1]), "float32")
        for row, places in enumerate(order):
            ids[row, : len(places)] = rows[row, places]
            alignments[row, range(len(places)), places] = self.attends
        several = [np.stack([array] * n_best, axis=1) for array in (ids, lengths, alignments)]
        scores = np.tile(-np.arange(n_best, dtype="float32"), (len(rows), 1)) - 0.5  # (B, N)
        log_probs = np.zeros(several[0].shape, "float32")
        names = ("token_ids", "lengths", "alignments", "scores", "token_log_probs")
        self.seen.append(return_alignments)
        return dict(zip(names, (*several, scores, log_probs), strict=True))
