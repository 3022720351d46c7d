"""Lexical shortlists: search among the target tokens that a sentence's tokens may become."""

import hashlib
import inspect
import io
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from keras import ops

from keras_attn import files
from keras_attn.search import check_sizes
from keras_attn.text import SpecialIds
from keras_attn.translation.batching import check_list, encoded, power_of_two
from keras_attn.translation.text_search import TextSearch

_Translator = TypeVar("_Translator", bound=TextSearch)
_MOST_BYTES = 2**30  # of a file's arrays
_LEAST = 256  # tokens of a shortlist, so that few sizes are compiled
NONE = -1  # in place of a candidate


class Reduced(NamedTuple):
    """A batch for a search in a shortlist."""

    inputs: dict[str, np.ndarray]  # of the search, with "shortlist" (n,) and "allowed" (B, n)
    arguments: dict[str, Any]  # of the search, with places in the shortlist for ids
    shortlist: np.ndarray  # (n,) int32


class Shortlist:
    """For each source token the target tokens that it may become, and those that any sentence may have.

    A search with a shortlist computes the logits of these alone. With a vocabulary of 6,000 the output projection is
    about half of what a step of a small recurrent model reads; a sentence of 12 tokens keeps some 400 of its columns. A
    sentence with a source token that the shortlist does not know is searched in the whole vocabulary.

    Args:
        candidates: `(source vocabulary, N)` int32, target ids, and -1 where a token has fewer; a row of -1 alone is a
            token that the shortlist does not know.
        always: `(A,)` int32, target ids of any sentence, such as the most frequent ones.
        target_vocabulary_size: The ids are below it.
        fingerprints: Of the tokenizers of source and target (`Tokenizer.fingerprint`), which `with_shortlist` then
            compares; None: any tokenizers of these sizes.

    Raises:
        ValueError: for arrays of other shapes, ids outside the vocabulary, or not two fingerprints.

    Example:
        >>> shortlist = keras_attn.Shortlist.learn(translator, ["two dogs", "a dog"], ["deux chiens", "un chien"])
        >>> keras_attn.with_shortlist(translator, shortlist).generate(["two dogs"])[0].text
        'deux chiens'

    Reference: L'Hostis, Grangier, Auli. Vocabulary Selection Strategies for Neural Machine Translation. 2016,
    arXiv:1610.00072 (word alignments, section 3.2).
    """

    def __init__(
        self,
        candidates: np.ndarray,
        always: np.ndarray,
        target_vocabulary_size: int,
        fingerprints: tuple[str, str] | None = None,
    ):
        check_sizes(target_vocabulary_size=target_vocabulary_size)
        candidates, always = np.asarray(candidates), np.asarray(always)
        for name, array, rank in (("candidates", candidates, 2), ("always", always, 1)):
            is_valid = array.ndim == rank and np.issubdtype(array.dtype, np.integer)
            lowest = NONE if rank == 2 else 0
            if not is_valid or (array.size and not lowest <= array.min() <= array.max() < target_vocabulary_size):
                raise ValueError(
                    f"Expected `{name}` to be ids below {target_vocabulary_size}, an array of rank {rank}. "
                    f"Received: {array.dtype} of shape {array.shape}"
                )
        if fingerprints is not None and len(fingerprints) != 2:
            raise ValueError(f"Expected `fingerprints` of two tokenizers. Received: {fingerprints}")
        self.candidates = candidates.astype("int32")
        self.always = np.unique(always).astype("int32")
        self.target_vocabulary_size = int(target_vocabulary_size)
        self.fingerprints = fingerprints

    @classmethod
    def learn(
        cls,
        translator: TextSearch,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        candidates: int = 30,
        frequent: int = 100,
        iterations: int = 5,
    ) -> Self:
        """Learns a shortlist from parallel text, such as the text that the model was trained on, by IBM Model 1.

        It keeps all pairs of tokens of each pair of sentences in memory: 100,000 pairs of 15 tokens take about 1 GB. Of
        a larger corpus give a part.

        Args:
            translator: Whose tokenizers the shortlist is for.
            sources, targets: Sentences.
            candidates: Target tokens of each source token: the most probable ones.
            frequent: Target tokens that any sentence may have: so many of the most frequent ones, and so many of the
                most probable ones of the empty word.
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
        found = model.most_probable(max(candidates, frequent))
        best = {source: [int(word) for word in words] for source, words in found.items()}
        always = [token_id for token_id, _ in Counter(i for ids in rows[1] for i in ids).most_common(frequent)]
        always += best.pop("")[:frequent]  # of the empty word
        width = min(candidates, max(map(len, best.values())))
        table = np.full((tokenizers[0].vocabulary_size, width), NONE, "int32")
        for source, ids in best.items():
            table[int(source), : len(ids[:width])] = ids[:width]
        fingerprints = tuple(tokenizer.fingerprint for tokenizer in tokenizers)
        return cls(table, np.array(always), tokenizers[1].vocabulary_size, fingerprints)

    @property
    def fingerprint(self) -> str:
        """A hash of all of it."""
        sizes = f"{self.target_vocabulary_size} {self.candidates.shape} {self.fingerprints} "
        return hashlib.sha256(sizes.encode() + self.candidates.tobytes() + self.always.tobytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The shortlist as a file of NumPy, `.npz`.

        Raises:
            ValueError: if its arrays have more than 1 GiB.
        """
        if (size := self.candidates.nbytes + self.always.nbytes) > _MOST_BYTES - 2**16:
            raise ValueError(f"Expected a shortlist of at most 1 GiB. Received: {size:,} bytes")
        file = io.BytesIO()
        arrays = {"candidates": self.candidates, "always": self.always, "fingerprints": self.fingerprints or ()}
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
        names = ("candidates", "always", "target_vocabulary_size", "fingerprints")
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
            if size > _MOST_BYTES:
                raise ValueError(f"Expected a shortlist of at most 1 GiB. Received: {size:,} bytes")
            with np.load(path, allow_pickle=False) as arrays:
                candidates, always, vocabulary_size, fingerprints = (arrays[name] for name in names)
            return cls(candidates, always, vocabulary_size.item(), tuple(map(str, fingerprints)) or None)
        except FileNotFoundError:
            raise
        except Exception as error:  # damaged files fail in many ways
            raise ValueError(f"Expected {str(path)!r} to be a file of `Shortlist.save`. {error}") from None

    def reduced(
        self,
        inputs: Mapping[str, np.ndarray],
        count: int,
        banned_token_ids: Sequence[int],
        special_ids: tuple[SpecialIds, SpecialIds],
    ) -> Reduced:
        """A batch for a search in the shortlist of its sentences.

        A sentence has the same tokens in every batch, and the same columns of the projection: also where all have the
        whole vocabulary, because the projection itself is multiplied in int8 after `quantize`.

        Args:
            inputs: From `search_inputs`.
            count: The rows that are sentences; the others fill the batch.
            banned_token_ids: Target ids that are never produced.
            special_ids: Of source and target.

        Raises:
            ValueError: if the end token is banned.
        """
        source, target = special_ids
        if target.end in banned_token_ids:
            raise ValueError(f"Expected banned tokens without the end token {target.end}. Received: {banned_token_ids}")
        rows = [self._row(ids, source) for ids in inputs["encoder_token_ids"][:count]]
        if "forced_prefix" in inputs:
            rows = [np.union1d(row, prefix) for row, prefix in zip(rows, inputs["forced_prefix"], strict=False)]
        # Their places are the same in all batches, so that nothing is compiled anew.
        first = list(dict.fromkeys([*target.all, *banned_token_ids]))
        others = np.setdiff1d(np.unique(np.concatenate(rows)), first)
        shortlist = np.concatenate([first, others]).astype("int32")  # (n,)
        width = power_of_two(len(shortlist), _LEAST)
        if width < self.target_vocabulary_size:
            shortlist = np.pad(shortlist, (0, width - len(shortlist)), constant_values=target.pad)
        else:
            rest = np.setdiff1d(np.arange(self.target_vocabulary_size, dtype="int32"), shortlist)
            shortlist = np.concatenate([shortlist, rest])
        places = np.zeros(self.target_vocabulary_size, "int32")  # (V,)
        places[shortlist[::-1]] = np.arange(len(shortlist), dtype="int32")[::-1]  # pad: the first of its places
        allowed = np.zeros((len(inputs["encoder_token_ids"]), len(shortlist)), bool)
        allowed[:, : len(target.all)] = True
        for i, row in enumerate(rows):
            allowed[i, places[row]] = True
        new = {**inputs, "shortlist": shortlist, "allowed": allowed}
        if "forced_prefix" in inputs:
            new["forced_prefix"] = places[inputs["forced_prefix"]]
        given = {name: None if i is None else int(places[i]) for name, i in target.get_config().items()}
        banned = [int(places[i]) for i in banned_token_ids]
        return Reduced(new, {"special_ids": replace(target, **given), "banned_token_ids": banned}, shortlist)

    def _row(self, source_ids: np.ndarray, special_ids: SpecialIds) -> np.ndarray:
        """The target ids of a sentence: all of the vocabulary if one of its tokens is not known."""
        found = self.candidates[np.setdiff1d(source_ids, list(special_ids.reserved))]  # (s, N)
        if (found == NONE).all(axis=1).any():
            return np.arange(self.target_vocabulary_size, dtype="int32")
        return np.union1d(self.always, found[found != NONE]).astype("int32")


def with_shortlist(translator: _Translator, shortlist: Shortlist) -> _Translator:
    """Returns a translator whose `generate` searches in a shortlist of target tokens.

    Probabilities are those among the sentence's tokens, so that scores are a little higher than `score` gives. A
    translation may differ from that of the whole vocabulary; it does not depend on its batch mates. A SavedModel of
    `export` searches in the shortlist, too; `sample`, `score` and what `save_to_preset` writes are without it. After
    `quantize` the output projection is multiplied in float32, all else in int8.

    Args:
        translator: A `keras_attn.Translator`, or the result of `keras_attn.quantize`. It stays as it is; both have the
            same model.
        shortlist: A `Shortlist` for its tokenizers.

    Raises:
        ValueError: if the shortlist is for other tokenizers, or the model cannot search in a part of its vocabulary: it
            copies words of the source, has no `output_part` or a `step` of three arguments, or the logits of a part are
            not those of the whole.

    Example:
        >>> shortlist = keras_attn.Shortlist.learn(translator, ["two dogs", "a dog"], ["deux chiens", "un chien"])
        >>> fast = keras_attn.with_shortlist(translator, shortlist)
        >>> fast.generate(["two dogs"])[0].text
        'deux chiens'
    """
    if not isinstance(shortlist, Shortlist):
        raise ValueError(f"Expected a keras_attn.Shortlist. Received: {shortlist!r}")
    sizes = len(shortlist.candidates), shortlist.target_vocabulary_size
    expected = translator.model.source_vocabulary_size, translator.model.target_vocabulary_size
    if sizes != expected:
        raise ValueError(f"Expected a shortlist of vocabularies of {expected} ids. Received: one of {sizes}")
    tokenizers = translator.source_tokenizer.fingerprint, translator.target_tokenizer.fingerprint
    if shortlist.fingerprints not in (None, tokenizers):
        pairs = zip(("source", "target"), shortlist.fingerprints, tokenizers, strict=True)
        other = " and ".join(side for side, expected, found in pairs if expected != found)
        raise ValueError(f"Expected a shortlist for this translator's tokenizers. Received: one for another {other}")
    for model in getattr(translator.model, "models", [translator.model]):  # of an ensemble
        _check(model)
    restricted = copy(translator)
    restricted.shortlist = shortlist
    return restricted


def _check(model: Any) -> None:
    """Raises ValueError if a model's step cannot give the logits of some tokens, or gives others for them."""
    ids = ops.arange(min(8, model.target_vocabulary_size), dtype="int32")
    part = model.output_part(ids)
    if len(inspect.signature(model.step).parameters) < 4:
        raise ValueError(f"Expected a model whose `step` takes a part of the output. Received: {model.name!r}")
    memory, state = model.encode(ops.full((1, 2), model.source_special_ids.filler, dtype="int32"), 1)
    start = ops.full((1,), model.target_special_ids.start, dtype="int32")
    whole, found = (ops.convert_to_numpy(model.step(start, memory, state, *one)[0]) for one in ((), (part,)))
    whole, found = (logits.astype("float32") for logits in (whole[:, : found.shape[1]], found))
    if not np.allclose(whole, found, rtol=0.05, atol=0.05 * (1 + np.abs(whole).max())):
        raise ValueError(f"Expected a model whose logits are a product and a bias. Received: {model.name!r}")
