"""The settings of a training, the values that recipes share for a corpus, and how to change them."""

import dataclasses
import difflib
import fnmatch
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The settings of every recipe, in three groups. A recipe's `Config` adds those of its model.

    Raises:
        ValueError: For a value outside its range.
    """

    # Text: tokenizers, and the pairs that are trained on.
    level: str = "bpe"  # or "word", "symbol" (see keras_attn.Tokenizer), "letter": symbols from words that are not cut
    source_vocabulary_size: int | None = 8000  # with the four special ids; "bpe": exact, or none: what the text allows
    target_vocabulary_size: int | None = 8000
    min_frequency: int = 1  # rarer words are unknown ("word" only)
    lowercase: bool = False
    shared_vocabulary: bool = False  # one vocabulary for both sides, of source_vocabulary_size
    extend_vocabulary: bool = False  # of --from: the text's own vocabulary is added to the preset's
    max_tokens: int = 100  # longer training pairs are dropped, counted and reported
    max_words: int | None = None  # longer ones are left out, which is said; the tokenizers still learn from all pairs
    bpe_dropout: float = 0.0  # probability of leaving out a merge, anew in each epoch (Provilkov 2020; "bpe")

    # Optimisation: batches, updates, learning rate and regularisation.
    epochs: int = 10
    max_steps: int | None = None  # exactly so many updates, whatever epochs and patience are
    validate_every: int | None = None  # updates after which to score and save; none: after each epoch
    batch_size: int = 96  # sentences
    tokens_per_batch: int | None = None  # instead of batch_size: at most so many positions of the longer side
    accumulation_steps: int = 1  # batches of an update, whose mean gradient it takes
    curriculum_epochs: int = 0  # the first epochs go from short sentences to long ones
    learning_rate: float = 1e-3
    warmup_steps: int = 0  # linear from zero; none with --minutes, in which the rate follows the time
    schedule: str = "linear"  # after the warm-up, without --minutes; or "inverse_sqrt" (Vaswani 2017, section 5.3)
    hold_fraction: float = 0.5  # of all steps at the full rate; then linearly to zero ("linear" only)
    global_clipnorm: float = 1.0
    label_smoothing: float = 0.1
    guided_alignment: float = 0.0  # weight of the loss of attention against links of IBM Model 1 (Chen 2016); 0: none
    ema_decay: float = 0.0  # of the moving average of the weights, which is validated and saved; 0: no average
    patience: int = 5  # validations without a better score before training stops
    average_checkpoints: int = 0  # of the last validations: their mean is kept if it scores no worse than the best
    precision: str = "auto"  # or a dtype policy; auto: "mixed_bfloat16" on GPUs and TPUs that have it, else "float32"
    bfloat16_products: bool | None = None  # on a CPU, in training (keras_attn.backend); none: where it can

    # Scoring: validation and the final scores.
    metric: str = "bleu"  # or "wer", for pronunciations (see keras_attn/evaluation/by_metric.py)
    validation_sentences: int = 500  # at most, translated greedily after each epoch
    tokenize: str = "13a"  # sacreBLEU's; "none" for text that is already tokenised
    length_penalty: float = 1.0

    def __post_init__(self):
        for name, choices in (("metric", ("bleu", "wer")), ("schedule", ("linear", "inverse_sqrt"))):
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"Expected `{name}` among: {', '.join(choices)}. Received: {value!r}")
        if self.bpe_dropout and self.level != "bpe":
            raise ValueError(f'Expected `level` to be "bpe" with `bpe_dropout`. Received: {self.level!r}')
        if self.shared_vocabulary and self.level == "letter":
            raise ValueError('Expected another `level` with `shared_vocabulary`. Received: "letter"')
        for name, limits in _RANGES.items():
            if hasattr(self, name):
                check_range(self, name, **limits)
        if self.average_checkpoints == 1:
            raise ValueError("Expected `average_checkpoints` of 0, or at least 2. Received: 1")
        if self.ema_decay == 1:
            raise ValueError("Expected `ema_decay` below 1. With 1 the average keeps the first weights. Received: 1")


_COUNTS = ("epochs", "max_steps", "validate_every", "batch_size", "tokens_per_batch", "accumulation_steps", "patience")
_COUNTS += ("min_frequency", "max_tokens", "max_words", "validation_sentences")
_FRACTIONS = ("hold_fraction", "label_smoothing", "ema_decay", "bpe_dropout", "recurrent_dropout", "word_dropout")
_FRACTIONS += ("dropout", "embedding_dropout", "layer_dropout", "memory_dropout", "output_dropout")
_NOT_NEGATIVE = ("curriculum_epochs", "warmup_steps", "average_checkpoints", "guided_alignment")
_RANGES = {name: {"low": 1} for name in _COUNTS} | {name: {"low": 0} for name in _NOT_NEGATIVE}
_RANGES |= {name: {"low": 0, "high": 1} for name in _FRACTIONS} | {"length_penalty": {"low": 0, "high": 10}}
_RANGES |= {name: {"low": 0, "low_included": False} for name in ("learning_rate", "global_clipnorm")}


def check_range(
    config: TrainingConfig, name: str, low: float, high: float = math.inf, low_included: bool = True
) -> None:
    """Raises ValueError for a number outside its range; NaN and infinity are outside every range, None in all."""
    value = getattr(config, name)
    if value is None or (low <= value <= high and (low_included or value > low) and math.isfinite(value)):
        return
    expected = f"from {low} to {high}" if high < math.inf else f"of at least {low}" if low_included else f"above {low}"
    raise ValueError(f"Expected `{name}` {expected}. Received: {value}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentConfig(TrainingConfig):
    """The settings that the recipes of recurrent models share besides, arguments of all of them.

    Raises:
        ValueError: For a `scheduled_sampling` that `keras_attn.ScheduledSampling` refuses, too.
    """

    recurrent_dropout: float = 0.0  # of the cells' states: one mask a sentence (Gal & Ghahramani 2016)
    word_dropout: float = 0.0  # of whole words of source and target (Gal & Ghahramani 2016, Sennrich & Zhang 2019)
    scheduled_sampling: str | None = None  # such as "inverse_sigmoid,k=1000" or "0.25"
    tie_embeddings: str | None = "target"
    initializer: str | None = "glorot_uniform"
    scale_embeddings: bool = False
    embedding_dropout: float = 0.4
    output_dropout: float = 0.4

    def __post_init__(self):
        super().__post_init__()
        if self.scheduled_sampling is not None:
            from keras_attn.layers import get_scheduled_sampling

            get_scheduled_sampling(self.scheduled_sampling)


# Shared by the recipes' configurations for a corpus, so that they are compared under one budget.
PHRASES = {
    "source_vocabulary_size": 1200,
    "target_vocabulary_size": 1800,
    "epochs": 5,
    "batch_size": 64,
    "curriculum_epochs": 1,
    "learning_rate": 3e-3,
    "warmup_steps": 100,
    "label_smoothing": 0.0,
    "validation_sentences": 200,
}
MULTI30K = {
    "source_vocabulary_size": 6000,
    "target_vocabulary_size": 6000,
    "epochs": 12,
    "curriculum_epochs": 1,
    "warmup_steps": 200,
    "ema_decay": 0.998,
}
BIBLE = {
    "source_vocabulary_size": 4000,
    "target_vocabulary_size": 4000,
    "epochs": 10,
    "batch_size": 64,
    "curriculum_epochs": 1,
    "learning_rate": 2e-3,
    "warmup_steps": 200,
    "validation_sentences": 200,
}
# Pronunciation: `g2p/LANGUAGE`, from 800 words up. Updates, not epochs, so that few words are seen often enough.
G2P = {
    "level": "symbol",
    "source_vocabulary_size": None,
    "target_vocabulary_size": None,
    "max_steps": 6000,
    "validate_every": 250,
    "batch_size": 64,
    "learning_rate": 2e-3,
    "warmup_steps": 200,
    "hold_fraction": 0.4,
    "ema_decay": 0.99,
    "validation_sentences": 1000,
    "metric": "wer",
}
# Of the recurrent models; on Multi30k it is the default.
DROPOUT = {
    "phrases": {"embedding_dropout": 0.1, "memory_dropout": 0.0, "output_dropout": 0.1},
    "bible": {"embedding_dropout": 0.2, "memory_dropout": 0.1, "output_dropout": 0.2},
    "g2p": {"embedding_dropout": 0.2, "memory_dropout": 0.2, "output_dropout": 0.3},
}


def multi30k(config: TrainingConfig) -> dict[str, TrainingConfig]:
    """Returns a recipe's configurations for Multi30k, and for its tokenised text."""
    return {"multi30k": config, "multi30k-tok": dataclasses.replace(config, curriculum_epochs=0, tokenize="none")}


def config_for(configs: Mapping[str, TrainingConfig], corpus: str) -> TrainingConfig | None:
    """Returns a recipe's configuration for a corpus, by its name, else by the first pattern that it matches.

    Args:
        configs: A recipe's `CONFIGS`.
        corpus: The corpus, as it is given on the command line. The pattern "g2p/*" also matches several of them joined
            by "+". Weights do not count.

    Returns:
        The configuration; None if there is none.
    """
    corpus = re.sub(r":[^:+/]*(?=\+|$)", "", corpus)
    matching = (config for pattern, config in configs.items() if fnmatch.fnmatchcase(corpus, pattern))
    return configs[corpus] if corpus in configs else next(matching, None)


def model_arguments(config: TrainingConfig) -> dict[str, Any]:
    """Returns the fields that a recipe's `Config` adds to `TrainingConfig`: its model's arguments of the same names."""
    shared = {field.name for field in dataclasses.fields(TrainingConfig)}
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config) if field.name not in shared}


def builder(model: Callable[..., Any]) -> Callable[[TrainingConfig, int, int], Any]:
    """Returns a recipe's `build`, for a model whose arguments are all fields of its `Config`.

    Args:
        model: Its class.
    """

    def build(config: TrainingConfig, source_vocabulary_size: int, target_vocabulary_size: int) -> Any:
        return model(source_vocabulary_size, target_vocabulary_size, **model_arguments(config))

    return build


def override(config: TrainingConfig, assignments: Sequence[str]) -> TrainingConfig:
    """Applies `name=value` strings, each value read as the type of its field.

    Raises:
        ValueError: For an unknown name (the message has the most similar ones), or a value of the wrong type.
    """
    kinds = typing.get_type_hints(type(config))
    changes = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"Expected --set name=value. Received: {assignment!r}")
        if name not in kinds:
            raise ValueError(_unknown(name, list(kinds), type(config)))
        changes[name] = _parse(name, text, kinds[name])
    return dataclasses.replace(config, **changes)


def read_config(path: Path, usual: TrainingConfig) -> list[str]:
    """Reads a file of settings: TOML, which may have them in tables, or the `run.json` or `report.json` of a run.

    Args:
        path: The file.
        usual: The settings without it, of which those of a run are left out.

    Returns:
        The settings as `override` takes them. TOML has no None: it is the string "none".

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is neither.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected a TOML file, run.json or report.json with --config. Received: {str(path)!r}, which is none"
        )
    is_run, settings = path.suffix == ".json", {}
    try:
        text = path.read_text(encoding="utf-8-sig")
        contents = {"": dict(**json.loads(text)["config"])} if is_run else tomllib.loads(text)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        kind = "a run.json or report.json" if is_run else "TOML"
        raise ValueError(f"Expected {str(path)!r} to be {kind}. {error}") from None
    for name, value in contents.items():
        settings |= value if isinstance(value, dict) else {name: value}
    if is_run:
        own = dataclasses.asdict(usual)
        settings = {name: value for name, value in settings.items() if name not in own or value != own[name]}
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in settings.items()]


def _unknown(name: str, names: list[str], kind: type[TrainingConfig]) -> str:
    """The message for a name that is no setting, with the most similar names and the modules that list all."""
    similar = difflib.get_close_matches(name, names, n=5, cutoff=0.5)
    such_as = f", such as {', '.join(similar)}" if similar else ""
    modules = dict.fromkeys(one.__module__ for one in kind.__mro__ if dataclasses.is_dataclass(one))
    return (
        f"Expected --set with the name of a setting{such_as}. Received: {name!r}. All {len(names)} are listed in "
        f"{' and '.join(modules)}."
    )


def _parse(name: str, text: str, kind) -> Any:
    allowed = kind.__args__ if isinstance(kind, types.UnionType) else (kind,)
    if text.lower() == "none" and types.NoneType in allowed:
        return None
    plain = next(one for one in allowed if one is not types.NoneType)
    try:
        if plain is bool:
            return {"true": True, "false": False}[text.lower()]
        value = plain(text)
    except (ValueError, KeyError):
        names = " or ".join("none" if one is types.NoneType else one.__name__ for one in allowed)
        raise ValueError(f"Expected --set {name} to be a value of type {names}. Received: {text!r}") from None
    if plain is float and not math.isfinite(value):
        raise ValueError(f"Expected --set {name} to be a finite number. Received: {text!r}")
    return value
