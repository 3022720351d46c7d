"""BPE-dropout: the same text in other pieces each time, for training."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_attn.text.tokenizer import Tokenizer

_ONE_AT_A_TIME = threading.Lock()  # between the seed, which SentencePiece has once for the process, and the draws


class BPEDropout:
    """Segments text at random: each merge of two pieces that BPE would make is left out with probability p.

    At p = 0 the pieces are those of `Tokenizer.encode`, at p = 1 single characters. A model that is trained on such
    pieces, drawn anew for each pass over the data, learns what words are made of, and is less misled by rare ones;
    translation uses the plain pieces (Provilkov, Emelianenko, Voita. BPE-Dropout: Simple and Effective Subword
    Regularization. ACL 2020, arXiv:1910.13267, section 3).

    The draws are SentencePiece's: the same seed gives the same pieces, in any order of calls, in any thread.

    Args:
        tokenizer: A `Tokenizer` of level "bpe".
        rate: p, from 0 to 1; 0.1 in the paper.

    Raises:
        ValueError: For a tokenizer of another level, or a rate out of range.

    Example:

    >>> tokenizer = keras_attn.Tokenizer.train(["low lower lowest"] * 9, vocabulary_size=280)
    >>> drawn = keras_attn.text.BPEDropout(tokenizer, 0.5).encode(["low lower"], seed=3)
    >>> tokenizer.decode(drawn[0])
    'low lower'

    Differences from the paper: SentencePiece does not reconsider a merge that was left out once, unless one of its two
    pieces has changed since.
    """

    def __init__(self, tokenizer: "Tokenizer", rate: float):
        if tokenizer.sentencepiece_model is None:
            raise ValueError(f"Expected a tokenizer of level 'bpe' for BPE-dropout. Received: {tokenizer.level!r}")
        if not 0 <= rate <= 1:
            raise ValueError(f"Expected a rate of BPE-dropout from 0 to 1. Received: {rate}")
        import sentencepiece

        self.rate = rate
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.sentencepiece_model)

    def encode(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """Returns the ids of each text, without start and end, for a seed from 0 to 2^31 - 1."""
        import sentencepiece

        # One thread: with more, each would need a seed of its own.
        options = {"enable_sampling": True, "alpha": self.rate, "nbest_size": -1, "num_threads": 1}
        with _ONE_AT_A_TIME:
            sentencepiece.set_random_generator_seed(seed)
            return self._processor.encode(list(texts), **options)
