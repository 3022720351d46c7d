"""Data-parallel training with unequal numbers of tokens: losses, metrics and weights are those of one device."""

import json

import keras
import numpy as np
import pytest

from keras_attn.backend import replica_count, sum_over_replicas
from tests.data_parallel import finish, free_port, start


def test_one_replica_sums_nothing():
    value = keras.ops.ones((2, 3))
    assert replica_count() == 1
    assert sum_over_replicas(value) is value


@pytest.fixture(scope="module")
def runs():
    """One device; two; on torch, two processes, of which the second comes last."""
    ranks = [("0",), ("1",)] if keras.backend.backend() == "torch" else [()]
    port = (str(free_port()),) if len(ranks) > 1 else ()
    commands = [("one",), *(("devices", *rank, *port) for rank in ranks)]
    ended = finish(*(start("-m", "tests.data_parallel", *command) for command in commands))
    for status, _, errors in ended:
        assert status == 0, errors
    return [json.loads(output.splitlines()[-1]) for _, output, _ in ended]


@pytest.mark.slow
def test_losses_and_metrics_are_those_of_one_device(runs):
    one, *others = runs
    for other in others:
        assert other["history"].keys() == one["history"].keys()
        for name, values in one["history"].items():
            np.testing.assert_allclose(other["history"][name], values, rtol=1e-6, atol=1e-7, err_msg=name)


@pytest.mark.slow
def test_weights_are_those_of_one_device(runs):
    one, *others = runs
    for other in others:
        for ours, expected in zip(other["weights"], one["weights"], strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)
