"""Scores by the name of a metric: "bleu" for translations, "wer" for pronunciations and other items with many answers.

A word of a pronouncing dictionary may be on several lines, each with another right answer. For error rates each
distinct source line is one item, and every target line beside it is a right answer.
"""

import math
import re
from collections.abc import Callable, Sequence

from keras_attn.evaluation.error_rates import phoneme_error_rate, word_error_rate
from keras_attn.evaluation.scores import References, bleu, chrf, ter

_STRESS = re.compile(r"(?<=[A-Z])[012]\b")  # of a vowel in ARPAbet


def main_score(
    metric: str, sources: Sequence[str], references: References, hypotheses: Sequence[str], tokenize: str
) -> float:
    """Returns the score of this name, BLEU or word error rate, as a number.

    Args:
        metric, sources, references, hypotheses, tokenize: As in `all_scores`.

    Raises:
        ValueError: For another name, and as `bleu` and `word_error_rate`.

    Example:
        >>> keras_attn.evaluation.main_score("wer", ["cat"], ["K AE T"], ["K AH T"], "none")
        100.0
    """
    _check_metric(metric)
    if metric == "wer":
        return word_error_rate(*items(sources, references, hypotheses)).score
    return bleu(hypotheses, references, tokenize=tokenize).score


def is_better(metric: str, score: float, best: float | None) -> bool:
    """Returns whether `score` is better than `best`; None is no score yet.

    Args:
        metric: "bleu", of which more is better, or "wer", of which less is.
        score, best: Two scores.

    Example:
        >>> keras_attn.evaluation.is_better("wer", 20.0, 30.0), keras_attn.evaluation.is_better("bleu", 20.0, 30.0)
        (True, False)
    """
    return best is None or (score < best if metric == "wer" else score > best)


def all_scores(
    metric: str,
    sources: Sequence[str],
    references: References,
    hypotheses: Sequence[str],
    tokenize: str,
    *,
    main_only: bool = False,
) -> dict[str, dict]:
    """Returns BLEU, chrF and TER, or word and phoneme error rate, each as `{"score": ..., "signature": ...}`.

    Pronunciations with the stress of ARPAbet, such as `HH AH0 L OW1`, also get the word error rate without stress and
    that of stress alone, `0 1`.

    Args:
        metric: "bleu" or "wer".
        sources: The source lines, which say which lines are of one item. Only "wer" reads them.
        references: A target line for each source line; or several lists of these, one for each translator.
        hypotheses: A translation of each source line.
        tokenize: sacreBLEU's tokenizer.
        main_only: Whether only the first score is computed, the one that `main_score` returns.

    Example:
        >>> scores = keras_attn.evaluation.all_scores("bleu", ["two dogs"], ["deux chiens"], ["deux chiens"], "13a")
        >>> sorted(scores)
        ['bleu', 'chrf', 'ter']
    """
    _check_metric(metric)
    if metric == "wer":
        scored = items(sources, references, hypotheses)
        scores = {"wer": word_error_rate(*scored)}
        if not main_only:
            scores["per"] = phoneme_error_rate(*scored)
            if any(_STRESS.search(answer) for answers in scored[1] for answer in answers):
                scores["wer_without_stress"] = word_error_rate(*_changed(lambda text: _STRESS.sub("", text), *scored))
                stress = _changed(lambda text: " ".join(_STRESS.findall(text)) or "none", *scored)
                scores["wer_of_stress"] = word_error_rate(*stress)
    else:
        scores = {"bleu": bleu(hypotheses, references, tokenize=tokenize)}
        if not main_only:
            scores |= {"chrf": chrf(hypotheses, references), "ter": ter(hypotheses, references)}
    return {name: {"score": round(score.score, 2), "signature": score.signature} for name, score in scores.items()}


def _check_metric(metric: str) -> None:
    if metric not in ("bleu", "wer"):
        raise ValueError(f"Expected `metric` among: bleu, wer. Received: {metric!r}")


def _changed(change: Callable[[str], str], hypotheses: list[str], answers: list[list[str]]):
    return [*map(change, hypotheses)], [[*map(change, right)] for right in answers]


def items(
    sources: Sequence[str], references: References, hypotheses: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Returns the first hypothesis of each distinct source line, in order, and all right answers of each."""
    streams = [references] if not references or isinstance(references[0], str) else references
    answered: dict[str, tuple[str, list[str]]] = {}
    for source, hypothesis, *answers in zip(sources, hypotheses, *streams, strict=True):
        answered.setdefault(source, (hypothesis, []))[1].extend(answers)
    return [hypothesis for hypothesis, _ in answered.values()], [answers for _, answers in answered.values()]


def mcnemar_test(
    sources: Sequence[str], references: References, first: Sequence[str], second: Sequence[str]
) -> dict[str, float]:
    """McNemar's exact test of two systems (McNemar 1947).

    Args:
        sources: The source lines, which say which lines are of one item.
        references: The right answers, as in `all_scores`.
        first, second: The hypotheses of the two systems, one for each source line.

    Returns:
        `only_first_right` and `only_second_right`, the numbers of items that one system alone gets right, and
        `p_value`, the probability of so uneven a split by chance.

    Example:
        >>> answers = ["K AE T", "D AO G"]
        >>> keras_attn.evaluation.mcnemar_test(["cat", "dog"], answers, answers, ["K AE T", "D AH G"])
        {'only_first_right': 1, 'only_second_right': 0, 'p_value': 1.0}
    """
    right = []
    for hypotheses in (first, second):
        chosen, answers = items(sources, references, hypotheses)
        right.append([one.split() in [a.split() for a in many] for one, many in zip(chosen, answers, strict=True)])
    alone = [sum(a and not b for a, b in zip(*order, strict=True)) for order in (right, right[::-1])]
    tail = sum(math.comb(sum(alone), k) for k in range(min(alone) + 1))
    p_value = min(1.0, 2 * tail / 2 ** sum(alone))
    return {"only_first_right": alone[0], "only_second_right": alone[1], "p_value": p_value}
