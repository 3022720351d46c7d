"""The options of the studies' commands: their meaning, and the runs that a command names."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from keras_attn.cli import command
from keras_attn.training import config_for, plan, read_report


def study_parser(name: str, doc: str, corpus: str) -> command.Parser:
    """The parser of the study `recipes.studies.<name>`, with the options that every study has."""
    parser = command.Parser(f"recipes.studies.{name}", description=doc)
    option = parser.add_argument
    option("--corpus", default=corpus, help="a name or a folder (default: %(default)s)")
    option("--source", help="language of the source side (default: the corpus decides)")
    option("--target", help="language of the target side")
    option("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    option("--out", type=Path, help="folder of the study (default: runs/STUDY-CORPUS); started again, it continues")
    option("--max-steps", type=int, help="updates of the weights, the same for every run (default: the study's)")
    option("--set", nargs="+", action="extend", default=[], metavar="[RECIPE.]NAME=VALUE", dest="changes")
    option("--seed", type=int, default=0)
    option("--beam", type=int, default=5, help="beam size of the scores (default: %(default)s)")
    option("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="runs in parallel (default: %(default)s)")
    return parser


def changes_by_recipe(arguments, *recipes: str) -> dict[str, list[str]]:
    """The changes of `--set` for each recipe; `RECIPE.NAME=VALUE` is for one recipe only.

    Raises:
        ValueError: for another recipe's name, or a number below 1 for --max-steps, --beam or --jobs.
    """
    for name in ("max_steps", "beam", "jobs"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise ValueError(f"Expected --{name.replace('_', '-')} of at least 1. Received: {value}")
    changes = {recipe: [] for recipe in recipes}
    for change in arguments.changes:
        name, equals, value = change.partition("=")
        recipe, _, name = name.rpartition(".")
        if recipe and recipe not in changes:
            raise ValueError(f"Expected --set with a recipe among: {', '.join(recipes)}. Received: {change!r}")
        for one in [recipe] if recipe else recipes:
            changes[one].append(f"{name}{equals}{value}")
    return changes


def settings_for(recipe: str, corpus: str) -> list[str]:
    """A recipe's settings for a corpus, or a pattern, that it knows, where they are not its defaults."""
    module = plan.load_recipe(recipe)
    config, default = config_for(module.CONFIGS, corpus) or module.Config(), module.Config()
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return [f"{name}={value}" for name, value in values.items() if value != getattr(default, name)]


def chosen(flag: str, text: str, names: Iterable[str]) -> list[str]:
    """The names of a comma-separated list, in their usual order.

    Raises:
        ValueError: for a name that is not among `names`.
    """
    names, received = list(names), text.split(",")
    if unknown := [name for name in received if name not in names]:
        raise ValueError(f"Expected {flag} among: {','.join(names)}. Received: {', '.join(unknown)!r}")
    return [name for name in names if name in received]


def numbers(flag: str, text: str, kind: type, lowest: float, highest: float) -> list:
    """The numbers of a comma-separated list, sorted, each once.

    Raises:
        ValueError: for anything else, or a number out of range.
    """
    try:
        found = sorted({kind(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or not lowest <= found[0] <= found[-1] <= highest:
        raise ValueError(f"Expected {flag} from {lowest} to {highest:,}, separated by commas. Received: {text!r}")
    return found


def load_corpus(arguments):
    """The study's corpus."""
    from keras_attn.training import corpora  # late, because `command.run` imports Keras quietly

    return corpora.load(arguments.corpus, arguments.source, arguments.target, data=arguments.data)


def folder_of(arguments, name: str) -> Path:
    """The folder of the study of this name."""
    return arguments.out or Path("runs", f"{name}-{corpus_name(arguments)}")


def corpus_name(arguments) -> str:
    """The corpus' name, which for a folder is its own."""
    return Path(arguments.corpus).resolve().name if Path(arguments.corpus).is_dir() else arguments.corpus


def add_comparison(parser: command.Parser, first: str) -> None:
    """Adds the options of a study that compares finished runs on the corpus of one of them, `first`."""
    option = parser.add_argument
    option("--corpus", help=f"a name or a folder (default: that of {first})")
    option("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    option("--split", default="test", help="default: %(default)s")


def compared(arguments, runs: Sequence[Path], first: int = 0):
    """The reports of runs, by folder, and the corpus whose sentences all of them translate, with the runs' tags.

    Args:
        arguments: Of the command, with the options of `add_comparison`.
        runs: Their folders.
        first: The place of the run whose corpus is the default.

    Raises:
        ValueError: if a run is given twice, has no report, or another direction or other tags than the others; or the
            corpus has no such split.
    """
    reports = {run: read_report(run) for run in runs}
    directions = {(one["source"], one["target"]) for one in reports.values()}
    if len(reports) < len(runs) or len(directions) > 1 or (None, None) in directions:
        raise ValueError(
            "Expected the folders of different runs with a report.json, from one language into one other. Received: "
            + ", ".join(f"{str(run)!r} ({reports[run]['source']} to {reports[run]['target']})" for run in runs)
        )
    if len(tags := {one.get("tags") for one in reports.values()}) > 1:
        raise ValueError("Expected runs with the same --tags. Received: runs with others")
    ((source, target),) = directions

    from keras_attn import Tokenizer
    from keras_attn.training import corpora, starting_point

    name = arguments.corpus or reports[runs[first]]["corpus"]
    found = corpora.load(name, source, target, data=arguments.data, tags=tags.pop())
    if arguments.split not in found.splits:
        raise ValueError(f"Expected --split among: {', '.join(found.splits)}. Received: {arguments.split!r}")
    for run in reports:
        starting_point.check_tags(found, Tokenizer.load(run / "source_tokenizer"))
    return reports, found


def comparison(study: str, arguments, runs: Sequence[Path], corpus, own: Sequence[str]) -> dict:
    """The head of the report of a study of finished runs, whose command has no folders of this machine.

    Args:
        study: Its name, which is its module's.
        arguments: Of the command, with the options of `add_comparison`.
        runs: Their folders.
        corpus: The corpus.
        own: The study's own options in the command.
    """
    parts = [f"python -m recipes.studies.{study}", *(run.resolve().name for run in runs), *own]
    parts += ["--corpus", corpus.name] if arguments.corpus else []
    parts += ["--split", arguments.split] if arguments.split != "test" else []
    direction = {"corpus": corpus.name, "source": corpus.source, "target": corpus.target}
    return {"study": study, **direction, "split": arguments.split, "command": " ".join(parts)}
