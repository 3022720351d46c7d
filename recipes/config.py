"""What every recipe's configuration has in common, and `--set name=value`."""

import dataclasses
import types
import typing


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Text, optimisation and scoring. A recipe's `Config` adds the sizes of its model."""

    # Text
    level: str = "bpe"  # "bpe", "word" or "symbol" (see keras_attn.Tokenizer)
    source_vocabulary_size: int | None = 8000  # at most, the four special ids included
    target_vocabulary_size: int | None = 8000
    minimum_count: int = 1  # rarer words are unknown ("word" only)
    lowercase: bool = False
    joint: bool = False  # one vocabulary from both sides, of source_vocabulary_size
    longest: int = 100  # tokens; longer training pairs are dropped, counted and reported
    most_words: int | None = None  # the same in words (split on blanks); the tokenizers still learn from all pairs

    # Optimisation
    epochs: int = 10
    updates: int | None = None  # so many steps of the optimizer, no more and no fewer, whatever epochs and patience say
    batch_size: int = 96  # sentences
    curriculum_epochs: int = 0  # of the first epochs, that go from short sentences to long
    learning_rate: float = 1e-3
    warmup_steps: int = 0  # linear from zero
    schedule: str = "linear"  # after the warm-up; or "inverse_sqrt" (Vaswani 2017, section 5.3)
    constant_share: float = 0.5  # of all steps at the full rate; then linearly to zero ("linear" only)
    gradient_norm: float = 1.0
    label_smoothing: float = 0.1
    average_decay: float = 0.0  # of the moving average of the weights that is validated and kept; 0: none
    patience: int = 5  # epochs without a better validation score before training stops
    precision: str = "float32"  # Keras' dtype policy, such as "mixed_bfloat16"

    # Scoring
    metric: str = "bleu"  # or "wer": words right or wrong, with several right answers (`recipes.training.scoring`)
    validation_sentences: int = 500  # at most, translated greedily after each epoch
    tokenize: str = "13a"  # sacreBLEU's; "none" for text that comes tokenised
    length_penalty: float = 1.0

    def __post_init__(self):
        if self.metric not in ("bleu", "wer"):
            raise ValueError(f'Expected `metric` to be "bleu" or "wer". Received: {self.metric!r}')
        if self.schedule not in ("linear", "inverse_sqrt"):
            raise ValueError(f'Expected `schedule` to be "linear" or "inverse_sqrt". Received: {self.schedule!r}')


# What the recipes' presets have in common, so that they are compared under one budget.
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
    "average_decay": 0.998,
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


def model_arguments(config: TrainingConfig) -> dict[str, typing.Any]:
    """What a recipe's `Config` adds to the common part: arguments of its model, of the same names."""
    shared = {field.name for field in dataclasses.fields(TrainingConfig)}
    names = [field.name for field in dataclasses.fields(config) if field.name not in shared]
    return {name: getattr(config, name) for name in names}


def override(config: TrainingConfig, assignments: list[str]) -> TrainingConfig:
    """Applies `name=value` strings, each value read as the type of its field.

    Raises:
        ValueError: for an unknown name (the valid ones are listed), or a value of the wrong type.
    """
    kinds = typing.get_type_hints(type(config))
    changes = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"Expected --set name=value. Received: {assignment!r}")
        if name not in kinds:
            raise ValueError(f"Expected --set with a name among: {', '.join(kinds)}. Received: {name!r}")
        changes[name] = _parse(name, text, kinds[name])
    return dataclasses.replace(config, **changes)


def _parse(name: str, text: str, kind) -> typing.Any:
    allowed = kind.__args__ if isinstance(kind, types.UnionType) else (kind,)
    if text.lower() == "none" and types.NoneType in allowed:
        return None
    plain = next(one for one in allowed if one is not types.NoneType)
    try:
        if plain is bool:
            return {"true": True, "false": False}[text.lower()]
        return plain(text)
    except (ValueError, KeyError):
        names = " or ".join("none" if one is types.NoneType else one.__name__ for one in allowed)
        raise ValueError(f"Expected --set {name} to be a value of type {names}. Received: {text!r}") from None
