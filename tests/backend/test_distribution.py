"""Data-parallel training: results of unequal numbers of tokens are those of one device; processes exchange values."""

import json

import keras
import numpy as np
import pytest

from keras_attn.backend import Job, distribution, replica_count, sum_over_replicas
from tests.data_parallel import finish, free_port, start

SCRIPT = """
import json
from keras_attn.backend import Job

job = Job.from_environment()
job.init()

def error(action):
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def write():
    raise OSError("Expected room.")

values = {"seed": 0, "batch_size": 16}
job.assert_equal(values)
found = {
    "gather": job.gather(["é" * job.rank, job.rank]),
    "broadcast": job.broadcast(job.rank + 7),
    "unequal": error(lambda: job.assert_equal(values | {"seed": job.rank})),
    "written": error(lambda: job.on_rank_0(write)),
    "stops": [job.stop_together(wish) for wish in (0, 2 * job.rank, 1 - job.rank)],
}
print(json.dumps(found))
job.exit(3)
"""


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


def test_a_process_alone_asks_nobody(capfd):
    alone = Job()
    alone.init()
    assert alone.gather({"a": 1}) == [{"a": 1}]
    assert alone.broadcast("a") == "a"
    alone.assert_equal({"a": 1})
    alone.on_rank_0(lambda: print("written"))
    assert capfd.readouterr().out == "written\n"
    assert [alone.stop_together(wish) for wish in (0, 2)] == [0, 2]
    assert alone.exit(2) == 2


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="several processes are JAX's")
def test_two_processes_exchange_values_and_errors():
    variables = {distribution.ADDRESSES: f"127.0.0.1:{free_port()}", distribution.COUNT: "2"}
    ended = finish(*(start("-c", SCRIPT, **variables, **{distribution.RANK: str(rank)}) for rank in range(2)))
    for rank, (status, output, errors) in enumerate(ended):
        assert status == 3, errors
        assert json.loads(output.splitlines()[-1]) == {
            "gather": [["", 0], ["é", 1]],
            "broadcast": 7,
            "unequal": "ValueError: Expected the same seed in all processes. Received: seed=0 in process 0 and 1 in "
            "process 1",
            "written": ["OSError: ", "RuntimeError: Process 0 has ended: "][rank] + "Expected room.",
            "stops": [0, 2, 1],
        }


@pytest.mark.parametrize(
    ("address", "count", "rank"),
    [(None, "2", "0"), ("host", "2", "0"), (":1", "2", "1"), ("host:99999", "2", "1"), ("host:1", "2", "2")],
)
def test_variables_that_describe_no_job_are_refused(monkeypatch, address, count, rank):
    for name, value in zip(
        (distribution.ADDRESSES, distribution.COUNT, distribution.RANK), (address, count, rank), strict=True
    ):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    expected = "the address of process 0" if keras.backend.backend() == "jax" else "KERAS_BACKEND=jax"
    with pytest.raises(ValueError, match=expected):
        Job.from_environment()
    monkeypatch.setenv(distribution.COUNT, "1")
    monkeypatch.setenv(distribution.RANK, "0")
    assert Job.from_environment().count == 1
