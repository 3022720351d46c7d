"""The loss and the metrics: their configs, old and new, and their errors."""

import re

import keras
import numpy as np
import pytest

from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy

ALL = [SmoothedCrossentropy, TokenAccuracy, Perplexity]
METRICS = ALL[1:]


def test_config_round_trip():
    """The metrics are saved with a model: tests/test_losses.py."""
    loss = SmoothedCrossentropy(0.2, reduction="sum", name="smoothed", dtype="float64")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert type(again) is SmoothedCrossentropy
    assert again.get_config() == loss.get_config()
    assert (again.label_smoothing, again.reduction, again.name, again.dtype) == (0.2, "sum", "smoothed", "float64")
    assert keras.losses.get(keras.losses.serialize(loss)).get_config() == loss.get_config()


@pytest.mark.parametrize("cls", METRICS)
def test_a_metric_of_version_0_1_is_read(cls):
    """The loss is that of a compiled model: tests/unit/models/test_old_presets.py."""
    saved = {"module": "keras_attn.losses", "class_name": cls.__name__, "config": {"name": "n"}}
    found = keras.saving.deserialize_keras_object(saved | {"registered_name": f"keras_attn>{cls.__name__}"})
    assert type(found) is cls
    assert found.get_config() == {"name": "n", "dtype": "float32"}


def test_no_dtype_policy_reaches_the_loss():
    """Token ids of float16 would be rounded from 2,049 on."""
    keras.config.set_dtype_policy("mixed_float16")
    assert SmoothedCrossentropy().dtype == "float32"
    assert SmoothedCrossentropy(dtype=keras.DTypePolicy("float64")).dtype == "float64"


@pytest.mark.parametrize("cls", ALL)
def test_errors_are_sentences(cls):
    for dtype in ("bfloat16", "mixed_float16", keras.DTypePolicy("mixed_bfloat16")):
        with pytest.raises(ValueError, match=r"Expected dtype to be float32 or float64, .* Received: dtype=b?float16"):
            cls(dtype=dtype)
    own = "label_smoothing, vocabulary_size, reduction, " if cls is SmoothedCrossentropy else ""
    valid = f"Expected arguments among: {own}name, dtype. Received: lable_smoothing"
    with pytest.raises(ValueError, match=re.escape(valid)):
        cls(lable_smoothing=0.1)


def test_shapes_and_smoothing_are_checked():
    with pytest.raises(ValueError, match=r"Expected label_smoothing in \[0, 1\)\. Received: label_smoothing=1"):
        SmoothedCrossentropy(1.0)
    with pytest.raises(ValueError, match=r"Received: labels of shape \(2, 3\) and logits of shape \(2, 4, 7\)"):
        SmoothedCrossentropy()(np.zeros((2, 3)), np.zeros((2, 4, 7)))
    for words in (0, -2, 2.5):
        with pytest.raises(ValueError, match="`vocabulary_size` to be a positive whole number"):
            SmoothedCrossentropy(vocabulary_size=words)
    with pytest.raises(ValueError, match=r"at least vocabulary_size=8 words\. Received: logits of shape \(2, 3, 7\)"):
        SmoothedCrossentropy(vocabulary_size=8)(np.zeros((2, 3)), np.zeros((2, 3, 7)))
    for make in METRICS:
        with pytest.raises(ValueError, match=r"Received: labels of shape \(2, 3, 7\)"):
            make().update_state(np.zeros((2, 3, 7)), np.zeros((2, 3, 7)))
