"""Weights, when an error ends `fit`, `evaluate` or `predict` and after a step of an optimizer."""

import keras
import numpy as np
import pytest

from keras_attn.losses import SmoothedCrossentropy
from tests.contracts.model_rows import make, some_inputs

INPUTS = some_inputs()
BATCH = INPUTS, INPUTS["decoder_token_ids"], np.ones(INPUTS["decoder_token_ids"].shape, "float32")


class Failing(keras.utils.PyDataset):
    """Fails when its batches have been drawn so many times, those included that Keras draws to learn their shapes."""

    def __init__(self, draws):
        super().__init__()
        self.draws = draws

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if not self.draws:
            raise KeyError("mine")
        self.draws -= 1
        return BATCH


def test_the_scale_of_the_loss_outlives_a_step():
    """Keras wraps the optimizer of "mixed_float16"; to build that again would begin with the first scale again."""
    keras.config.set_dtype_policy("mixed_float16")
    model = make("rnnsearch")
    model.compile(optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), loss=SmoothedCrossentropy())
    model.train_on_batch(*BATCH[:2])
    count = len(model.optimizer.variables)
    model.optimizer.dynamic_scale.assign(8.0)
    for step, use in enumerate((model.fit, model.train_on_batch), start=2):
        use(*BATCH[:2])
        assert len(model.optimizer.variables) == count
        assert float(model.optimizer.dynamic_scale) == 8.0
        assert int(model.optimizer.step_counter) == step


@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}])
def test_the_first_step_of_adam_is_the_learning_rate(options):
    """Also of the embeddings of ids that a batch has several times."""
    model = make("rnnsearch")
    model.compile(optimizer=keras.optimizers.Adam(0.25), loss=SmoothedCrossentropy(), **options)
    weights = model.get_weights()
    model.train_on_batch(*BATCH)
    steps = [abs(after - before).max() for before, after in zip(weights, model.get_weights(), strict=True)]
    np.testing.assert_allclose(max(steps), 0.25, rtol=1e-4)


def test_weights_are_kept():
    model = make("rnnsearch")
    model.compile(optimizer="adam", loss=SmoothedCrossentropy())
    weights = model.get_weights()
    for use in (model.predict, model.evaluate, model.fit):
        for draws in (0, 2, 5):
            with pytest.raises(Exception, match="mine"):  # TensorFlow makes it one of its own
                use(Failing(draws), verbose=0)
            for before, after in zip(weights, model.get_weights(), strict=True):
                if use == model.fit:
                    assert np.isfinite(after).all()
                else:
                    np.testing.assert_array_equal(after, before)
    history = model.fit(*BATCH[:2], validation_data=BATCH[:2], verbose=0).history
    assert all(np.isfinite(values).all() for values in history.values())
