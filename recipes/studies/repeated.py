"""Means, differences and intervals of the scores of configurations that are trained with several seeds.

The intervals are Student's, of 95 %, with one standard deviation for all configurations: that of the scores around the
mean of their configuration, pooled, so that three seeds of each are enough. They say how far chance in initialisation,
dropout and the order of the batches goes, not what other test sentences would give.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence

from keras_attn.cli import command
from recipes.studies.study import Run, Study

CONFIDENCE = 0.95
SECOND = {"bleu": "chrf", "wer": "per"}  # the other score of each metric
_OF_THE_FIRST = ("parameters", "updates", "training_pairs", "test_sentences", "command")
_QUANTILES = (12.706, 4.303, 3.182)  # Student's, of 97.5 %, for 1, 2 and 3 degrees of freedom


def add_seeds(parser: command.Parser) -> None:
    """Adds the option for the number of seeds."""
    kind = command.between(int, 1, 100)
    parser.add_argument("--seeds", type=kind, default=1, help="runs of each, from --seed on (default: %(default)s)")


def runs(variants: Sequence[Run], arguments) -> list[Run]:
    """The runs of all variants with the first seed, then with the next, so that each round is a whole table.

    A variant is a `Run` without a seed.
    """
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    return [with_seed(variant, seed) for seed in seeds for variant in variants]


def with_seed(variant: Run, seed: int) -> Run:
    """The run of a variant with a seed."""
    return dataclasses.replace(variant, name=f"{variant.name}-seed-{seed}", seed=seed)


def check(study: Study, metric: str = "bleu") -> None:
    """Raises ValueError, before hours of training, for wrong settings or runs that are not scored by this metric."""
    if other := {config.metric for config in study.configs(study.runs).values()} - {metric}:
        raise ValueError(f"Expected runs scored by {metric.upper()}. Received: {', '.join(other)}")


def rows(study: Study, variants: Sequence[Run], metric: str = "bleu") -> list[dict]:
    """A row for each variant that has a finished run: BLEU with mean, interval and scores, chrF, and what it took.

    For the metric "wer" word and phoneme error rate are in their places. An interval is the half of its width, and None
    where no variant has two seeds.
    """
    finished = study.reports()
    seeds = range(study.arguments.seed, study.arguments.seed + study.arguments.seeds)
    found = {variant.name: [finished.get(with_seed(variant, seed).name) for seed in seeds] for variant in variants}
    reports = {name: present for name, many in found.items() if (present := [one for one in many if one])}
    scores = {name: [one[metric]["score"] for one in many] for name, many in reports.items()}
    deviation = pooled_deviation(list(scores.values()))
    rows = []
    for name, many in reports.items():
        score = {"mean": round(statistics.mean(scores[name]), 2), "scores": [round(one, 2) for one in scores[name]]}
        score |= {"interval": half_width(deviation, len(many)), "signature": many[0][metric]["signature"]}
        row = {"name": name, "recipe": many[0]["recipe"], metric: score}
        row[SECOND[metric]] = round(statistics.mean(one[SECOND[metric]]["score"] for one in many), 2)
        row |= {key: many[0][key] for key in _OF_THE_FIRST}
        row["train_seconds"] = round(statistics.mean(one["train_seconds"] for one in many), 1)
        rows.append(row)
    return rows


def difference(row: dict, base: dict, scores: Sequence[Sequence[float]]) -> dict:
    """The difference of a row's mean BLEU from the base's, with its interval.

    Args:
        row, base: Rows of `rows`.
        scores: The scores of all rows, from which the standard deviation comes.
    """
    counts = len(row["bleu"]["scores"]), len(base["bleu"]["scores"])
    return {
        "difference": round(row["bleu"]["mean"] - base["bleu"]["mean"], 2),
        "interval": half_width(pooled_deviation(scores), *counts),
    }


def pooled_deviation(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """The standard deviation of scores around the mean of their group, and its degrees of freedom."""
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum((one - statistics.mean(group)) ** 2 for group in groups for one in group)
    return math.sqrt(squares / freedom) if freedom else 0.0, freedom


def half_width(deviation: tuple[float, int], *counts: int) -> float | None:
    """Half the width of the interval of a mean of `count` scores, or of the difference of two such means."""
    spread, freedom = deviation
    if not freedom:
        return None
    return round(student_quantile(freedom) * spread * math.sqrt(sum(1 / count for count in counts)), 2)


def student_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's distribution, by its expansion in 1/freedom from 4 degrees of freedom on.

    Reference: Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    if freedom <= len(_QUANTILES):
        return _QUANTILES[freedom - 1]
    z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom ** (n + 1) for n, term in enumerate(terms))
