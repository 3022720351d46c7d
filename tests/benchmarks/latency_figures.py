"""The goals of the 13.0 M configuration, and the figures of `tests.benchmarks.latency` beside them."""

from collections.abc import Sequence
from typing import NamedTuple

from recipes.pages.results import table

BACKENDS = ("jax", "tensorflow", "torch")
BATCH = 32
LEAST_BLEU = 16
_ABOUT = ("products", "bleu", "float32_bleu", "changed_strings", "same_strings", "load_average")
SHARES = ("share_of_gemm", "share_of_bandwidth")


class Figure(NamedTuple):
    """A figure: its key in what a row measured, its unit, and the goals of the systems."""

    name: str
    key: str
    unit: str
    goals: dict[str, float]


FIGURES = (
    Figure("one sentence", "single_sentence_ms", "ms", {"jax": 10, "tensorflow": 15, "torch": 25, "exported": 12}),
    Figure(
        f"batches of {BATCH}",
        "sentences_per_second",
        "sentences/s",
        {"jax": 300, "tensorflow": 250, "torch": 170, "exported": 220},
    ),
    Figure("first translation", "first_seconds", "s", dict.fromkeys(BACKENDS, 4)),
    Figure("next line", "next_seconds", "s", dict.fromkeys(BACKENDS, 0.5)),
    Figure("first translation, nothing compiled", "empty_cache_seconds", "s", {}),
    Figure("export", "export_seconds", "s", {"exported": 10}),
    Figure("load", "load_seconds", "s", {"exported": 0.4}),
    Figure("resident memory", "resident_mb", "MB", {"exported": 500}),
    Figure("graph", "graph_bytes", "bytes", {}),
)


def figures(row: str, found: dict, bleu: float) -> list[dict]:
    """The figures of a row, with their goals.

    Args:
        row: Its name.
        found: What it measured; or why it was skipped, as "skipped".
        bleu: Of the run. Below 16 no goal is met or missed, because the quality decides the lengths.
    """
    system = row.removeprefix("start-")
    if "skipped" in found:
        return [{"system": system, "figure": one.name, "skipped": found["skipped"]} for one in FIGURES[:2]]
    about = {name: found[name] for name in _ABOUT if name in found}
    shown = []
    for name, key, unit, goals in FIGURES:
        if key not in found:
            continue
        value, goal = found[key], goals.get(system.partition("-")[0])
        one = {"system": system, "figure": name, "value": value, "unit": unit, "spread": found.get(f"{key}_spread")}
        one |= {"goal": goal, "met": None}
        if goal is not None and bleu >= LEAST_BLEU:
            one["met"] = value >= goal if unit.endswith("/s") else value <= goal
        shares = {"single_sentence_ms": found.get("single", {}), "sentences_per_second": found}.get(key, {})
        shown.append(one | {share: shares[share] for share in SHARES if share in shares} | about)
    return shown


def page_table(rows: Sequence[dict]) -> str:
    """The figures as a table in Markdown, for docs/performance.md."""

    def text(value: float | None) -> str:
        return "" if value is None else f"{value:,}"

    head = ["system", "figure", "measured", "10 % to 90 %", "goal", "met", "of matrix products", "of bandwidth"]
    lines = []
    for row in rows:
        line = [row["system"], row["figure"]]
        if "skipped" in row:
            lines.append([*line, "skipped", *[""] * 5])
            continue
        spread = " to ".join(map(text, row["spread"] or ()))
        is_met = {None: "", True: "yes", False: "no"}[row["met"]]
        line += [f"{text(row['value'])} {row['unit']}", spread, text(row["goal"]), is_met]
        lines.append([*line, *(text(row.get(name)) for name in SHARES)])
    return table(head, lines)
