"""Command-line flags derived from the fields of an options dataclass, such as `keras_attn.search.SearchOptions`."""

import argparse
import dataclasses
import typing
from collections.abc import Collection
from pathlib import Path

from keras_attn.cli import command
from keras_attn.cli.command import run_folder
from keras_attn.downloads import cache_folder
from keras_attn.search import SearchOptions
from keras_attn.training import length_penalty

_PREFIX = "options."  # of the names of arguments that are fields of the dataclass
# Defaults of commands that are not the field's.
_DEFAULTS = {"length_penalty": "the run's, else 1", "num_samples": None}


def add_options(group, options: type, names: Collection[str] = ()) -> None:
    """Adds a flag for each field of a dataclass.

    An option that is not chosen is absent from the parsed arguments, so that its default is written in one place, the
    dataclass.

    Args:
        group: A parser, or a group of one.
        options: A dataclass whose fields have the metadata of `keras_attn.search.options.option`.
        names: The fields that get a flag; all if empty.
    """
    kinds = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        if (names and field.name not in names) or "help" not in field.metadata:
            continue
        metadata, settings = field.metadata, {"default": argparse.SUPPRESS}
        if "const" in metadata:
            settings |= {"action": "store_const", "const": metadata["const"]}
        elif "choices" in metadata:
            settings["choices"] = [choice for choice in metadata["choices"] if choice is not None]
        else:
            kind = int if int in (kinds[field.name], *typing.get_args(kinds[field.name])) else float  # or None
            settings |= {"metavar": "N", "type": command.between(kind, *metadata["range"])}
        default = _DEFAULTS.get(field.name, field.default)
        help = metadata["help"] + ("" if default is False or default in (None, ()) else f" (default: {default})")
        group.add_argument(flag(field.name, options), dest=_PREFIX + field.name, help=help, **settings)


def flag(name: str, options: type) -> str:
    """Returns the flag of a field of a dataclass that `add_options` has added, or of another option of this name."""
    metadata = {field.name: field.metadata for field in dataclasses.fields(options)}.get(name, {})
    return metadata.get("flag") or "--" + name.replace("_", "-")


def add_search(parser: argparse.ArgumentParser) -> None:
    """Adds the options of search, the same for all commands that translate."""
    group = parser.add_argument_group("search")
    add_options(group, SearchOptions)
    group.add_argument(
        "--replace-unknown",
        dest=_PREFIX + "replace_unknown",
        help="for <unk> the source word that it is aligned to, or its entry in FILE: lines of a word, a tab and a word",
        nargs="?",
        metavar="FILE",
        type=dictionary,
        const=True,
        default=argparse.SUPPRESS,
    )
    add_models(group)


def add_models(group) -> None:
    """Adds what changes how the model of RUN works: `--int8`, `--shortlist` and the options of an ensemble."""
    group.add_argument(
        "--int8", action="store_true", help="multiply in int8, faster on a processor: see keras_attn.quantize"
    )
    group.add_argument(
        "--shortlist", metavar="FILE", type=Path, help="search in a part of the vocabulary: see keras-attn shortlist"
    )
    add_ensemble(group)


def add_ensemble(group) -> None:
    """Adds the options of an ensemble."""
    run = {"metavar": "RUN", "type": run_folder}
    group.add_argument("--ensemble", **run, nargs="+", default=[], help="runs that choose with RUN")
    averages = ("probability", "log_probability", "weights")
    group.add_argument("--average", choices=averages, default="probability", help="of the ensemble: what is averaged")


def chosen_options(arguments: argparse.Namespace) -> dict:
    """Returns the options that were chosen."""
    return {name.removeprefix(_PREFIX): value for name, value in vars(arguments).items() if name.startswith(_PREFIX)}


def options_of_run(arguments: argparse.Namespace, run: Path) -> dict:
    """Returns the options that were chosen, and the run's length penalty if none was."""
    chosen = chosen_options(arguments)
    return chosen | {"length_penalty": length_penalty(run, chosen.get("length_penalty"))}


def search_arguments(arguments: argparse.Namespace, run: Path) -> dict:
    """Returns keyword arguments for `Translator.generate`, `beam_size`, `n_best` and `batch_size` always among them."""
    if command.kind_of(run) == "saved_model":
        return _fixed_arguments(arguments, run)
    chosen = {"beam_size": SearchOptions.beam_size, "n_best": SearchOptions.n_best} | options_of_run(arguments, run)
    # A thousand hypotheses at once: over a vocabulary of 30,000 words their scores are 120 MB.
    return {"batch_size": max(1, min(64, 1000 // chosen["beam_size"]))} | chosen


def _fixed_arguments(arguments: argparse.Namespace, run: Path) -> dict:
    """Returns the arguments for a SavedModel, which was exported with its own.

    Raises:
        ValueError: If others are chosen, or the SavedModel is not of `keras-attn export`.
    """
    from keras_attn.serving.saved_translator import exported_beam_size

    chosen = chosen_options(arguments)
    if flags := [flag(name, SearchOptions) for name in sorted(chosen.keys() - {"batch_size"})]:
        raise ValueError(
            f"Expected no options of search with a SavedModel, which has its own. Received: {', '.join(flags)}"
        )
    beam_size = exported_beam_size(command.versions_of(run)[-1])
    return {"beam_size": beam_size, "n_best": 1, "batch_size": chosen.get("batch_size", 64)}


def load_translator(arguments: argparse.Namespace, run: Path):
    """Loads what translates: a run, as an ensemble with those of `--ensemble`, with `--int8` and `--shortlist`.

    Or a translator in ONNX, or a SavedModel, which have only `generate`.
    """
    from keras_attn.backend import keep_compiled
    from keras_attn.translation import Shortlist, Translator, quantize, with_shortlist

    keep_compiled(cache_folder() / "compiled")
    if not arguments.ensemble and arguments.average != "probability":
        raise ValueError(f"Expected --average together with --ensemble. Received: --average {arguments.average} alone")
    if (kind := command.kind_of(run)) != "preset":
        names = {"int8": "--int8", "shortlist": "--shortlist", "ensemble": "--ensemble"}
        chosen = [flag for name, flag in names.items() if getattr(arguments, name, None)]
        if chosen := chosen + ["--samples"] * (_PREFIX + "num_samples" in vars(arguments)):
            raise ValueError(
                f"Expected a run or a preset with {', '.join(chosen)}. Received: {str(run)!r}, {command.KINDS[kind]}"
            )
        with command.quietly():
            if kind == "onnx":
                from keras_attn.runtime import OnnxTranslator

                return OnnxTranslator(run)
            from keras_attn.serving.saved_translator import SavedTranslator

            return SavedTranslator(command.versions_of(run)[-1])
    with command.quietly():
        if arguments.ensemble:
            translator = Translator.from_presets([run, *arguments.ensemble], average=arguments.average)
        else:
            translator = Translator.from_preset(run)
        if getattr(arguments, "int8", False):
            translator = quantize(translator)
        path = getattr(arguments, "shortlist", None)
        return translator if path is None else with_shortlist(translator, Shortlist.load(path))


def dictionary(path: str) -> dict[str, str]:
    """For argparse: reads a file of lines, each a word, a tab and its translation."""
    from keras_attn.text import read_lines

    try:
        rows = [line.split("\t") for line in read_lines(path) if line]
    except (ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if wrong := [row for row in rows if len(row) != 2]:
        raise argparse.ArgumentTypeError(f"expected lines of a word, a tab and a word. Received: {wrong[0]}")
    return dict(rows)
