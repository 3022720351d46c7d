"""The options that a user may choose for a search: each with its default, its help and its check, written once.

`Translator.generate` and `Translator.sample` take the fields as keyword arguments, the command line derives its flags
from them, and export adds its own to them.
"""

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from keras_attn.suggestions import did_you_mean

NORMALIZATIONS = ("gnmt", "average", "none")  # of `length_norm`
FLOAT32 = np.finfo("float32")
MOST_PENALTY = 1e30  # of coverage, whose sum for a long source is finite in float32
LONGEST = 100_000  # tokens of a translation, whatever a ratio gives: the memory of a search grows with it


def option(
    default: Any,
    help: str,
    *,
    range: tuple[float, float] | None = None,
    choices: tuple | None = None,
    flag: str | None = None,
    const: Any = None,
) -> Any:
    """A dataclass field with the metadata from which a command derives a flag.

    Args:
        default: The field's default.
        help: One line for `--help`.
        range: Lowest and highest number that a command accepts. From Python a wider range may be valid.
        choices: All valid values.
        flag: The flag's name, where it is not the field's: `beam_size` is `--beam`.
        const: The value that the flag alone stands for, of a flag without an argument.
    """
    metadata = {"help": help, "range": range, "choices": choices, "flag": flag, "const": const}
    return dataclasses.field(default=default, metadata={k: v for k, v in metadata.items() if v is not None})


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Options that beam search and sampling share. All lengths are in tokens and count the end token.

    Args:
        length_penalty: Exponent of the length normalisation, at least 0.
        normalization: "gnmt", "average" or "none"; see `keras_attn.search.length_norm`.
        max_length: Longest output.
        max_length_ratio: Longest output as a multiple of the source length. If both limits are given, the smaller
            one holds; if neither is, the translator's own limit.
        min_length, min_length_ratio: Shortest output. If both are given, the larger one holds. A longest output that
            is shorter prevails.
        banned_tokens: Tokens that are never produced, as entries of the target vocabulary (such as "<unk>") or ids.
        no_repeat_ngram_size: No n-gram of this size occurs twice in an output; 0 turns this off.
        batch_size: Sentences searched at once, at most.
        tokens_per_batch: Padded source tokens searched at once, at most (a single longer sentence is still
            searched), which bounds the memory.

    Raises:
        ValueError: if a value is out of range.
    """

    length_penalty: float = option(1.0, "exponent of the length normalisation", range=(0, 10))
    normalization: str = option("gnmt", "length normalisation", choices=NORMALIZATIONS)
    max_length: int | None = option(None, "longest translation, in tokens", range=(1, 10_000))
    max_length_ratio: float | None = option(None, "longest translation, per source token", range=(0.01, 1000))
    min_length: int | None = option(None, "shortest translation, in tokens", range=(1, 10_000))
    min_length_ratio: float | None = option(None, "shortest translation, per source token", range=(0.01, 1000))
    banned_tokens: Sequence[str | int] = option((), "never write <unk>", flag="--no-unknown", const=("<unk>",))
    no_repeat_ngram_size: int = option(0, "no N tokens twice in the same order", range=(1, 100), flag="--no-repeat")
    batch_size: int = option(64, "sentences at once, at most", range=(1, 100_000))
    tokens_per_batch: int = option(8192, "source tokens at once, at most", range=(1, 10**8))

    def __post_init__(self):
        as_python_numbers(self)
        check_sizes(batch_size=self.batch_size, tokens_per_batch=self.tokens_per_batch)
        check_sizes(minimum=0, no_repeat_ngram_size=self.no_repeat_ngram_size)
        check_numbers(length_penalty=self.length_penalty)
        if not isinstance(self.normalization, str) or self.normalization not in NORMALIZATIONS:
            raise ValueError(
                f"Expected normalization to be one of {NORMALIZATIONS}. Received: normalization={self.normalization!r}"
            )
        if isinstance(self.banned_tokens, str) or not isinstance(self.banned_tokens, Iterable):
            received = "one string: " if isinstance(self.banned_tokens, str) else ""
            raise ValueError(
                "Expected banned_tokens to be a list of tokens or ids. "
                f"Received {received}banned_tokens={self.banned_tokens!r}"
            )
        Limits(self.max_length, self.max_length_ratio, 0.0, self.min_length, self.min_length_ratio)

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any]) -> Self:
        """The options with these names and values.

        Raises:
            ValueError: if a name is unknown, with the list of the valid ones, or a value is out of range.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        if unknown := [name for name in keywords if name not in names]:
            received = ", ".join(name + did_you_mean(name, names) for name in unknown)
            raise ValueError(f"Expected search options among: {', '.join(names)}. Received: {received}")
        return cls(**keywords)

    @classmethod
    def for_arrays(cls, keywords: Mapping[str, Any]) -> Self:
        """The options of a search of arrays, whose source has no length in tokens; see `from_keywords`.

        Raises:
            ValueError: also without `max_length`, and for a ratio of lengths.
        """
        options = cls.from_keywords(keywords)
        names = "max_length", "max_length_ratio", "min_length_ratio"
        length, *ratios = found = [getattr(options, name) for name in names]
        if length is None or ratios != [None, None]:
            received = ", ".join(f"{name}={value}" for name, value in zip(names, found, strict=True))
            raise ValueError(
                "Expected lengths as numbers of tokens, `max_length` and `min_length`, without ratios. "
                f"Received: {received}"
            )
        return options

    def arguments_of(self, search: Callable) -> dict[str, Any]:
        """The keyword arguments that `search` (`beam_search`, `greedy_search` or `sample`) takes from these options.

        Lengths are not among them: they become the limits of each sentence. Nor are banned tokens, which become ids.
        """
        names = inspect.signature(search).parameters.keys() - {"max_length"}
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions(CommonOptions):
    """The options of `Translator.generate`.

    Args:
        beam_size: Hypotheses kept at each step; 1 is greedy search.
        n_best: Hypotheses returned for each sentence, at most `beam_size`.
        coverage_penalty: Weight of the penalty for source tokens that got little attention, at least 0.
        early_stopping: Whether a sentence ends as soon as `beam_size` hypotheses have finished, which may miss a
            better one.

    For the other options see `CommonOptions`.

    Example:
        >>> keras_attn.search.SearchOptions(beam_size=10, length_penalty=0.6).beam_size
        10
    """

    beam_size: int = option(5, "hypotheses kept at each step; 1 is greedy search", range=(1, 1000), flag="--beam")
    n_best: int = option(1, "translations of each sentence", range=(1, 1000))
    coverage_penalty: float = option(0.0, "penalty for source tokens without attention", range=(0, 100))
    early_stopping: bool = option(False, "stop when `beam` hypotheses have finished; may miss a better one", const=True)

    def __post_init__(self):
        super().__post_init__()
        check_sizes(beam_size=self.beam_size)
        check_numbers(coverage_penalty=self.coverage_penalty, maximum=MOST_PENALTY)
        if self.n_best is not None:  # None is for subclasses whose default is the whole beam
            check_sizes(n_best=self.n_best)
            if self.n_best > self.beam_size:
                raise ValueError(
                    f"Expected n_best to be at most beam_size={self.beam_size}. Received: n_best={self.n_best}"
                )
        if not isinstance(self.early_stopping, (bool, np.bool_)):
            raise ValueError(
                f"Expected early_stopping to be True or False. Received: early_stopping={self.early_stopping!r}"
            )

    @property
    def is_greedy(self) -> bool:
        """True if greedy search gives the same result, that of a beam of one without a coverage penalty."""
        return self.beam_size == 1 and not self.coverage_penalty


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleOptions(CommonOptions):
    """The options of `Translator.sample`.

    Args:
        num_samples: Translations drawn for each sentence; two may be alike.
        temperature: From 1e-37 to 1e37; log-probabilities are divided by it.
        top_k: Only the `top_k` most probable tokens are drawn; 0 turns this off.
        top_p: Only the fewest tokens that hold this share of the probability are drawn, in (0, 1]; 1 turns this off.

    For the other options see `CommonOptions`.

    Example:
        >>> keras_attn.search.SampleOptions(num_samples=3, top_p=0.9).temperature
        1.0
    """

    length_penalty: float = option(0.0, "exponent of the length normalisation", range=(0, 10))
    normalization: str = option("none", "length normalisation", choices=NORMALIZATIONS)
    num_samples: int = option(1, "samples of each sentence", range=(1, 1000), flag="--samples")
    temperature: float = option(1.0, "divides the log-probabilities", range=(1e-3, 1e3))
    top_k: int = option(0, "only the N most probable tokens", range=(0, 10**6))
    top_p: float = option(1.0, "only the most probable tokens that hold this share", range=(1e-6, 1))

    def __post_init__(self):
        super().__post_init__()
        check_sampling(self.num_samples, self.temperature, self.top_k, self.top_p)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Shortest and longest translation of n source tokens. All lengths count the end token.

    Args:
        max_length, max_length_ratio, constant: A translation has at most `max_length` and at most
            `max_length_ratio * n + constant` tokens, rounded up. None: no such limit.
        min_length, min_length_ratio: It has at least `min_length` and at least `min_length_ratio * n` tokens, rounded
            up.

    No limit is above 100,000 tokens.

    Raises:
        ValueError: if a limit is out of range, or `min_length` is above `max_length`.

    Example:
        >>> keras_attn.search.Limits(max_length_ratio=2.0, constant=5.0, max_length=20).max_length
        20
    """

    max_length: int | None = None
    max_length_ratio: float | None = None
    constant: float = 0.0
    min_length: int | None = None
    min_length_ratio: float | None = None

    def __post_init__(self):
        as_python_numbers(self)
        for name in ("max_length", "min_length"):
            if (length := getattr(self, name)) is not None:
                check_sizes(maximum=LONGEST, **{name: length})
        for name in ("max_length_ratio", "min_length_ratio"):
            if (ratio := getattr(self, name)) is not None:
                check_numbers(**{name: ratio}, above=name == "min_length_ratio" or not self.constant)
        if self.max_length and self.min_length and self.min_length > self.max_length:
            raise ValueError(
                f"Expected min_length to be at most max_length={self.max_length}. "
                f"Received: min_length={self.min_length}"
            )

    def longest(self, source_length: int) -> int:
        longest = LONGEST if self.max_length is None else self.max_length
        if self.max_length_ratio is not None:
            longest = min(longest, self.max_length_ratio * source_length + self.constant)
        return max(1, math.ceil(longest))

    def shortest(self, source_length: int) -> int:
        return max(self.min_length or 1, math.ceil(min(LONGEST, (self.min_length_ratio or 0) * source_length)))


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


def length_norm(normalization: str, length_penalty: float, lengths: Any) -> Any:
    """The divisors of log-probabilities of hypotheses of these lengths.

    Args:
        normalization: "gnmt" is ((5 + length) / 6)^length_penalty (Wu et al. 2016, arXiv:1609.08144, eq. 14),
            "average" is length^length_penalty (with 1 the mean log-probability of a token), "none" is 1.
        length_penalty: The exponent, at least 0.
        lengths: An array or tensor of floats. A length includes the end token, as in JoeyNMT, fairseq and
            Tensor2Tensor; tfa.seq2seq leaves it out.

    Returns:
        An array or tensor of the shape of `lengths`.

    Raises:
        ValueError: if the normalisation is unknown, the penalty is negative or not finite, or a divisor of an array of
            lengths is too large for float32.

    Example:
        >>> keras_attn.search.length_norm("gnmt", 1.0, np.array([1.0, 7.0]))
        array([1., 2.])
    """
    bases = {"gnmt": (5.0 + lengths) / 6.0, "average": lengths, "none": lengths**0.0}
    if normalization not in bases:
        raise ValueError(
            f"Expected `normalization` to be one of {sorted(bases)}. Received: normalization={normalization!r}"
        )
    # A negative one would penalise length, and break the bound at which a row stops.
    check_numbers(length_penalty=length_penalty)
    with np.errstate(over="ignore"):
        norms = bases[normalization] ** length_penalty
    if isinstance(norms, np.ndarray) and not (norms <= FLOAT32.max).all():
        raise ValueError(
            f"Expected a length_penalty with finite norms in float32. Received: length_penalty={length_penalty!r}, for "
            f"normalization={normalization!r} and {int(np.max(lengths))} tokens"
        )
    return norms


def as_python_numbers(options: Any) -> None:
    """Replaces the numbers of NumPy among the fields of a dataclass by Python's, which have `bit_length`."""
    for field in dataclasses.fields(options):
        if isinstance(value := getattr(options, field.name), np.generic):
            object.__setattr__(options, field.name, value.item())


def check_constraints(max_length: Any, forced_prefix: Any, banned_token_ids: Iterable[int], end: int | None) -> None:
    """Refuses limits with which no hypothesis could end.

    Args:
        max_length, forced_prefix, banned_token_ids: As for `beam_search`.
        end: The end token's id, or None.

    Raises:
        ValueError: for a prefix `(B, P)` that is longer than `max_length`, and for a banned end token.
    """
    if end in banned_token_ids:
        raise ValueError(
            f"Expected `banned_token_ids` without the end token {end}, since no hypothesis could end. "
            f"Received: banned_token_ids={sorted(banned_token_ids)}"
        )
    if forced_prefix is not None and forced_prefix.shape[1] is not None and forced_prefix.shape[1] > max_length:
        raise ValueError(
            f"Expected `forced_prefix` of at most max_length={max_length} tokens. "
            f"Received: forced_prefix of shape {tuple(forced_prefix.shape)}"
        )


def check_sizes(minimum: int = 1, maximum: int = 2**31 - 1, **sizes) -> None:
    """Raises ValueError for values that are not whole numbers from `minimum` to `maximum`."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not minimum <= size <= maximum:
            above = isinstance(size, (int, np.integer)) and size > maximum
            expected = f"from {minimum} to {maximum:,}" if above else f"of at least {minimum}"
            raise ValueError(f"Expected {name} to be a whole number {expected}. Received: {name}={size!r}")


def check_sampling(num_samples, temperature, top_k, top_p) -> None:
    """Raises ValueError for options of `sample` out of range: see there."""
    check_sizes(num_samples=num_samples)
    check_sizes(minimum=0, top_k=top_k)
    check_numbers(above=True, temperature=temperature, top_p=top_p)
    if not 1e-37 <= temperature <= 1e37:  # XLA multiplies by the reciprocal, which must be a normal float32
        raise ValueError(f"Expected temperature from 1e-37 to 1e37. Received: temperature={temperature!r}")
    if top_p > 1:
        raise ValueError(f"Expected top_p to be at most 1. Received: top_p={top_p}")


def check_numbers(above: bool = False, maximum: float = sys.float_info.max, **numbers) -> None:
    """Raises ValueError for values that are not numbers from 0 to `maximum`, or above 0 if `above`."""
    for name, number in numbers.items():
        try:
            valid = (number > 0 if above else number >= 0) and number <= maximum
        except (TypeError, ValueError):  # no number, or an array of them
            valid = False
        if not valid:
            expected = "a number above 0" if above else "a number of at least 0"
            if isinstance(number, (int, float)) and number > maximum:
                expected += f" and at most {maximum:g}"
            raise ValueError(f"Expected {name} to be {expected}. Received: {name}={number!r}")
