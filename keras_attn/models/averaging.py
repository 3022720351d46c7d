"""The average of several models' weights."""

from collections.abc import Sequence

import keras


def copy_model(model: keras.Model, name: str, dtype=None) -> keras.Model:
    """Returns the same model and weights under another name, not compiled; `dtype` None keeps its dtype policy."""
    config = {**model.get_config(), "name": name}
    copy = type(model).from_config(config if dtype is None else {**config, "dtype": dtype})
    copy.set_weights(model.get_weights())
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
    average = copy_model(first, first.name)
    # float64, so that the mean does not depend on how many there are; one model's weights at a time.
    sums = [weight.astype("float64") for weight in first.get_weights()]
    for i, model in enumerate(others, 1):
        weights = model.get_weights()
        if type(model) is not type(first) or [w.shape for w in weights] != [s.shape for s in sums]:
            raise ValueError(
                f"Expected models of one class and one size. Received: {type(first).__name__} with "
                f"{first.count_params():,} parameters and, as number {i + 1}, {type(model).__name__} with "
                f"{model.count_params():,}"
            )
        sums = [s + w for s, w in zip(sums, weights, strict=True)]
    average.set_weights([s / len(models) for s in sums])
    return average
