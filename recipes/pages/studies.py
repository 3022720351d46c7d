"""The studies' sections of the results page, each from nothing but the study's report."""

from collections.abc import Callable, Sequence
from pathlib import Path

from recipes.studies import alignment as alignment_study


def section(name: str, report: dict) -> str:
    """The section of one study, whose report is `reports/<name>.json`, in Markdown."""
    title, write = _SECTIONS[report["study"]]
    direction = f"{report['corpus']}, {report['source']} to {report['target']}"
    parts = [f"## {title}: {direction}", f"```\n{report['command']}\n```", *write(name, report)]
    return "\n\n".join([*parts, f"Report: [{name}](reports/{name}.json)."])


def draw(report: dict, stem: Path) -> None:
    """Draws the study's figure, if it has one, as `<stem>.svg`."""
    from recipes.studies import figures

    kinds = {
        "length_study": figures.length,
        "attention_study": figures.attention,
        "alignment_study": figures.alignment,
    }
    if kind := kinds.get(report["study"]):
        kind(report, stem.with_name(f"{stem.name}.svg"))


def is_known(report: dict) -> bool:
    """Whether this study has a section here."""
    return report["study"] in _SECTIONS


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _length(name: str, report: dict) -> list[str]:
    bins, systems = report["bins"], report["systems"]
    head = ["source words", "sentences", *(system["name"] for system in systems)]
    rows = [
        [f"{one['words'][0]} to {one['words'][1]}", f"{one['sentences']:,}"]
        + [_interval(system["bins"][n], system["bins"][n]["bleu"]) for system in systems]
        for n, one in enumerate(bins)
    ]
    runs = [
        [
            system["name"],
            f"{system['parameters']:,}",
            f"{system['training_pairs']:,}",
            f"{system['updates']:,}",
            f"{system['train_seconds'] / 60:.1f}",
            f"{system['target_tokens_per_second']:,}",
            f"`{system['command']}`",
        ]
        for system in systems
    ]
    left_out = f" {report['overlong']:,} longer sentences are left out." if report["overlong"] else ""
    return [
        "BLEU by the length of the source, as in figure 2 of Bahdanau 2015; the number in a system's name is the most "
        f"words of a training sentence. Beam {report['beam_size']}; in brackets {_resampled(report)}.{left_out} "
        f"Signature: `{report['signature']}`. {_cost(report)}",
        f"![BLEU against source length](reports/{name}.svg)",
        table(head, rows),
        table(["system", "parameters", "pairs", "updates", "minutes", "target tokens/s", "command"], runs),
    ]


def _attention(name: str, report: dict) -> list[str]:
    rows = [
        [
            row["name"],
            f"{row['parameters']:,}",
            _interval(row["bleu"], row["bleu"]["score"]),
            f"{row['chrf']['score']:.2f}",
            f"{row['perplexity']:.2f}",
            f"{row['sharpness']['entropy']:.2f}",
            f"{row['sharpness']['largest_weight']:.2f}",
            f"{row['train_seconds']:.0f}",
            f"{row['decode_seconds']:.0f}",
        ]
        for row in sorted(report["scores"], key=lambda row: -row["bleu"]["score"])
    ]
    head = ["score", "parameters", "BLEU", "chrF", "perplexity", "entropy", "largest weight", "seconds", "decoding"]
    first = report["scores"][0]
    return [
        f"Every score function in `LuongSeq2Seq`, {report['updates']:,} updates each. BLEU, chrF and perplexity on the "
        f"test split; beam {report['beam_size']}; in brackets {_resampled(report)}. Entropy (nats) and largest weight "
        "of an alignment's rows, mean over the target tokens of the references, teacher-forced; uniform rows would "
        f"have {first['sharpness']['uniform_entropy']:.2f} nats. Seconds of training, validation included, and of "
        f"translating the test split. Additive and concat compute the same function from weights that begin "
        f"differently. Signatures: `{first['bleu']['signature']}`, `{first['chrf']['signature']}`. {_cost(report)}",
        f"![Scores](reports/{name}.svg)",
        table(head, rows),
        table(["score", "command"], [[row["name"], f"`{row['command']}`"] for row in report["scores"]]),
    ]


def _showcase(name: str, report: dict) -> list[str]:
    fixed, attention = report["systems"]
    rows = [
        [f"{one['name']} (`{one['command']}`)", f"{one['first']:.1f}", f"{one['second']:.1f}"]
        for one in (fixed, attention)
    ]
    examples = [
        [one["heading"], one["source"], one["reference"] or "", *(t["translation"] for t in one["translations"])]
        for one in report["examples"][:3]
    ]
    return [
        f"Of {report['sentences']:,} {report['split']} sentences of at least {report['minimum_words']} words "
        f"{fixed['name']} translates the second half worse than the first in {report['lost']:,} where "
        f"{attention['name']} is better. [The page](reports/{name}.html) shows those where the difference is largest, "
        "with alignments to point at; here are the first. chrF of halves, cut in the middle of the words, mean over "
        "all of these sentences:",
        table(["system", "first half", "second half"], rows),
        table(["sentence", "source", "reference", fixed["name"], attention["name"]], examples),
    ]


def _interval(bounds: dict, score: float) -> str:
    return f"{score:.2f} [{bounds['low']:.1f}, {bounds['high']:.1f}]"


def _resampled(report: dict) -> str:
    return f"{report['confidence']:.0%} of {report['samples']:,} resampled test sets"


def _cost(report: dict) -> str:
    side = f", {report['jobs']} runs side by side" if report["jobs"] > 1 else ""
    return f"All of it took {report['minutes']:.0f} minutes on {report['hardware']['cores']} cores{side}."


_SECTIONS: dict[str, tuple[str, Callable[[str, dict], list[str]]]] = {
    "length_study": ("Sentence length", _length),
    "attention_study": ("Score functions", _attention),
    "alignment_study": ("Alignment error rate", alignment_study.section),
    "showcase": ("The second half of long sentences", _showcase),
}
