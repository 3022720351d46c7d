"""Ensembles: the mean of the members' log-probabilities, in float32; that of probabilities is in the contract."""

import keras
import numpy as np
from keras import ops

from keras_attn.models import Ensemble
from tests.contracts.model_rows import VT, make, some_inputs
from tests.search.searching import log_softmax

INPUTS = some_inputs()


def log_probs_of(model):
    return log_softmax(ops.convert_to_numpy(model(INPUTS)))


def test_the_mean_of_log_probabilities():
    members = [make(name) for name in ("rnnsearch", "lstm_seq2seq, forwards, tied", "luong")]
    expected = log_softmax(np.mean([log_probs_of(member) for member in members], axis=0))
    found = log_probs_of(Ensemble(members, average="log_probability"))
    np.testing.assert_allclose(found, expected, atol=1e-5)


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
