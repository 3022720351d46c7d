"""The values of a model's variables, which Keras takes out of them on JAX while the model trains."""

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def keep_values(model: keras.Model) -> Iterator[None]:
    """Puts the values of a model's variables back if an error or an interruption ends `fit`, `evaluate` or `predict`.

    On JAX, Keras 3.15 takes the values out of the variables, to have one copy of them on the device, and puts them
    back when `evaluate` and `predict` end without an error, or `fit` after its first step: otherwise the model would
    have lost its weights.

    Args:
        model: A built model.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    variables = list(model.variables)
    if model.optimizer:
        model.optimizer.build(model.trainable_variables)  # as `fit` does; again, it does nothing
        variables += model.optimizer.variables
    values = [variable.value for variable in variables]
    try:
        yield
    except BaseException:
        model.jax_state_sync()  # the values of the last step, if there was one
        for variable, value in zip(variables, values, strict=True):
            if not _has_value(variable):
                variable.assign(value)  # of before the first step, which has not begun
        if not all(map(_has_value, model.metrics_variables)):
            model.reset_metrics()
        raise


def _has_value(variable: keras.Variable) -> bool:
    try:
        return variable.value is not None
    except TypeError:  # Keras takes it for a variable that is not built yet, without an initializer
        return False
