"""Learning rate schedules, chosen by a recipe's `schedule`.

Keras' optimizers count batches. With `accumulation_steps` batches an update, these count updates.
"""

import dataclasses

import keras

from keras_attn.training.config import TrainingConfig


@keras.saving.register_keras_serializable(package="keras_attn_recipes")
@dataclasses.dataclass(eq=False)
class ConstantThenLinear(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that warms up linearly, stays constant for a fraction of all steps, then falls linearly to zero."""

    learning_rate: float
    total_steps: int
    hold_fraction: float = 0.5
    warmup_steps: int = 0
    accumulation_steps: int = 1

    def __call__(self, step):
        step = keras.ops.floor(keras.ops.cast(step, "float32") / self.accumulation_steps)
        warm = (step + 1) / max(1, self.warmup_steps)
        left = (1 - step / self.total_steps) / max(1e-9, 1 - self.hold_fraction)
        return self.learning_rate * keras.ops.clip(keras.ops.minimum(warm, left), 0.0, 1.0)

    def get_config(self):
        return dict(vars(self))


@keras.saving.register_keras_serializable(package="keras_attn_recipes")
@dataclasses.dataclass(eq=False)
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that warms up linearly to its peak, then falls with the square root of the number of steps.

        rate = H^-0.5 min(step^-0.5, step warmup^-1.5)                               (Vaswani 2017, section 5.3, eq. 3)

    The peak, H^-0.5 warmup^-0.5 in the paper, is `learning_rate` here.
    """

    learning_rate: float
    warmup_steps: int
    accumulation_steps: int = 1

    def __call__(self, step):
        step = keras.ops.floor(keras.ops.cast(step, "float32") / self.accumulation_steps) + 1
        warm = step / max(1, self.warmup_steps)
        return self.learning_rate * keras.ops.minimum(warm, keras.ops.rsqrt(warm))

    def get_config(self):
        return dict(vars(self))


def schedule(config: TrainingConfig, total_steps: int):
    """The schedule of a run of `total_steps` updates."""
    options = {"warmup_steps": config.warmup_steps, "accumulation_steps": config.accumulation_steps}
    if config.schedule == "inverse_sqrt":
        return InverseSquareRoot(config.learning_rate, **options)
    return ConstantThenLinear(config.learning_rate, total_steps, config.hold_fraction, **options)
