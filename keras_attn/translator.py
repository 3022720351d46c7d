"""Text to text: a model, two tokenizers and search, as one object that can be saved, loaded and exported."""

import inspect
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import keras
import numpy as np

from keras_attn import manifest
from keras_attn.models.seq2seq import Seq2Seq
from keras_attn.search import beam_search, greedy_search
from keras_attn.tokenizer import BLANKS, END_ID, Tokenizer


@dataclass(frozen=True, eq=False)
class Translation:
    """One translation, and how the model came to it.

    The end token is a step of its own: it closes `tokens` and `source_tokens`, so that these stand beside the
    rows and the columns of `alignment`.
    """

    text: str
    tokens: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    score: float = 0.0  # what search ranks by: the log-probability after the length penalty
    token_log_probs: np.ndarray | None = None  # (T,)
    alignment: np.ndarray | None = None  # (T, S), rows sum to 1
    source_tokens: tuple[str, ...] = ()
    source_token_ids: tuple[int, ...] = ()
    n_best: tuple["Translation", ...] = ()  # best first, when more than one was asked for


class Translator:
    """A `Seq2Seq` model with its tokenizers: text in, text out.

    Arguments:
        model: A `keras_attn.models.Seq2Seq`.
        source_tokenizer, target_tokenizer: `keras_attn.Tokenizer`, one for each side (twice the same for a
            joint one).
        max_length_ratio, max_length_constant: A translation has at most `ratio * source tokens + constant`
            tokens. The limit belongs to the sentence alone, so that its translation never depends on its
            batch mates.

    Raises:
        ValueError: if a vocabulary is not as large as the model's.

    Example:
        >>> translator = keras_attn.Translator(model, source_tokenizer, target_tokenizer)
        >>> translator.generate(["two dogs"], beam_size=5)[0].text
        'deux chiens'
    """

    def __init__(
        self,
        model: Seq2Seq,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        *,
        max_length_ratio: float = 2.0,
        max_length_constant: int = 20,
    ):
        for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
            expected = getattr(model, f"{side}_vocabulary_size")
            if tokenizer.vocabulary_size != expected:
                raise ValueError(
                    f"Expected a {side} tokenizer with the model's {expected} ids. "
                    f"Received one with {tokenizer.vocabulary_size}."
                )
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_length_ratio = max_length_ratio
        self.max_length_constant = max_length_constant
        self._searches: dict[tuple, _Search] = {}

    def generate(
        self,
        texts: Sequence[str],
        *,
        beam_size: int = 5,
        batch_size: int = 64,
        n_best: int = 1,
        length_penalty: float = 1.0,
        max_length: int | None = None,
        return_alignments: bool = True,
        tokens_per_batch: int = 8192,
        **search_options,
    ) -> list[Translation]:
        """Translates sentences; the result is in the order of `texts` and the same for any `batch_size`.

        Sentences are sorted by length and padded to a bounded set of shapes, so that nothing is compiled
        twice.

        Arguments:
            texts: Sentences. A blank one gives a `Translation` with the text "".
            beam_size: Hypotheses kept at each step; 1 is greedy search.
            batch_size: Sentences searched at once, at most.
            n_best: Hypotheses returned for each sentence, in `Translation.n_best`; at most `beam_size`.
            length_penalty: The exponent of the length normalisation.
            max_length: Longest output in tokens, the end token included; None: the translator's own limit.
            return_alignments: Whether alignments are followed; without them search is a little quicker.
            tokens_per_batch: Padded source tokens searched at once, at most (a single longer sentence still
                is), which bounds the memory.
            search_options: Further keyword arguments of `keras_attn.search.beam_search`.

        Raises:
            ValueError: for a text that is not valid Unicode, an unknown option, or a size out of range.
        """
        if isinstance(texts, str):
            raise ValueError("Expected `texts` to be a list of strings. Received one string; put it into a list.")
        _check_sizes(beam_size=beam_size, batch_size=batch_size, n_best=n_best, tokens_per_batch=tokens_per_batch)
        if max_length is not None:
            _check_sizes(max_length=max_length)
        if n_best > beam_size:
            raise ValueError(f"Expected n_best to be at most beam_size={beam_size}. Received: n_best={n_best}")
        options = _check_options(search_options)
        options |= {"beam_size": beam_size, "n_best": n_best, "length_penalty": length_penalty}
        options["return_alignments"] = return_alignments

        encoded = self.source_tokenizer.encode_batch(texts)
        sources = [
            [*ids, END_ID] if text.strip(BLANKS) and ids else [] for text, ids in zip(texts, encoded, strict=True)
        ]
        results = [Translation("")] * len(sources)
        for rows, shape in _batches([len(ids) for ids in sources], batch_size, tokens_per_batch):
            found = self._search_batch([sources[row] for row in rows], shape, max_length, options)
            for row, translation in zip(rows, found, strict=True):
                results[row] = translation
        return results

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes model, tokenizers and a manifest with each file's size and SHA-256 into `directory`.

        Everything is written beside it and then moved into place, the manifest last: a directory with one is
        whole. The optimizer's state is left out. The files load on every backend.

        Raises:
            FileExistsError: if `directory` already holds a preset, or part of one.
        """
        directory = Path(directory).absolute()
        names = ("model.keras", "source_tokenizer", "target_tokenizer", manifest.NAME)
        taken = [name for name in names if (directory / name).exists()]
        if taken or directory.is_file():
            raise FileExistsError(
                f"Expected {str(directory)!r} to hold no preset, which is never overwritten. "
                f"It already has: {', '.join(taken) or 'a file of that name'}"
            )
        beside = directory.parent / f".tmp-{directory.name}-{os.getpid()}"
        beside.mkdir(parents=True)
        try:
            _without_optimizer(self.model).save(beside / "model.keras")
            self.source_tokenizer.save(beside / "source_tokenizer")
            self.target_tokenizer.save(beside / "target_tokenizer")
            manifest.write(beside, self._options())
            if directory.exists():
                for name in names:
                    os.replace(beside / name, directory / name)
            else:
                os.replace(beside, directory)
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    @classmethod
    def from_preset(cls, directory: str | Path) -> "Translator":
        """Loads what `save_to_preset` wrote, on any backend, in Keras' safe mode.

        Raises:
            FileNotFoundError: if `directory` holds no preset, or a file of it is missing.
            ValueError: if a file is truncated or changed, or the format is not known.
        """
        directory = Path(directory)
        options = manifest.read(directory, ("max_length_ratio", "max_length_constant"))
        model = keras.saving.load_model(directory / "model.keras", compile=False)
        source_tokenizer = Tokenizer.load(directory / "source_tokenizer")
        target_tokenizer = Tokenizer.load(directory / "target_tokenizer")
        return cls(model, source_tokenizer, target_tokenizer, **options)

    def export(self, directory: str | Path, **options) -> Path:
        """Writes a SavedModel for TensorFlow Serving, the next version in `directory`; returns its folder.

        The options (beam_size, length_penalty, ...) are those of `keras_attn.serving.export_translator`.
        """
        # Here, not above: serving imports this module.
        from keras_attn.serving import export_translator

        return export_translator(self, directory, **options)

    def _options(self) -> dict[str, float]:
        return {"max_length_ratio": self.max_length_ratio, "max_length_constant": self.max_length_constant}

    def _limit(self, length: int) -> int:
        return math.ceil(self.max_length_ratio * length + self.max_length_constant)

    def _search_batch(self, sources, shape, max_length, options) -> list[Translation]:
        rows, width = shape
        token_ids = np.zeros(shape, "int32")  # (B, S)
        token_ids[:, 0] = END_ID  # rows that only fill the batch hold an empty sentence, of one step
        row_max_length = np.ones(rows, "int32")  # (B,)
        for row, ids in enumerate(sources):
            token_ids[row, : len(ids)] = ids
            row_max_length[row] = max_length or self._limit(len(ids))
        # L is only room, for search ends when its last row does: powers of two make few models to trace.
        search = self._search(_power_of_two(max_length or self._limit(width)), options)
        found = search.predict_on_batch({"encoder_token_ids": token_ids, "row_max_length": row_max_length})
        return [self._translation(ids, {k: v[row] for k, v in found.items()}) for row, ids in enumerate(sources)]

    def _search(self, max_length: int, options: dict) -> "_Search":
        key = (max_length, *sorted((name, repr(value)) for name, value in options.items()))
        if key not in self._searches:
            self._searches[key] = _Search(self.model, max_length, **options)
        return self._searches[key]

    def _translation(self, source_ids, found) -> Translation:
        source_tokens = tuple(self.source_tokenizer.tokens(source_ids))
        n_best = []
        for n, length in enumerate(found["lengths"]):
            if n and not length:  # fewer hypotheses exist than were asked for
                break
            ids = [int(i) for i in found["token_ids"][n, :length]]
            alignment = found.get("alignments")
            n_best.append(
                Translation(
                    text=self.target_tokenizer.decode(ids),
                    tokens=tuple(self.target_tokenizer.tokens(ids)),
                    token_ids=tuple(ids),
                    score=float(found["scores"][n]),
                    token_log_probs=found["token_log_probs"][n, :length].copy(),
                    alignment=None if alignment is None else alignment[n, :length, : len(source_ids)].copy(),
                    source_tokens=source_tokens,
                    source_token_ids=tuple(source_ids),
                )
            )
        return n_best[0] if len(found["lengths"]) == 1 else replace(n_best[0], n_best=tuple(n_best))


class _Search(keras.Model):
    """Encoding and search as one model, so that `predict_on_batch` compiles it as each backend does.

    L is static: one of these for each longest output; a compiled shape for each (B, S) that it meets.
    """

    def __init__(self, seq2seq, max_length, *, beam_size, **options):
        super().__init__(name="search")
        self.seq2seq = seq2seq
        self.max_length = max_length
        # Greedy search knows no penalties; with K = 1 they would change nothing but the score.
        self.search = greedy_search if beam_size == 1 else beam_search
        known = inspect.signature(self.search).parameters
        self.options = {k: v for k, v in {"beam_size": beam_size, **options}.items() if k in known}
        self.built = True
        self.compile(jit_compile="auto")

    def call(self, inputs):
        memory, state = self.seq2seq.encode(inputs["encoder_token_ids"])
        result = self.search(
            self.seq2seq.step,
            memory,
            state,
            max_length=self.max_length,
            row_max_length=inputs["row_max_length"],
            **self.options,
        )
        return {name: value for name, value in result._asdict().items() if value is not None}


def _check_sizes(**sizes) -> None:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise ValueError(f"Expected {name} to be a whole number of at least 1. Received: {name}={size!r}")


def _check_options(options: dict) -> dict:
    ours = ("max_length", "row_max_length", "beam_size", "n_best", "length_penalty", "return_alignments")
    parameters = inspect.signature(beam_search).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in ours]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(f"Expected search options among: {', '.join(known)}. Received: {', '.join(unknown)}")
    return dict(options)


def _batches(lengths: list[int], batch_size: int, tokens_per_batch: int):
    """Yields (rows, (B, S)), longest sentences first; empty ones are in no batch.

    B is `batch_size` or a power of two below it and S a bucket, so that few shapes are ever compiled.
    """
    order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row])
    sizes = [2**n for n in range((batch_size - 1).bit_length())] + [batch_size]
    start = 0
    while start < len(order):
        width = _bucket(lengths[order[start]])
        room = max(size for size in sizes if size == 1 or size * width <= tokens_per_batch)
        rows = order[start : start + room]
        yield rows, (min(size for size in sizes if size >= len(rows)), width)
        start += room


def _bucket(length: int) -> int:
    """The smallest of 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, ... that is at least `length`."""
    step = max(4, 2 ** ((length - 1).bit_length() - 3))
    return -(-length // step) * step


def _power_of_two(length: int) -> int:
    """The smallest of 32, 64, 128, ... that is at least `length`."""
    return max(32, 1 << (length - 1).bit_length())


def _without_optimizer(model):
    """A copy of the model that was never compiled: Keras saves an optimizer's state, twice the weights."""
    bare = type(model).from_config(model.get_config())
    bare.set_weights(model.get_weights())
    return bare
