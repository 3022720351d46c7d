"""A training as it was asked for: the recipe, its settings, the text, and where the run goes."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from keras_attn.requirements import require
from keras_attn.search import SearchOptions
from keras_attn.training import corpora
from keras_attn.training.config import TrainingConfig, config_for, override, read_config
from keras_attn.training.recipes import load_recipe


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The plan of one training, which `make_plan` makes from the options of `keras-attn train`.

    Args:
        recipe: Name, file or module of the recipe.
        config: The recipe's settings for the corpus, with `changes`.
        changes: Settings that the recipe does not have by itself, "name=value".
        out: Folder of the run.
        corpus, source, target, tags, data, stream: As for `keras_attn.training.corpora.load`.
        preset: Preset or run from whose weights training goes on; None: new weights.
        minutes: Of training at most; None: as many as it takes.
        seed: Of the weights, the order of the batches, dropout, and what weights of corpora leave to be drawn.
        resume: Whether to continue the run in the folder.
        distribute: "data": all devices share a batch; None: one device.
        cache: Folder of the token files of streamed text; None: in Keras' cache.
        beam: Beam size of the final scores.
        export: Whether to write a SavedModel.
        tensorboard: Whether to write files for TensorBoard.
    """

    recipe: str
    config: TrainingConfig
    changes: tuple[str, ...]
    out: Path
    corpus: str = "phrases"
    source: str | None = None
    target: str | None = None
    tags: str | None = None
    data: str | None = None
    preset: str | None = None
    minutes: float | None = None
    seed: int = 0
    resume: bool = False
    distribute: str | None = None
    stream: bool | None = None
    cache: Path | None = None
    beam: int = SearchOptions.beam_size
    export: bool = True
    tensorboard: bool = False

    @property
    def recipe_name(self) -> str:
        """The recipe as reports have it: a file by its name, without its path on this machine."""
        return Path(self.recipe).name if self.recipe.endswith(".py") else self.recipe

    @property
    def changed_names(self) -> set[str]:
        """The names of the settings in `changes`."""
        return {change.partition("=")[0] for change in self.changes}


def make_plan(
    recipe: str,
    *,
    corpus: str = "phrases",
    config_file: Path | None = None,
    epochs: int | None = None,
    changes: Sequence[str] = (),
    out: Path | None = None,
    **options,
) -> TrainingPlan:
    """Returns the plan of a training.

    Args:
        recipe: As for `load_recipe`.
        corpus: A named corpus, a folder or a file, or several joined by "+".
        config_file: TOML file of settings, or `run.json` or `report.json`; `epochs` and `changes` come after it.
        epochs: At most.
        changes: Settings as "name=value".
        out: Folder of the run; None: `runs/RECIPE`.
        **options: The other fields of `TrainingPlan`.

    Raises:
        ValueError: For an unknown recipe or setting, a value outside its range, or options that exclude each other.
        FileNotFoundError: If there is no such file.
    """
    module = load_recipe(recipe)
    usual = config_for(module.CONFIGS, corpus) or module.Config()
    changes = [*(read_config(config_file, usual) if config_file else []), *changes]
    changes += [] if epochs is None else [f"epochs={epochs}"]
    config = override(usual, changes)
    name = Path(recipe).stem if recipe.endswith(".py") else recipe
    out = out or Path("runs", name)
    plan = TrainingPlan(recipe=recipe, config=config, changes=tuple(changes), corpus=corpus, out=out, **options)
    if plan.stream and config.max_words:
        raise ValueError(
            "Expected --stream without max_words, for it counts tokens alone (max_tokens). Received: "
            f"max_words={config.max_words}"
        )
    if epochs is not None and config.max_steps:
        raise ValueError(
            f"Expected --set max_steps=N in place of --epochs, where updates are counted. Received: "
            f"--epochs {epochs} and max_steps={config.max_steps}"
        )
    if plan.minutes is not None and not 0 < plan.minutes < math.inf:
        raise ValueError(f"Expected --minutes above 0. Received: {plan.minutes}")
    if plan.tensorboard:
        require("tensorboard", "tensorflow", "tensorboard", purpose="--tensorboard, on every backend")
        if plan.distribute:
            raise ValueError("Expected --tensorboard without --distribute. Received: both")
    _check_start(plan)
    return plan


def _check_start(plan: TrainingPlan) -> None:
    """Raises ValueError for settings that have no meaning with --from, or without."""
    config = plan.config
    if plan.preset is None:
        if config.extend_vocabulary and "extend_vocabulary" in plan.changed_names:
            raise ValueError("Expected --from PRESET, whose vocabulary is extended. Received: extend_vocabulary=true")
        return
    own = {"level", "lowercase", "shared_vocabulary"}
    if not config.extend_vocabulary:
        own |= {"source_vocabulary_size", "target_vocabulary_size", "min_frequency"}
    if unused := sorted(own & plan.changed_names):
        raise ValueError(f"Expected --from without --set of what its tokenizers decide. Received: {', '.join(unused)}")


def identity(plan: TrainingPlan, corpus: corpora.Corpus, tokenizers, start: dict | None) -> dict:
    """Returns what determines the outcome of a run, as JSON types, because --resume compares it with run.json.

    Args:
        plan: The plan, with the settings that were trained with.
        corpus: The text.
        tokenizers: Of source and target.
        start: The identity of the preset that it begins from.
    """
    return {
        "recipe": plan.recipe_name,
        "from_preset": start,
        "corpus": corpus.name,
        "tags": plan.tags,
        "source": corpus.source,
        "target": corpus.target,
        "seed": plan.seed,
        "minutes": plan.minutes,
        "config": dataclasses.asdict(plan.config),
        "source_vocabulary_size": tokenizers[0].vocabulary_size,
        "target_vocabulary_size": tokenizers[1].vocabulary_size,
        "tokenizers": [tokenizer.fingerprint for tokenizer in tokenizers],
    }


def command_line(plan: TrainingPlan, preset: str | None = None) -> str:
    """Returns the command of a plan, without the folders of this machine.

    Args:
        plan: The plan.
        preset: The public name of the preset that it begins from.
    """
    parts = ["keras-attn train", plan.recipe_name]
    for name, value in (
        ("corpus", corpora.public_name(plan.corpus)),
        ("source", plan.source),
        ("target", plan.target),
        ("tags", plan.tags),
        ("from", preset),
        ("minutes", plan.minutes and f"{plan.minutes:g}"),
    ):
        parts += [f"--{name} {value}"] if value else []
    parts.append(f"--seed {plan.seed}")
    parts += [f"--beam {plan.beam}"] if plan.beam != SearchOptions.beam_size else []
    parts += [f"--distribute {plan.distribute}"] if plan.distribute else []
    parts += ["--stream" if plan.stream else "--no-stream"] if plan.stream is not None else []
    return " ".join([*parts, *(["--set", *plan.changes] if plan.changes else [])])
