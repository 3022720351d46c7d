"""Ensembles: the mean of the members' log-probabilities, in float32; that of probabilities is in the contract."""

import keras
import numpy as np
from keras import ops

from tests.contracts.model_rows import VT, make, some_inputs
from tests.search.searching import log_softmax

INPUTS = some_inputs()


def test_what_all_members_think_nearly_impossible_stays_finite():
    ensemble = make("ensemble")
    logits = np.zeros((1, VT), "float32")
    logits[0, 5] = -300.0  # e^-300 is 0 in float32
    found = ops.convert_to_numpy(ensemble._combine([ops.convert_to_tensor(logits)] * 2))
    np.testing.assert_allclose(found, log_softmax(logits), atol=1e-4)


def test_an_ensemble_speaks_float32_under_every_policy():
    logits = make("ensemble", dtype="mixed_bfloat16")(INPUTS)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    np.testing.assert_allclose(np.exp(ops.convert_to_numpy(logits)).sum(-1), 1, atol=1e-5)
