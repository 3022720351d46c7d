"""`--from PRESET`: training goes on from the weights, tokenizers and sizes of a preset or a run, with other text."""

import dataclasses
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import Any

import keras
import numpy as np

from keras_attn import Tokenizer, Translator, files, saving
from keras_attn.models import Seq2Seq
from keras_attn.training import fitting
from keras_attn.training.config import TrainingConfig, model_arguments
from keras_attn.training.report import read_report

_OF_A_BUILD = {"name", "dtype", "trainable", "changed_layers", "source_vocabulary_size", "target_vocabulary_size"}


class StartingPoint:
    """A preset from which a run begins.

    Args:
        preset: As for `Translator.from_preset`.

    Attributes:
        identity: What the report says of it: `name`, without the folders of this machine, `digest`, the SHA-256 of its
            manifest, which has those of its files, and `corpus`, what it was trained on, itself and before; None if
            that is not known.
        length_arguments: Of its `Translator`.

    Raises:
        FileNotFoundError: if there is no such preset.
        ValueError: if it is damaged.
    """

    def __init__(self, preset: str):
        folder = saving.locate(preset)
        translator = Translator.from_preset(folder)
        self._model: Seq2Seq = translator.model
        self._tokenizers = translator.source_tokenizer, translator.target_tokenizer
        self._report = read_report(folder)
        is_named = preset.startswith(saving.PREFIX) or preset in saving.presets()
        self.name = preset if is_named else folder.resolve().name
        self.length_arguments = translator.length_arguments
        before = self._report.get("from_preset")
        corpora = [self._report["corpus"], *([before["corpus"]] if before else [])]
        self.identity = {
            "name": self.name,
            "digest": files.sha256(folder / "translator.json"),
            "corpus": None if None in corpora else "+".join(corpora),
        }

    def configured(self, config: TrainingConfig, recipe: str, changes: Collection[str]) -> TrainingConfig:
        """Returns a configuration with the preset's sizes and kind of text.

        Args:
            config: The recipe's for the corpus, changed by the command line.
            recipe: The recipe's name.
            changes: The names of what the command line changes.
        """
        own = {name: value for name, value in self._model.get_config().items() if not isinstance(value, (dict, list))}
        if self._report.get("recipe") == recipe:  # of what the model has as a layer, the run has the name
            own |= self._report["config"]
        source, target = self._tokenizers
        names = model_arguments(config).keys() & own.keys() - set(changes)
        shared = source.fingerprint == target.fingerprint
        level = source.level if source.level == "letter" else target.level
        text = {"level": level, "lowercase": target.lowercase, "shared_vocabulary": shared}
        if not config.extend_vocabulary:
            text |= {"source_vocabulary_size": source.vocabulary_size, "target_vocabulary_size": target.vocabulary_size}
        return dataclasses.replace(config, **{name: own[name] for name in names}, **text)

    def tokenizers(self, config: TrainingConfig, corpus) -> tuple[Tokenizer, Tokenizer]:
        """Returns the preset's tokenizers, with `extend_vocabulary` extended by what the corpus' training split has.

        Raises:
            ValueError: if they are another program's, which are not extended.
        """
        if not config.extend_vocabulary:
            return self._tokenizers
        learnt = fitting.train_tokenizers(config, *corpus.splits["train"], corpus.tags)
        if config.shared_vocabulary:
            return (self._tokenizers[0].extended(learnt[0]),) * 2
        return tuple(old.extended(new) for old, new in zip(self._tokenizers, learnt, strict=True))

    def build(
        self, recipe: ModuleType, config: TrainingConfig, sizes: Sequence[int], changes: Collection[str]
    ) -> Seq2Seq:
        """Returns the recipe's model, after a check that it is the preset's, but for vocabularies and `changes`.

        Raises:
            ValueError: if it is not, or the preset's weights do not fit.
        """
        name = recipe.__name__.rpartition("recipes.")[2]
        model = recipe.build(config, *sizes)
        if type(model) is not type(self._model):
            raise ValueError(f"{self._expected(name)} Its model is {type(model).__name__}.")
        ignored = _OF_A_BUILD | set(changes)
        own, built = (_plain(one.get_config()) for one in (self._model, model))
        if different := sorted(key for key in own.keys() - ignored if built.get(key) != own[key]):
            raise ValueError(f"{self._expected(name)} It has another {', '.join(different)}.")
        self._weights = self._fitting(model, changes)
        return model

    def give_weights(self, model: Seq2Seq) -> None:
        """Gives a model that `build` returned the preset's weights, and frees the memory of these.

        What an extended vocabulary adds to a matrix or a bias is the mean of the rows, columns or numbers there are.
        The logit of a new token is then the mean of the others', so that none becomes the most probable, and the
        probability of no other falls by more than the factor 1 + new / old (Hewitt 2021, "Initializing New Word
        Embeddings for Pretrained Language Models").
        """
        for variable, array in zip(model.weights, self._weights, strict=True):
            variable.assign(array)
        del self._model, self._weights

    def _fitting(self, model: Seq2Seq, changes: Collection[str]) -> list[np.ndarray]:
        sides = ("source_vocabulary_size", "target_vocabulary_size")
        grown = {(getattr(self._model, side), getattr(model, side)) for side in sides}
        arrays = [keras.ops.convert_to_numpy(variable) for variable in self._model.weights]
        shapes = [tuple(variable.shape) for variable in model.weights]
        if len(arrays) == len(shapes):
            arrays = [_extended(array, shape, grown) for array, shape in zip(arrays, shapes, strict=True)]
            if all(array.shape == shape for array, shape in zip(arrays, shapes, strict=True)):
                return arrays
        own, built = self._model.get_config(), model.get_config()
        sizes = ", ".join(f"{name}={built[name]} instead of {own[name]}" for name in sorted({*changes} & own.keys()))
        raise ValueError(
            f"Expected --set without what changes the weights of {self.name!r}, which are kept. Received: {sizes}"
        )

    def _expected(self, recipe: str) -> str:
        return (
            f"Expected the recipe of {self.name!r}, a {type(self._model).__name__}, with --from. Received: {recipe!r}."
        )


def check_tags(corpus, tokenizer: Tokenizer) -> None:
    """Refuses a source tokenizer that cuts or does not know the tags of a corpus.

    Raises:
        ValueError: for the first such tag.
    """
    for tag in corpus.tags:
        if tokenizer.pieces(tag) != [tag] or tokenizer.encode(tag) == [tokenizer.special_ids.unknown]:
            raise ValueError(
                f"Expected a source vocabulary with the tag {tag}; --set extend_vocabulary=true adds it to a preset's. "
                f"Received: one of level {tokenizer.level!r} without it"
            )


def _extended(array: np.ndarray, shape: tuple[int, ...], grown: Collection[tuple[int, int]]) -> np.ndarray:
    """The array, with means at the end of an axis that a vocabulary has grown along, if it is one."""
    if array.ndim != len(shape):
        return array
    axes = [axis for axis in range(array.ndim) if array.shape[axis] != shape[axis]]
    if len(axes) != 1 or (array.shape[axes[0]], shape[axes[0]]) not in grown:
        return array
    (axis,) = axes
    mean = array.mean(axis=axis, keepdims=True, dtype=np.float64).astype(array.dtype)
    return np.concatenate([array, np.repeat(mean, shape[axis] - array.shape[axis], axis=axis)], axis=axis)


def _plain(value: Any) -> Any:
    """A model's config without names and precision, which differ from build to build."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if key not in ("name", "dtype")}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
