"""The sections of pronunciation on the results page."""

from collections.abc import Sequence

from recipes.pages.alt_texts import of_study
from recipes.pages.markdown import cost, plus_minus, table

_COLUMNS = {"single": "", "probability": ", ensemble by probability", "vote": ", ensemble by vote"}


def section(name: str, report: dict) -> list[str]:
    """The paragraphs, tables and figure of `recipes.studies.g2p`."""
    systems = list(dict.fromkeys(one["name"] for row in report["languages"] for one in row["scores"]))
    kinds = [
        (system, kind)
        for system in systems
        for kind in _COLUMNS
        if any(_has(one, system, kind) for row in report["languages"] for one in row["scores"])
    ]
    head = ["language", "training words", "baseline", *(f"{system}{_COLUMNS[kind]}" for system, kind in kinds)]
    rows = [
        [row["language"], f"{row['training_pairs']:,}", f"{row['baseline']:.2f}", *_cells(row["scores"], kinds)]
        for row in report["languages"]
    ]
    for mean in report["means"]:
        title = f"mean of the {mean['languages']} ({mean['amount']})"
        rows.append([title, "", f"{mean['baseline']:.2f}", *_cells(mean["scores"], kinds)])
    singles = [(row, one) for row in report["languages"] for one in row["scores"] if one["kind"] == "single"]
    runs = [
        [
            row["language"],
            one["name"],
            ", ".join(f"{score:.2f}" for score in one["wer"]["scores"]),
            f"{one['parameters']:,}",
            f"{one['updates']:,}",
            f"{one['train_seconds'] / 60:.1f}",
            f"`{one['command']}`",
        ]
        for row, one in singles
    ]
    counts = {len(one["wer"]["scores"]) for _, one in singles}
    seeds = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    repeated = (
        "One seed."
        if counts == {1}
        else f"Single models have the mean of {seeds} seeds, with its {report['confidence']:.0%} interval over seeds; "
        "an ensemble has all seeds of a system, or of several systems."
    )
    if starts := report.get("starts"):
        begun = ", ".join(f"`{text.partition('=')[0]}`" for text in starts)
        repeated = f"Each run of {begun} goes on from one of all languages (`--from`). {repeated}"
    return [
        f"Word error rate in percent, and phoneme error rate in brackets, of the test words; beam "
        f"{report['beam_size']}. {repeated} The baseline is that of the second SIGMORPHON shared task (Ashby et al. "
        f"2021), an ensemble of neural transducers. {cost(report)}",
        f"![{of_study(report)}](reports/{name}.svg)",
        table(head, rows),
        table(["language", "system", "single seeds", "parameters", "updates", "minutes", "command"], runs),
    ]


def peers(name: str, report: dict) -> list[str]:
    """The paragraph and the table of `tests.benchmarks.pronunciation_peers`."""
    rows = []
    for one in sorted(report["systems"], key=lambda one: one["wer"]["score"]):
        minutes = f"{one['train_seconds'] / 60:.1f}" if "train_seconds" in one else ""
        rates = [f"{one[key]['score']:.2f}" for key in ("wer", "per")]
        words = f"{one['words_per_second']:,.0f}" if "words_per_second" in one else ""
        name = f"`{one['command']}`" if "command" in one else one["name"]
        rows.append([name, one["about"], *rates, words, minutes])
    head = ["system", "what it is", "WER", "PER", "words/s", "minutes of training"]
    return [
        f"Word and phoneme error rate in percent on the {report['test_words']:,} test words, and words a second on one "
        f"core, without loading the model. Signature: `{report['systems'][0]['wer']['signature']}`.",
        table(head, rows),
    ]


def _has(one: dict, system: str, kind: str) -> bool:
    return (one["name"], one["kind"]) == (system, kind)


def _cells(scores: Sequence[dict], kinds: Sequence[tuple[str, str]]) -> list[str]:
    cells = []
    for kind in kinds:
        one = next((one for one in scores if _has(one, *kind)), None)
        cell = one and f"{plus_minus(format(one['wer']['mean'], '.2f'), one['wer']['interval'])} ({one['per']:.2f})"
        cells.append(cell or "")
    return cells
