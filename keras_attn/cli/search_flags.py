"""What the commands that translate have in common: the options of search, and what a run's report says."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from keras_attn.cli import command

_SEARCH = "search."  # opens the names of those arguments that are `Translator.generate`'s own


def add_search(parser: argparse.ArgumentParser) -> None:
    """The options of search, one line each: the second word is the name that `Translator.generate` knows."""
    group = parser.add_argument_group("search")

    def option(flag: str, name: str, help: str, **how):
        if not how.keys() & {"action", "choices"}:
            how.setdefault("metavar", "N")
        # What is not chosen is not passed on, so that each default stands in one place, the library.
        group.add_argument(flag, dest=_SEARCH + name, help=help, **{"default": argparse.SUPPRESS} | how)

    option("--beam", "beam_size", "hypotheses; 1 is greedy (default: 5)", type=between(int, 1, 1000), default=5)
    option("--length-penalty", "length_penalty", "exponent of the norm, else the run's", type=between(float, 0, 10))
    option("--normalization", "normalization", "norm of the length", choices=("gnmt", "average", "none"))
    option("--coverage-penalty", "coverage_penalty", "for source left unread", type=between(float, 0, 100))
    option("--max-length", "max_length", "tokens of a translation, at most", type=between(int, 1, 10_000))
    option("--max-length-ratio", "max_length_ratio", "the same, for each source token", type=between(float, 0.01, 1000))
    option("--min-length", "min_length", "tokens of a translation, at least", type=between(int, 1, 10_000))
    option("--min-length-ratio", "min_length_ratio", "the same, for each source token", type=between(float, 0.01, 1000))
    option("--no-repeat", "no_repeat_ngram_size", "no N tokens twice in this order", type=between(int, 1, 100))
    option("--no-unknown", "banned_tokens", "never write <unk>", action="store_const", const=("<unk>",))
    option(
        "--replace-unknown",
        "replace_unknown",
        "for <unk> the source word that it is aligned to, or what FILE has for that: lines of word, tab, word",
        nargs="?",
        metavar="FILE",
        type=dictionary,
        const=True,
    )
    option("--early-stopping", "early_stopping", "end sooner, proving nothing", action="store_true")
    option("--batch-size", "batch_size", "sentences at once (default: 64)", type=between(int, 1, 100_000))
    option("--tokens-per-batch", "tokens_per_batch", "source tokens at once, at most", type=between(int, 1, 10**8))
    group.add_argument("--ensemble", metavar="RUN", type=Path, nargs="+", default=[], help="runs that choose with RUN")
    averages = ("probability", "log_probability", "weights")
    group.add_argument("--average", choices=averages, default="probability", help="of the ensemble: what is averaged")


def search(arguments: argparse.Namespace, run: Path) -> dict:
    """Keyword arguments for `Translator.generate`: what was chosen, and what the run's report says."""
    chosen = {name.removeprefix(_SEARCH): value for name, value in vars(arguments).items() if name.startswith(_SEARCH)}
    # A thousand hypotheses at once: over a vocabulary of 30,000 words their scores are 120 MB.
    few = max(1, min(64, 1000 // chosen["beam_size"]))
    penalty = length_penalty(run, chosen.get("length_penalty"))
    return {"batch_size": few} | chosen | {"length_penalty": penalty}


def load(arguments: argparse.Namespace, run: Path):
    """The translator of a run, together with those of `--ensemble`."""
    from keras_attn.translator import Translator

    with command.quietly():
        if arguments.ensemble:
            return Translator.from_presets([run, *arguments.ensemble], average=arguments.average)
        return Translator.from_preset(run)


def dictionary(path: str) -> dict[str, str]:
    """For argparse: a file of lines, each a word, a tab and its translation."""
    from keras_attn.text import read_lines

    try:
        rows = [line.split("\t") for line in read_lines(path) if line]
    except (ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if wrong := [row for row in rows if len(row) != 2]:
        raise argparse.ArgumentTypeError(f"expected lines of a word, a tab and a word. Received: {wrong[0]}")
    return dict(rows)


def length_penalty(run: Path, chosen: float | None) -> float:
    """What was chosen, else what the run's report says, else 1."""
    return read_report(run)["config"].get("length_penalty", 1.0) if chosen is None else chosen


def read_report(run: Path) -> dict:
    """The run's `report.json`; of a preset without one, an empty corpus and config."""
    path = run / "report.json"
    report = {"corpus": None, "source": None, "target": None, "config": {}}
    if path.is_file():
        try:
            report |= json.loads(path.read_text(encoding="utf-8"))
            report["config"] = dict(report["config"])
        except (ValueError, TypeError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
            raise ValueError(f"Expected {str(path)!r} to be a run's report. It is truncated or changed.") from None
    return report


def between(kind: type, low: float, high: float) -> Callable[[str], float]:
    """For argparse: a number of this kind from `low` to `high`."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:  # NaN is outside, too
            name = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"expected a {name} from {low:,} to {high:,}. Received: {text!r}")
        return value

    return read
