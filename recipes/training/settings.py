"""What identifies a run: for the processes of a job, for --resume, and for its report."""

import dataclasses
from pathlib import Path

from keras_attn.search import SearchOptions
from recipes.config import TrainingConfig


def changed_names(arguments) -> set[str]:
    """The names of what --set changes."""
    return {change.partition("=")[0] for change in arguments.changes}


def check_start(arguments, config: TrainingConfig) -> None:
    """Refuses settings that have no meaning with --from, or without.

    Raises:
        ValueError: for the first of them.
    """
    if arguments.preset is None:
        if config.extend_vocabulary:
            raise ValueError("Expected --from PRESET, whose vocabulary is extended. Received: extend_vocabulary=true")
        return
    own = {"level", "lowercase", "shared_vocabulary"}
    if not config.extend_vocabulary:
        own |= {"source_vocabulary_size", "target_vocabulary_size", "min_frequency"}
    if unused := sorted(own & changed_names(arguments)):
        raise ValueError(f"Expected --from without --set of what its tokenizers decide. Received: {', '.join(unused)}")


def of_command(arguments, config, out: Path) -> dict:
    """What the command lines of the processes of a job have in common. Corpora may have different places."""
    names = ("recipe", "source", "target", "minutes", "seed", "resume", "distribute", "beam", "no_export")
    same = {name: getattr(arguments, name) for name in (*names, "tags")} | {"out": str(out)}
    return same | {"from_preset": arguments.preset is not None} | dataclasses.asdict(config)


def of_run(arguments, config, corpus, tokenizers, start=None) -> dict:
    """What determines the outcome of a run, as JSON types, because --resume compares it with run.json."""
    return {
        "recipe": arguments.recipe,
        "from_preset": start.identity if start else None,
        "corpus": corpus.name,
        "tags": arguments.tags,
        "source": corpus.source,
        "target": corpus.target,
        "seed": arguments.seed,
        "minutes": arguments.minutes,
        "config": dataclasses.asdict(config),
        "source_vocabulary_size": tokenizers[0].vocabulary_size,
        "target_vocabulary_size": tokenizers[1].vocabulary_size,
        "tokenizers": [tokenizer.fingerprint for tokenizer in tokenizers],
    }


def command_line(arguments, start=None) -> str:
    """The command line, without the folders of this machine."""
    from recipes import corpora

    parts = ["python -m recipes.train", arguments.recipe]
    for name, value in (
        ("corpus", corpora.public_name(arguments.corpus)),
        ("source", arguments.source),
        ("target", arguments.target),
        ("tags", arguments.tags),
        ("from", start and start.name),
    ):
        parts += [f"--{name} {value}"] if value else []
    for name in ("epochs", "minutes", "seed"):
        value = getattr(arguments, name)
        # A whole number with all its digits; `--minutes 57` is 57.0.
        parts += [f"--{name} {int(value) if value == int(value) else value}"] if value is not None else []
    parts += [f"--beam {arguments.beam}"] if arguments.beam != SearchOptions.beam_size else []
    parts += [f"--distribute {arguments.distribute}"] if arguments.distribute else []
    parts += ["--stream" if arguments.stream else "--no-stream"] if arguments.stream is not None else []
    return " ".join([*parts, *(["--set", *arguments.changes] if arguments.changes else [])])
