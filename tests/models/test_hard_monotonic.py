"""HardMonotonicSeq2Seq: against every alignment enumerated, in all its kinds."""

import functools
import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.losses import SmoothedCrossentropy
from tests import hard_attention_oracle
from tests.contracts import model_rows

B, S, T, VS, VT = 3, 5, 4, 31, 11
SIZES = {"units": 3, "num_layers": 2, "embedding_size": 7, "decoder_units": 5, "readout_size": 6}
KINDS = [{"order": order, "monotonic": monotonic} for order, monotonic in itertools.product((0, 1), (True, False))]


make = functools.partial(model_rows.make, "hard_monotonic", target_vocabulary_size=VT, **SIZES)


@pytest.fixture
def inputs(rng):
    source, target = rng.integers(4, VS, (B, S)), rng.integers(4, VT, (B, T))
    source[1, 3:] = 0
    source[2, 1:] = 0
    return {"encoder_token_ids": source.astype("int32"), "decoder_token_ids": target.astype("int32")}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_sums_over_every_alignment(inputs, kind):
    model = make(**kind, window=2)
    weights = {weight.path: ops.convert_to_numpy(weight) for weight in model.trainable_weights}
    expected, posterior = hard_attention_oracle.transducer(
        weights, *inputs.values(), layers=SIZES["num_layers"], **kind, window=2
    )
    found = model.predict_on_batch(inputs)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(np.exp(found).sum(-1), 1, atol=1e-5)  # log-probabilities
    ids = [ops.convert_to_tensor(inputs[name]) for name in inputs]
    found = ops.convert_to_numpy(model.align_posterior(*ids))
    np.testing.assert_allclose(found, posterior, atol=1e-5)
    alone = ops.convert_to_numpy(model.align(*ids)[1])
    np.testing.assert_allclose(found[:, -1], alone[:, -1], atol=1e-5)  # nothing is known beyond
    assert np.abs(found[:2] - alone[:2]).max() > 1e-3


def test_gradients_are_finite_where_alignments_are_impossible(inputs):
    """Sources of one word, targets beyond the window, and rows of padding alone."""
    model = make(order=1, window=1)
    source = inputs["encoder_token_ids"].copy()
    source[2] = 0
    model.compile(keras.optimizers.SGD(1.0), SmoothedCrossentropy())
    batch = {**inputs, "encoder_token_ids": source}
    loss = model.train_on_batch(batch, inputs["decoder_token_ids"], sample_weight=np.ones((B, T), "float32"))
    assert np.isfinite(float(loss))
    assert all(np.isfinite(ops.convert_to_numpy(weight)).all() for weight in model.trainable_weights)
