"""Corpus scores of translations by sacreBLEU (Post 2018), each with the signature that makes it comparable.

A score without its signature says little: the same translations differ by several BLEU from one
tokenization to another. So every function returns a `Score` that holds both.

References are either one list of strings, or several such lists (streams), one for each translator; every
list has one line for each hypothesis.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

References = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class Score:
    """A corpus score: `name` ("BLEU"), `score` in percent, sacreBLEU's `signature` and `verbose` detail.

    `str(score)` is sacreBLEU's own line, `BLEU|nrefs:1|case:mixed|... = 38.57 70.1/45.0/...`.
    """

    name: str
    score: float
    signature: str
    verbose: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON: name, score, signature, verbose."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.name}|{self.signature} = {self.score:.2f} {self.verbose}".rstrip()


@dataclass(frozen=True)
class Interval:
    """A score and its percentile interval over resampled test sets: `low` and `high` bound `confidence` of them."""

    score: Score
    low: float
    high: float
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; the score nested as a dict."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """One system's line of a paired bootstrap: its score, and how sure its difference from the baseline is.

    `mean` and `half_width` are the mean and half the 95 % interval of the resampled scores. `p_value` is the
    probability of so large a difference by chance (Koehn 2004); None for the baseline itself.
    """

    system: str
    score: Score
    mean: float
    half_width: float
    p_value: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; the score nested as a dict."""
        return asdict(self)


def _streams(references: References) -> list[list[str]]:
    """References as sacreBLEU takes them, a list of streams."""
    if isinstance(references, str):
        raise ValueError("Expected references as a list of strings, received one string.")
    if len(references) and isinstance(references[0], str):
        references = [references]
    return [list(stream) for stream in references]


def _check(hypotheses: Sequence[str], references: References) -> tuple[list[str], list[list[str]]]:
    if isinstance(hypotheses, str):
        raise ValueError("Expected hypotheses as a list of strings, received one string.")
    hypotheses, streams = list(hypotheses), _streams(references)
    if not hypotheses or not streams:
        raise ValueError(
            "Expected at least one hypothesis and one list of references, "
            f"received {len(hypotheses)} hypotheses and {len(streams)} lists of references."
        )
    for number, stream in enumerate(streams, start=1):
        if len(stream) != len(hypotheses):
            raise ValueError(
                "Expected as many references as hypotheses, "
                f"received {len(hypotheses)} hypotheses and {len(stream)} references (list {number})."
            )
    for kind, lines in [("hypotheses", hypotheses)] + [("references", stream) for stream in streams]:
        for number, line in enumerate(lines, start=1):
            if not isinstance(line, str):
                raise ValueError(f"Expected strings in {kind}, received {type(line).__name__} in line {number}.")
    return hypotheses, streams


def _bleu_metric(tokenize: str, lowercase: bool) -> BLEU:
    if tokenize not in BLEU.TOKENIZERS:
        valid = ", ".join(sorted(BLEU.TOKENIZERS))
        raise ValueError(f"Expected tokenize to be one of {valid}; received {tokenize!r}.")
    # With "none" the caller says that the text is tokenized; `force` keeps sacreBLEU from warning of it.
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")


def _score(metric, hypotheses: Sequence[str], references: References) -> Score:
    hypotheses, streams = _check(hypotheses, references)
    result = metric.corpus_score(hypotheses, streams)
    return Score(result.name, float(result.score), str(metric.get_signature()), result._verbose or "")


def bleu(hypotheses: Sequence[str], references: References, tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Corpus BLEU (Papineni et al. 2002) in percent, higher is better.

    Args:
        hypotheses: Translations, detokenized (or tokenized, with `tokenize="none"`).
        references: One list of strings, or several of them; each as long as `hypotheses`.
        tokenize: sacreBLEU's tokenizer: "13a", "intl", "zh", "ja-mecab", "char", "none", ...
        lowercase: Whether case is ignored.

    Raises:
        ValueError: If the lists are empty or of unequal length, or the tokenizer is unknown.

    Example:

    >>> print(bleu(["the cat sat on the mat"], ["the cat sat on a mat"]))
    BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 = 53.73 83.3/...
    """
    return _score(_bleu_metric(tokenize, lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: References, *, word_order: int = 0, lowercase: bool = False) -> Score:
    """chrF2, the character 6-gram F-score (Popović 2015) in percent, higher is better.

    `word_order=2` adds word unigrams and bigrams and is called chrF2++.

    Raises:
        ValueError: If the lists are empty or of unequal length.
    """
    return _score(CHRF(word_order=word_order, lowercase=lowercase), hypotheses, references)


def ter(
    hypotheses: Sequence[str],
    references: References,
    *,
    normalized: bool = False,
    no_punct: bool = False,
    case_sensitive: bool = False,
) -> Score:
    """Translation edit rate (Snover et al. 2006) in percent, lower is better; slow: shifts are searched for.

    Raises:
        ValueError: If the lists are empty or of unequal length.
    """
    metric = TER(normalized=normalized, no_punct=no_punct, case_sensitive=case_sensitive)
    return _score(metric, hypotheses, references)


def bleu_interval(
    hypotheses: Sequence[str],
    references: References,
    *,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 12345,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> Interval:
    """Corpus BLEU with its bootstrap interval (Koehn 2004): test sets of the same size, drawn with replacement.

    N-grams are counted once for each sentence, and a drawn test set's BLEU is made of sums of these counts. Systems
    with as many sentences are given the same draws by the same seed.

    Args:
        samples: Number of resampled test sets.
        confidence: Share of them inside the interval.
        seed: Of the draws; sacreBLEU's own default.

    Raises:
        ValueError: As `bleu`; or for a number out of its range.

    Example:

    >>> interval = bleu_interval(["the cat sat on the mat", "a dog"], ["the cat sat on a mat", "a dog"])
    >>> interval.low <= interval.score.score <= interval.high
    True
    """
    if samples < 1 or not 0 < confidence < 1:
        raise ValueError(
            "Expected at least one bootstrap sample and a confidence between 0 and 1, "
            f"received samples={samples}, confidence={confidence}."
        )
    score = bleu(hypotheses, references, tokenize, lowercase)
    metric = BLEU(
        tokenize=tokenize, lowercase=lowercase, force=True, effective_order=True
    )  # or it warns of short lines
    rows = []
    for hypothesis, *lines in zip(hypotheses, *_streams(references), strict=True):
        found = metric.sentence_score(hypothesis, lines)
        rows.append([*found.counts, *found.totals, found.sys_len, found.ref_len])
    counts = np.array(rows)  # (sentences, 10): 4 matches, 4 n-grams, 2 lengths
    draws = np.random.default_rng(seed).integers(0, len(counts), (samples, len(counts)))
    scores = []
    for draw in draws:
        *ngrams, hypothesis_length, reference_length = counts[draw].sum(axis=0).tolist()
        lengths = {"sys_len": hypothesis_length, "ref_len": reference_length}
        scores.append(BLEU.compute_bleu(ngrams[:4], ngrams[4:], **lengths, smooth_method="exp").score)
    low, high = np.quantile(scores, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(score, float(low), float(high), confidence)


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    references: References,
    *,
    names: Sequence[str] = ("bleu", "chrf"),
    samples: int = 1000,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> list[Comparison]:
    """sacreBLEU's paired bootstrap resampling: is a system better than the baseline, or merely lucky?

    Args:
        systems: System name to translations; the first is the baseline.
        references: As in `bleu`.
        names: Which scores: any of "bleu", "chrf", "ter".
        samples: Number of resampled test sets. The seed is sacreBLEU's (12345, or `SACREBLEU_SEED`).
        tokenize: For BLEU.
        lowercase: For BLEU and chrF.

    Returns:
        For each score, one `Comparison` a system, in the order of `systems`.

    Raises:
        ValueError: With fewer than two systems, an unknown score, or lists of unequal length.
    """
    if len(systems) < 2:
        raise ValueError(f"Expected at least two systems, the first the baseline; received {len(systems)}.")
    if samples < 1:
        raise ValueError(f"Expected at least one bootstrap sample, received {samples}.")
    makers = {
        "bleu": lambda: _bleu_metric(tokenize, lowercase),
        "chrf": lambda: CHRF(lowercase=lowercase),
        "ter": TER,
    }
    if not names or set(names) - set(makers):
        raise ValueError(f"Expected names from {', '.join(makers)}; received {', '.join(names) or 'none'}.")
    checked = {system: _check(hypotheses, references)[0] for system, hypotheses in systems.items()}
    metrics = {name: makers[name]() for name in names}
    test = PairedTest(list(checked.items()), metrics, _streams(references), test_type="bs", n_samples=samples)
    signatures, results = test()
    comparisons = []
    for name, signature in signatures.items():
        for system, result in zip(results["System"], results[name], strict=True):
            score = Score(name, float(result.score), str(signature))
            p_value = None if result.p_value is None else float(result.p_value)
            comparisons.append(Comparison(system, score, float(result.mean), float(result.ci), p_value))
    return comparisons
