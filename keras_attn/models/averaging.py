"""Copies of models, and the average of several models' weights."""

from collections.abc import Iterable, Sequence

import keras
import numpy as np

from keras_attn.backend import copy_weights, set_weights, without_initial_weights


def copy_model(model: keras.Model, name: str, dtype=None) -> keras.Model:
    """Returns a model of the same class, configuration and weights, which is not compiled.

    Args:
        model: The model, which is not changed.
        name: The name of the copy.
        dtype: The dtype policy of the copy. None: that of the model.

    Example:
        >>> model = keras_attn.models.RNNSearch(31, 37, units=5, embedding_size=7, readout_size=11, attention_units=3)
        >>> keras_attn.models.copy_model(model, "copy").count_params() == model.count_params()
        True
    """
    config = {**model.get_config(), "name": name}
    config = config if dtype is None else {**config, "dtype": dtype}
    copy = without_initial_weights(lambda: type(model).from_config(config))
    copy_weights(model, copy)
    return copy


def average_weights(models: Sequence[keras.Model]) -> keras.Model:
    """Returns a new model whose every weight is the mean of the models'.

    It costs as much as one model and is often nearly as good as an ensemble. It suits checkpoints of one run, or of
    runs that started from the same weights; in independent models the same unit has another meaning.

    Args:
        models: Models of one class with one configuration, apart from their names. They are not changed.

    Raises:
        ValueError: without models, or for models of different classes or sizes.

    Example:
        >>> sizes = dict(units=5, embedding_size=7, readout_size=11, attention_units=3)
        >>> models = [keras_attn.models.RNNSearch(31, 37, **sizes) for _ in range(2)]
        >>> keras_attn.models.average_weights(models).count_params() == models[0].count_params()
        True
    """
    if not models:
        raise ValueError("Expected at least one model to average. Received: none")
    first, *others = models
    shapes = [weight.shape for weight in first.weights]
    for i, model in enumerate(others, 2):
        if type(model) is not type(first) or [weight.shape for weight in model.weights] != shapes:
            raise ValueError(
                f"Expected models of one class and one size. Received: {type(first).__name__} with "
                f"{first.count_params():,} parameters and, as number {i}, {type(model).__name__} with "
                f"{model.count_params():,}"
            )
    average = copy_model(first, first.name)
    set_weights(average, mean_weights(copy_model(model, first.name).get_weights() for model in models))
    return average


def mean_weights(checkpoints: Iterable[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Returns the mean of several models' weights, float64.

    Args:
        checkpoints: What `get_weights` returns, of one model or more; one after the other is in memory.

    Example:
        >>> (mean,) = keras_attn.models.mean_weights([[np.zeros(2)], [np.ones(2)]])
        >>> mean
        array([0.5, 0.5])
    """
    sums, count = None, 0
    for weights in checkpoints:
        weights = [weight.astype("float64") for weight in weights]  # the mean must not depend on how many there are
        sums = weights if sums is None else [total + weight for total, weight in zip(sums, weights, strict=True)]
        count += 1
    return [total / count for total in sums]
