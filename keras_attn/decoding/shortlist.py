"""Search in a part of the vocabulary: the target tokens that a sentence's tokens may become."""

import hashlib
import io
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from keras import ops

from keras_attn import files
from keras_attn.decoding.batching import encoded, power_of_two
from keras_attn.decoding.checks import check_list
from keras_attn.search import check_sizes
from keras_attn.text import SpecialIds

if TYPE_CHECKING:
    from keras_attn.decoding.text_search import TextSearch

_MOST_BYTES = 2**30  # of a file's arrays
_LEAST = 256  # tokens of a shortlist, so that few sizes are compiled
NONE = -1  # in place of a candidate


class Shortlist:
    """For each source token the target tokens that it may become, and those that any sentence may have.

    A search with a shortlist multiplies with the columns of these alone, which reads less than half of a small model's
    weights at each step. A sentence with a source token that the shortlist does not know is searched in the whole
    vocabulary.

    Args:
        candidates: `(source vocabulary, N)` int32, target ids, and -1 where a token has fewer; a row of -1 alone is a
            token that the shortlist does not know.
        always: `(A,)` int32, target ids of any sentence, such as the most frequent ones.
        target_vocabulary_size: The ids are below it.

    Raises:
        ValueError: for arrays of other shapes, or ids outside the vocabulary.

    Example:
        >>> shortlist = keras_attn.Shortlist.learn(translator, ["two dogs", "a dog"], ["deux chiens", "un chien"])
        >>> keras_attn.with_shortlist(translator, shortlist).generate(["two dogs"])[0].text
        'deux chiens'

    Reference: L'Hostis, Grangier, Auli. Vocabulary Selection Strategies for Neural Machine Translation. 2016,
    arXiv:1610.00072 (word alignments, section 3.2).
    """

    def __init__(self, candidates: np.ndarray, always: np.ndarray, target_vocabulary_size: int):
        check_sizes(target_vocabulary_size=target_vocabulary_size)
        for name, array, rank in (("candidates", candidates, 2), ("always", always, 1)):
            is_valid = array.ndim == rank and np.issubdtype(array.dtype, np.integer)
            lowest = NONE if rank == 2 else 0
            if not is_valid or (array.size and not lowest <= array.min() <= array.max() < target_vocabulary_size):
                raise ValueError(
                    f"Expected `{name}` to be ids below {target_vocabulary_size}, an array of rank {rank}. "
                    f"Received: {array.dtype} of shape {array.shape}"
                )
        self.candidates = candidates.astype("int32")
        self.always = np.unique(always).astype("int32")
        self.target_vocabulary_size = int(target_vocabulary_size)

    @classmethod
    def learn(
        cls,
        translator: "TextSearch",
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        candidates: int = 30,
        frequent: int = 100,
        iterations: int = 5,
    ) -> Self:
        """Learns a shortlist from parallel text, such as the text that the model was trained on, by IBM Model 1.

        Args:
            translator: Whose tokenizers the shortlist is for.
            sources, targets: Sentences.
            candidates: Target tokens of each source token: the most probable ones.
            frequent: Target tokens that any sentence may have: the most frequent ones, and as many that Model 1 gives
                to no source token.
            iterations: Iterations of EM.

        Raises:
            ValueError: for lists of different lengths, a number below 1, or no pair with text on both sides.
        """
        from keras_attn.evaluation import Model1  # here, as evaluation is slow to import

        check_sizes(candidates=candidates, frequent=frequent, iterations=iterations)
        sources = check_list("sources", sources)
        targets = check_list("targets", targets, len(sources))
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        rows = [
            encoded(tokenizer, texts, [{}] * len(texts))
            for tokenizer, texts in zip(tokenizers, (sources, targets), strict=True)
        ]
        model = Model1(*([" ".join(map(str, ids)) for ids in side] for side in rows), iterations=iterations)
        best = model.most_probable(max(candidates, frequent))
        table = np.full((tokenizers[0].vocabulary_size, candidates), NONE, "int32")
        always = [token_id for token_id, _ in Counter(i for ids in rows[1] for i in ids).most_common(frequent)]
        for source, words in best.items():
            if source:
                ids = [int(word) for word in words[:candidates]]
                table[int(source), : len(ids)] = ids
            else:  # the empty word
                always += [int(word) for word in words[:frequent]]
        return cls(table, np.array(always, "int32"), tokenizers[1].vocabulary_size)

    @property
    def fingerprint(self) -> str:
        """A hash of all of it."""
        sizes = f"{self.target_vocabulary_size} {self.candidates.shape} "
        return hashlib.sha256(sizes.encode() + self.candidates.tobytes() + self.always.tobytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The shortlist as a file of NumPy, `.npz`."""
        file = io.BytesIO()
        arrays = {"candidates": self.candidates, "always": self.always}
        np.savez_compressed(file, **arrays, target_vocabulary_size=np.int64(self.target_vocabulary_size))
        return file.getvalue()

    def save(self, path: str | Path) -> None:
        """Writes `to_bytes` to a file."""
        with files.replacing(Path(path)) as partial:
            partial.write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a shortlist that `save` wrote.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is another kind of file, or has more than 1 GiB of arrays.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
            if size > _MOST_BYTES:
                raise ValueError(f"Expected a shortlist of at most 1 GiB. Received: {size:,} bytes")
            with np.load(path, allow_pickle=False) as arrays:
                found = [arrays[name] for name in ("candidates", "always", "target_vocabulary_size")]
            return cls(*found[:2], found[2].item())
        except FileNotFoundError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"Expected {str(path)!r} to be a file of `Shortlist.save`. {error}") from None

    def reduced(
        self,
        inputs: Mapping[str, np.ndarray],
        banned_token_ids: Sequence[int],
        special_ids: tuple[SpecialIds, SpecialIds],
    ) -> tuple[dict[str, np.ndarray], dict[str, Any], np.ndarray]:
        """A batch for a search in the shortlist of its sentences.

        A sentence has the same tokens in every batch.

        Args:
            inputs: From `search_inputs`.
            banned_token_ids: Target ids that are never produced.
            special_ids: Of source and target.

        Returns:
            The inputs, with "shortlist" `(n,)` and "allowed" `(B, n)`; further arguments of the search, with places in
            the shortlist for ids; and the shortlist.
        """
        source, target = special_ids
        fixed = list(dict.fromkeys([*target.all, *banned_token_ids]))  # their places are the same in all batches
        rows = [self._row(ids, source) for ids in inputs["encoder_token_ids"]]
        if "forced_prefix" in inputs:
            rows = [np.union1d(row, prefix) for row, prefix in zip(rows, inputs["forced_prefix"], strict=True)]
        others = np.setdiff1d(np.unique(np.concatenate(rows)), fixed)
        shortlist = np.concatenate([fixed, others]).astype("int32")  # (n,)
        places = np.full(self.target_vocabulary_size, -1, "int32")  # (V,)
        places[shortlist] = np.arange(len(shortlist), dtype="int32")
        width = max(_LEAST, power_of_two(len(shortlist)))
        if width >= self.target_vocabulary_size:
            rest = np.flatnonzero(places < 0)
            places[rest] = np.arange(len(shortlist), self.target_vocabulary_size, dtype="int32")
            shortlist = np.concatenate([shortlist, rest]).astype("int32")
        else:
            shortlist = np.pad(shortlist, (0, width - len(shortlist)), constant_values=target.pad)
        allowed = np.zeros((len(rows), len(shortlist)), bool)
        allowed[:, : len(fixed)] = True
        for i, row in enumerate(rows):
            allowed[i, places[row]] = True
        new = {**inputs, "shortlist": shortlist, "allowed": allowed}
        if "forced_prefix" in inputs:
            new["forced_prefix"] = places[inputs["forced_prefix"]]
        given = {name: None if i is None else int(places[i]) for name, i in target.get_config().items()}
        arguments = {
            "special_ids": replace(target, **given),
            "banned_token_ids": [int(places[i]) for i in banned_token_ids],
        }
        return new, arguments, shortlist

    def _row(self, source_ids: np.ndarray, special_ids: SpecialIds) -> np.ndarray:
        """The target ids of a sentence: all of the vocabulary if one of its tokens is not known."""
        ids = np.setdiff1d(source_ids, list(special_ids.reserved))
        found = self.candidates[ids]  # (s, N)
        if (found[:, :1] == NONE).any() or not found.shape[1]:
            return np.arange(self.target_vocabulary_size, dtype="int32")
        return np.union1d(self.always, found[found != NONE]).astype("int32")


def with_shortlist(translator: Any, shortlist: Shortlist) -> Any:
    """Returns a translator whose `generate` searches in a shortlist of target tokens.

    Probabilities are those among the sentence's tokens, so that scores are a little higher than `score` gives. A
    translation may differ from that of the whole vocabulary; it does not depend on its batch mates. `sample` and
    `score` have the whole vocabulary, and so has `export`.

    Args:
        translator: A `keras_attn.Translator`, or the result of `keras_attn.quantize`. It stays as it is; both have the
            same model.
        shortlist: A `Shortlist` for its tokenizers.

    Raises:
        ValueError: if the vocabularies have other sizes, or the model cannot search in a part of its vocabulary: one
            that copies words of the source, or of a class without `output_part`.

    Example:
        >>> shortlist = keras_attn.Shortlist.learn(translator, ["two dogs", "a dog"], ["deux chiens", "un chien"])
        >>> fast = keras_attn.with_shortlist(translator, shortlist)
        >>> fast.generate(["two dogs"])[0].text
        'deux chiens'
    """
    sizes = len(shortlist.candidates), shortlist.target_vocabulary_size
    expected = translator.model.source_vocabulary_size, translator.model.target_vocabulary_size
    if sizes != expected:
        raise ValueError(f"Expected a shortlist of vocabularies of {expected} ids. Received: one of {sizes}")
    translator.model.output_part(ops.arange(min(4, expected[1]), dtype="int32"))  # refuses
    restricted = copy(translator)
    restricted.shortlist = shortlist
    return restricted
