"""Corpus scores of translations by sacreBLEU (Post 2018), each with the signature that makes it comparable.

A score without its signature says little: the BLEU of the same translations differs by several points between
tokenizations. So every function returns a `Score` that has both.

References are one list of strings, or several such lists (streams), one for each translator. Every list has one line
for each hypothesis.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

References = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class Score:
    """A corpus score: `name` ("BLEU"), `score` in percent, sacreBLEU's `signature` and its `verbose` details.

    `str(score)` is sacreBLEU's line, `BLEU|nrefs:1|case:mixed|... = 38.57 70.1/45.0/...`.
    """

    name: str
    score: float
    signature: str
    verbose: str = ""

    def __str__(self) -> str:
        return f"{self.name}|{self.signature} = {self.score:.2f} {self.verbose}".rstrip()


@dataclass(frozen=True)
class Interval:
    """A `score` and its percentile interval: a share `confidence` of the resampled scores is from `low` to `high`."""

    score: Score
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Comparison:
    """The result of a paired bootstrap for one `system`: its `score`, and how certain its difference is.

    `mean` and `half_width` are the mean and half the 95 % interval of the resampled scores. `p_value` is the
    probability of so large a difference from the baseline by chance (Koehn 2004); None for the baseline itself.
    """

    system: str
    score: Score
    mean: float
    half_width: float
    p_value: float | None


def _streams(references: References) -> list[list[str]]:
    """Returns references as sacreBLEU expects them, a list of streams."""
    if isinstance(references, str):
        raise ValueError("Expected references as a list of strings. Received: one string")
    if len(references) and isinstance(references[0], str):
        references = [references]
    return [list(stream) for stream in references]


def _check(hypotheses: Sequence[str], references: References) -> tuple[list[str], list[list[str]]]:
    if isinstance(hypotheses, str):
        raise ValueError("Expected hypotheses as a list of strings. Received: one string")
    hypotheses, streams = list(hypotheses), _streams(references)
    if not hypotheses or not streams:
        raise ValueError(
            "Expected at least one hypothesis and one list of references. "
            f"Received: {len(hypotheses)} hypotheses and {len(streams)} lists of references"
        )
    for number, stream in enumerate(streams, start=1):
        if len(stream) != len(hypotheses):
            raise ValueError(
                "Expected as many references as hypotheses. "
                f"Received: {len(hypotheses)} hypotheses and {len(stream)} references (list {number})"
            )
    for kind, lines in [("hypotheses", hypotheses)] + [("references", stream) for stream in streams]:
        for number, line in enumerate(lines, start=1):
            if not isinstance(line, str):
                raise ValueError(f"Expected strings in {kind}. Received: {type(line).__name__} in line {number}")
    return hypotheses, streams


def _bleu_metric(tokenize: str, lowercase: bool) -> BLEU:
    if tokenize not in BLEU.TOKENIZERS:
        valid = ", ".join(sorted(BLEU.TOKENIZERS))
        raise ValueError(f"Expected tokenize to be one of {valid}. Received: {tokenize!r}")
    # "none" means that the text is tokenized already; `force` suppresses sacreBLEU's warning about that.
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")


def _score(metric, hypotheses: Sequence[str], references: References) -> Score:
    hypotheses, streams = _check(hypotheses, references)
    result = metric.corpus_score(hypotheses, streams)
    return Score(result.name, float(result.score), str(metric.get_signature()), result._verbose or "")


def bleu(hypotheses: Sequence[str], references: References, tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Computes corpus BLEU (Papineni et al. 2002) in percent; higher is better.

    Args:
        hypotheses: Translations, detokenized (or tokenized, with `tokenize="none"`).
        references: One list of strings, or several of them, each as long as `hypotheses`.
        tokenize: sacreBLEU's tokenizer: "13a", "intl", "zh", "ja-mecab", "char", "none", ...
        lowercase: Whether to ignore case.

    Raises:
        ValueError: If the lists are empty or differ in length, or the tokenizer is unknown.

    Example:
        >>> print(keras_attn.evaluation.bleu(["the cat sat on the mat"], ["the cat sat on a mat"]))
        BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 = 53.73 83.3/...
    """
    return _score(_bleu_metric(tokenize, lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: References, *, word_order: int = 0, lowercase: bool = False) -> Score:
    """Computes chrF2, the character 6-gram F-score (Popović 2015), in percent; higher is better.

    With `word_order=2` it includes word unigrams and bigrams and is called chrF2++.

    Args:
        hypotheses, references: As in `bleu`.
        word_order: The longest word n-gram.
        lowercase: Whether to ignore case.

    Raises:
        ValueError: If the lists are empty or differ in length.

    Example:
        >>> round(keras_attn.evaluation.chrf(["the cat sat on the mat"], ["the cat sat on a mat"]).score, 1)
        72.1
    """
    return _score(CHRF(word_order=word_order, lowercase=lowercase), hypotheses, references)


def ter(hypotheses: Sequence[str], references: References) -> Score:
    """Computes the translation edit rate (Snover et al. 2006) in percent; lower is better.

    It ignores case, and is slow, because it searches for shifts.

    Args:
        hypotheses, references: As in `bleu`.

    Raises:
        ValueError: If the lists are empty or differ in length.

    Example:
        >>> round(keras_attn.evaluation.ter(["the cat sat on the mat"], ["the cat sat on a mat"]).score, 1)
        16.7
    """
    return _score(TER(), hypotheses, references)


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
    """Computes corpus BLEU and its bootstrap interval (Koehn 2004).

    Test sets of the same size are sampled with replacement. N-grams are counted once for each sentence, and the BLEU of
    a sample is computed from sums of these counts. With the same seed, systems with equally many sentences get the same
    samples.

    Args:
        hypotheses, references, tokenize, lowercase: As in `bleu`.
        samples: Number of resampled test sets.
        confidence: Share of them inside the interval.
        seed: Seed of the samples. The default is sacreBLEU's.

    Raises:
        ValueError: As `bleu`, and if `samples` or `confidence` is out of range.

    Example:
        >>> interval = keras_attn.evaluation.bleu_interval(
        ...     ["the cat sat on the mat", "a dog"], ["the cat sat on a mat", "a dog"]
        ... )
        >>> interval.low <= interval.score.score <= interval.high
        True
    """
    if samples < 1 or not 0 < confidence < 1:
        raise ValueError(
            "Expected at least one bootstrap sample and a confidence between 0 and 1. "
            f"Received: samples={samples}, confidence={confidence}"
        )
    score = bleu(hypotheses, references, tokenize, lowercase)
    # Without effective_order sacreBLEU warns about short lines.
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True, effective_order=True)
    rows = []
    for hypothesis, *lines in zip(hypotheses, *_streams(references), strict=True):
        sentence = metric.sentence_score(hypothesis, lines)
        rows.append([*sentence.counts, *sentence.totals, sentence.sys_len, sentence.ref_len])
    counts = np.array(rows)  # (sentences, 10): 4 matches, 4 n-grams, 2 lengths
    sampled = np.random.default_rng(seed).integers(0, len(counts), (samples, len(counts)))
    scores = []
    for rows in sampled:
        *ngrams, hypothesis_length, reference_length = counts[rows].sum(axis=0).tolist()
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
    """Compares systems with a baseline by sacreBLEU's paired bootstrap resampling.

    Args:
        systems: The translations of each system, by its name. The first system is the baseline.
        references: As in `bleu`.
        names: The scores to compute, any of "bleu", "chrf", "ter".
        samples: Number of resampled test sets. The seed is sacreBLEU's (12345, or `SACREBLEU_SEED`).
        tokenize: Tokenizer of BLEU.
        lowercase: Whether BLEU and chrF ignore case.

    Returns:
        For each score, a `Comparison` for each system, in the order of `systems`.

    Raises:
        ValueError: If there are fewer than two systems, a score is unknown, or lists differ in length.

    Example:
        >>> systems = {"old": ["a cat", "two dogs"], "new": ["the cat", "two dogs"]}
        >>> references = ["the cat", "two dogs"]
        >>> comparisons = keras_attn.evaluation.paired_bootstrap(systems, references, names=["chrf"], samples=50)
        >>> [comparison.system for comparison in comparisons], comparisons[1].score.score
        (['old', 'new'], 100.0)
    """
    if len(systems) < 2:
        raise ValueError(f"Expected at least two systems, the first of them the baseline. Received: {len(systems)}")
    if samples < 1:
        raise ValueError(f"Expected at least one bootstrap sample. Received: {samples}")
    makers = {
        "bleu": lambda: _bleu_metric(tokenize, lowercase),
        "chrf": lambda: CHRF(lowercase=lowercase),
        "ter": TER,
    }
    if not names or set(names) - set(makers):
        raise ValueError(f"Expected names among: {', '.join(makers)}. Received: {', '.join(names) or 'none'}")
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
