"""What a run is scored by, as its configuration's `metric` says: translations by BLEU, pronunciations by errors.

A word of a pronouncing dictionary may have several lines, each with another right answer. For error rates each distinct
source line is one item, and every target line that stands beside it is right.
"""

import math
from collections.abc import Mapping, Sequence

from keras_attn.evaluation import error_rates
from keras_attn.evaluation import scores as metrics


def validation(
    metric: str, sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str], tokenize: str
) -> float:
    """The one score that decides which epoch is kept."""
    if metric == "wer":
        return error_rates.word_error_rate(*items(sources, references, hypotheses)).score
    return metrics.bleu(hypotheses, references, tokenize=tokenize).score


def is_better(metric: str, score: float, best: float | None) -> bool:
    """Whether `score` beats the best so far; None is no score yet."""
    return best is None or (score < best if metric == "wer" else score > best)


def scores(
    metric: str,
    sources: Sequence[str],
    references: Sequence[str],
    hypotheses: Sequence[str],
    tokenize: str,
    *,
    main_only: bool = False,
) -> dict[str, dict]:
    """The scores of a report, each with its signature; the first, or only, one is what `validation` gives."""
    if metric == "bleu":
        from recipes.training import report  # matplotlib, which that imports, is slow

        return report.scores(hypotheses, references, tokenize, **({"names": ("bleu",)} if main_only else {}))
    scored = items(sources, references, hypotheses)
    found = {"wer": error_rates.word_error_rate(*scored)}
    if not main_only:
        found["per"] = error_rates.phoneme_error_rate(*scored)
    return {name: {"score": round(s.score, 2), "signature": s.signature} for name, s in found.items()}


def items(
    sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Each distinct source once, in their order: its first hypothesis, and all its right answers."""
    found: dict[str, tuple[str, list[str]]] = {}
    for source, reference, hypothesis in zip(sources, references, hypotheses, strict=True):
        found.setdefault(source, (hypothesis, []))[1].append(reference)
    return [hypothesis for hypothesis, _ in found.values()], [answers for _, answers in found.values()]


def repeated(metric: str, splits: Mapping[str, tuple[list[str], list[str]]]) -> dict[str, int]:
    """Of items that are right or wrong as a whole: how many of the test were seen in training."""
    if metric == "bleu":
        return {}
    return {"test_sources_in_training": len(set(splits["test"][0]) & set(splits["train"][0]))}


def compare(
    sources: Sequence[str], references: Sequence[str], first: Sequence[str], second: Sequence[str]
) -> dict[str, float]:
    """McNemar's exact test of two systems: items that one alone gets right, and the chance of so uneven a split."""
    right = []
    for hypotheses in (first, second):
        chosen, answers = items(sources, references, hypotheses)
        right.append([one.split() in [a.split() for a in many] for one, many in zip(chosen, answers, strict=True)])
    alone = [sum(a and not b for a, b in zip(*order, strict=True)) for order in (right, right[::-1])]
    tail = sum(math.comb(sum(alone), k) for k in range(min(alone) + 1))
    p_value = min(1.0, 2 * tail / 2 ** sum(alone))
    return {"only_first_right": alone[0], "only_second_right": alone[1], "p_value": p_value}


def details(name: str, report: dict) -> str:
    """A run scored by errors, as a part of the results page in Markdown."""
    curve = ", ".join(f"{rate:.1f}" for rate in report["history"]["val_wer"])
    wer, per, greedy = (report[key]["score"] for key in ("wer", "per", "greedy_wer"))
    return (
        f"Word error rate **{wer:.2f} %**, phoneme error rate {per:.2f} % (beam {report['beam_size']}; "
        f"`{report['wer']['signature']}`: any of a word's pronunciations is right, and each word counts once); greedy "
        f"word error rate {greedy:.2f} %. {report['test_sources_in_training']} words of the test stand in the training "
        f"split. [{name}](reports/{name}.json): {report['parameters'] / 1e6:.1f} M parameters, {report['epochs']} "
        f"epochs, {report['train_seconds'] / 60:.1f} minutes on {report['hardware']['cores']} cores "
        f"({report['backend']}), {report['target_tokens_per_second']:,} target tokens/s, seed {report['seed']}. "
        f"Validation word error rate (greedy) after each epoch: {curve}.\n\n![Training curves](reports/{name}.svg)"
    )
