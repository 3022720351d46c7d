"""A model keeps its weights when an error ends `fit`, `evaluate` or `predict`; its first step is traced once."""

import keras
import numpy as np
import pytest

from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch
from tests.models.test_checks import SOURCE, TARGET, Batches, batch


class Failing(Batches):
    """Fails when its batches have been drawn so many times, those included that Keras draws to learn their shapes."""

    def __init__(self, draws):
        super().__init__([batch()] * 8)
        self.draws = draws

    def __getitem__(self, index):
        if not self.draws:
            raise KeyError("mine")
        self.draws -= 1
        return super().__getitem__(index)


def make():
    return RNNSearch(SOURCE, TARGET, units=3, embedding_size=3, readout_size=3, attention_units=3, decoder_units=3)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the others do not trace again for new variables")
def test_the_first_step_is_traced_once():
    model, traced, loss = make(), [], SmoothedCrossentropy()

    def counted(y_true, y_pred):
        traced.append(y_pred.shape)
        return loss(y_true, y_pred)

    model.compile(optimizer="adam", loss=counted)
    model.fit(*batch()[:2])
    assert len(traced) == 1


@pytest.mark.parametrize("use", ["fit", "train_on_batch"])
def test_the_scale_of_the_loss_outlives_a_step(use):
    """Keras wraps the optimizer of "mixed_float16"; to build that again would begin with the first scale again."""
    keras.config.set_dtype_policy("mixed_float16")
    model = make()
    model.compile(optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), loss=SmoothedCrossentropy())
    getattr(model, use)(*batch()[:2])
    count = len(model.optimizer.variables)
    model.optimizer.dynamic_scale.assign(8.0)
    getattr(model, use)(*batch()[:2])
    assert len(model.optimizer.variables) == count
    assert float(model.optimizer.dynamic_scale) == 8.0
    assert int(model.optimizer.step_counter) == 2


@pytest.mark.parametrize("use", ["fit", "evaluate", "predict"])
def test_weights_are_kept(use):
    model = make()
    model.compile(optimizer="adam", loss=SmoothedCrossentropy())
    weights = model.get_weights()
    for draws in range(6):
        with pytest.raises(Exception, match="mine"):  # TensorFlow makes it one of its own
            getattr(model, use)(Failing(draws), verbose=0)
        if use == "fit":
            assert all(np.isfinite(array).all() for array in model.get_weights())
        else:
            for before, after in zip(weights, model.get_weights(), strict=True):
                np.testing.assert_array_equal(after, before)
    history = model.fit(Batches([batch()]), validation_data=Batches([batch()]), verbose=0).history
    assert all(np.isfinite(values).all() for values in history.values())
