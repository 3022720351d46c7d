"""Schedules of scheduled sampling: the paper's formulas, wrong settings, and weights that plain models share."""

import numpy as np
import pytest
from keras import ops

from keras_attn.layers import get_scheduled_sampling
from recipes.rnnsearch import Config
from tests.contracts.model_rows import make, some_inputs

UPDATES = np.array([0, 1, 10, 900, 10**6])


@pytest.mark.parametrize(
    ("text", "epsilon"),
    [
        ("inverse_sigmoid,k=90", lambda i: 90 / (90 + np.exp(np.minimum(i / 90, 700)))),
        ("exponential,k=0.99", lambda i: 0.99**i),
        ("linear,k=1,c=0.001,minimum=0.25", lambda i: np.maximum(0.25, 1 - 0.001 * i)),
        ("linear,k=1.5,c=0.01", lambda i: np.clip(1.5 - 0.01 * i, 0, 1)),
        ("0.25", lambda i: np.full(i.shape, 0.75)),
    ],
)
def test_schedules_follow_the_papers_formulas(text, epsilon):
    settings = get_scheduled_sampling(text)
    found = [float(settings.probability(i)) for i in UPDATES]
    np.testing.assert_allclose(found, 1 - epsilon(UPDATES.astype("float64")), atol=1e-5)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("sigmoid,k=9", r"Expected `decay` among: constant, linear, .* Received: decay='sigmoid'"),
        ("exponential", r"with k, such as 'exponential,k=\.\.\.'"),
        ("exponential,k=1", r"Expected `k` between 0 and 1"),
        ("inverse_sigmoid,k=0.5", r"Expected `k` of at least 1"),
        ("linear,k=1", r"Expected `c` above 0 with decay=\"linear\""),
        ("inverse_sigmoid,k=9,c=1", r"and only there"),
        ("inverse_sigmoid,k=9,rate=1", r"names among k, c, minimum"),
        ("inverse_sigmoid,k=nine", r"names among k, c, minimum"),
        ("inverse_sigmoid,k=9,choose=beam", r"Expected `choose` among: sample, argmax"),
        ("linear,k=1,c=1,minimum=2", r"Expected `minimum` from 0 to 1"),
        ("1.5", r"a probability from 0 to 1, .* Received: '1\.5'"),
        (True, r"a probability from 0 to 1, .* Received: True"),
        ([0.5], r"Expected `scheduled_sampling` to be None, a probability"),
    ],
)
def test_wrong_settings_get_a_sentence(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        get_scheduled_sampling(given)
    if isinstance(given, str):
        with pytest.raises(ValueError, match=sentence):
            Config(scheduled_sampling=given)


def test_a_plain_models_weights_load_and_back(tmp_path):
    inputs = some_inputs()
    plain, sampling = make("rnnencdec"), make("rnnencdec", scheduled_sampling=0.5)
    assert [weight.path for weight in sampling.weights] == [weight.path for weight in plain.weights]
    for source, other in ((plain, sampling), (sampling, plain)):
        for weight in source.weights:
            weight.assign(1.1 * weight)
        source.save_weights(tmp_path / "model.weights.h5")
        other.load_weights(tmp_path / "model.weights.h5")
        np.testing.assert_array_equal(ops.convert_to_numpy(other(inputs)), ops.convert_to_numpy(source(inputs)))
