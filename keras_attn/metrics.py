"""Corpus scores of translations by sacreBLEU (Post 2018), each with the signature that makes it comparable.

Pronunciations, and whatever else is right or wrong as a whole, have error rates of their own, at the end.

A score without its signature says little: the same translations differ by several BLEU from one
tokenization to another. So every function returns a `Score` that holds both.

References are either one list of strings, or several such lists (streams), one for each translator; every
list has one line for each hypothesis.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

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


def edit_distance(one: Sequence, other: Sequence) -> int:
    """The fewest insertions, deletions and substitutions that turn one sequence into the other (Levenshtein 1966).

    Example:

    >>> edit_distance("K AE T".split(), "K AH T S".split())
    2
    """
    row = list(range(len(other) + 1))
    for i, item in enumerate(one, start=1):
        diagonal, row[0] = row[0], i
        for j, counterpart in enumerate(other, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (item != counterpart))
    return row[-1]


def _check_answers(hypotheses: Sequence[str], answers: Sequence[Sequence[str]]) -> str:
    """Refuses what cannot be scored; the signature otherwise."""
    if isinstance(hypotheses, str) or isinstance(answers, str):
        raise ValueError("Expected a list of hypotheses and a list of their right answers, received one string.")
    if len(hypotheses) != len(answers) or not len(hypotheses):
        raise ValueError(
            "Expected at least one hypothesis, and for each a list of right answers, "
            f"received {len(hypotheses)} hypotheses and {len(answers)} lists of answers."
        )
    for number, right in enumerate(answers, start=1):
        if isinstance(right, str) or not len(right) or not all(answer.split() for answer in right):
            raise ValueError(
                f"Expected a list of one or more right answers that are not blank, received {right!r}, "
                f"for hypothesis {number}."
            )
    return f"items:{len(hypotheses)}|answers:{sum(map(len, answers))}|nearest"


def phoneme_error_rate(hypotheses: Sequence[str], answers: Sequence[Sequence[str]]) -> Score:
    """PER: edits to the nearest right pronunciation, for each hundred phonemes of these, lower is better.

    With y the hypothesis for a word and R its pronunciations, summed over all words:

        PER = 100 sum min_{r in R} d(y, r) / sum |r*|,   r* the nearest r

    That of several reference pronunciations the nearest counts is the field's custom (Yao & Zweig 2015,
    arXiv:1506.00196, section 4); of equally near ones the first in the list does. It is defined for any symbols with
    blanks between.

    Args:
        hypotheses: One pronunciation a word, symbols with blanks between.
        answers: For each word all its right pronunciations.

    Raises:
        ValueError: If the lists are empty or of unequal length, or a word has no right answer.

    Example:

    >>> print(phoneme_error_rate(["K AH T"], [["K AE T", "K AE T S"]]))
    PER|items:1|answers:2|nearest = 33.33 1 edit / 3 symbols
    """
    signature = _check_answers(hypotheses, answers)
    edits = length = 0
    for hypothesis, right in zip(hypotheses, answers, strict=True):
        distances = [(edit_distance(hypothesis.split(), answer.split()), len(answer.split())) for answer in right]
        nearest = min(distances, key=lambda pair: pair[0])
        edits, length = edits + nearest[0], length + nearest[1]
    return Score("PER", 100 * edits / length, signature, f"{edits} edit{'s' * (edits != 1)} / {length} symbols")


def word_error_rate(hypotheses: Sequence[str], answers: Sequence[Sequence[str]]) -> Score:
    """WER of pronunciations: words of a hundred whose hypothesis is none of the right ones, lower is better.

    This is the word error rate of grapheme-to-phoneme conversion (Yao & Zweig 2015, arXiv:1506.00196, section 4): a
    word is right if its whole hypothesis equals one of its pronunciations. That of speech recognition, edits between
    sequences of words, is another thing.

    Args, Raises: as `phoneme_error_rate`.

    Example:

    >>> print(word_error_rate(["K AH T", "D AO G"], [["K AE T", "K AE T S"], ["D AO G"]]))
    WER|items:2|answers:3|nearest = 50.00 1 wrong / 2
    """
    signature = _check_answers(hypotheses, answers)
    wrong = sum(
        hypothesis.split() not in [answer.split() for answer in right]
        for hypothesis, right in zip(hypotheses, answers, strict=True)
    )
    return Score("WER", 100 * wrong / len(hypotheses), signature, f"{wrong} wrong / {len(hypotheses)}")
