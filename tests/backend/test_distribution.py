"""Data-parallel training: results of unequal numbers of tokens are those of one device; processes exchange values."""

import json

import keras
import numpy as np
import pytest

from keras_attn.backend import Job, distribution, replica_count, sum_over_replicas
from tests import data_parallel
from tests.data_parallel import finish, free_port, start

on_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX alone compiles loops for several devices")

EXCHANGE = """
import json
import keras
from keras_attn.backend import Job
from tests.data_parallel import shard

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
shards = [shard()]
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
print(json.dumps([found, shards + [shard()]]))
job.exit(3)
"""
LOOPS = """
import json, re
import jax
import keras
import numpy as np
from keras_attn.backend import data_parallel, loops, training_devices
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import LuongSeq2Seq, RNNSearch

B, S, T, VS, VT = 4, 3, 5, 11, 13

def in_loops(text):
    '''All-reduces of the computations that the bodies of the loops reach, and of the whole program.'''
    parts, name = {}, None
    for line in text.splitlines():
        if opening := re.match(r"(?:ENTRY )?%?([\\w.-]+) .*{$", line):
            name = opening[1]
            parts[name] = []
        elif name:
            parts[name].append(line)
    found, waiting = set(), re.findall(r" while\\(.*body=%?([\\w.-]+)", text)
    assert waiting
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            called = re.findall(r"%([\\w.-]+)", " ".join(parts[name]))
            waiting += [one for one in called if one in parts]
    count = lambda lines: sum(" all-reduce(" in line or " all-reduce-start(" in line for line in lines)
    return count([line for name in found for line in parts[name]]), count(text.splitlines())

def program(model):
    model.compile(keras.optimizers.SGD(0.1), SmoothedCrossentropy(0.1))
    model.optimizer.build(model.trainable_variables)
    weights = model.trainable_variables, model.non_trainable_variables
    groups = *weights, model.optimizer.variables, model.metrics_variables
    state = tuple([variable.value for variable in group] for group in groups)
    inputs = {"encoder_token_ids": np.ones((B, S), "int32"), "decoder_token_ids": np.ones((B, T), "int32")}
    batch = inputs, np.ones((B, T), "int32"), np.ones((B, T), "float32")
    layout = keras.distribution.distribution().get_data_layout((B, T))
    batch = jax.tree.map(lambda x: keras.distribution.distribute_tensor(x, layout), batch)
    return in_loops(jax.jit(model.train_step).lower(state, batch).compile().as_text())

def models():
    yield RNNSearch(VS, VT, units=5, embedding_size=7, readout_size=6, attention_units=3)
    yield LuongSeq2Seq(VS, VT, units=6, embedding_size=7, output_dropout=0.1, input_feeding=True)

with data_parallel(training_devices()):
    divided = [program(model) for model in models()]
    loops._mesh = lambda *_: None  # as XLA divides the loops by itself
    print(json.dumps([*divided, program(next(models()))]))
"""


def test_one_replica_sums_nothing():
    value = keras.ops.ones((2, 3))
    assert replica_count() == 1
    assert sum_over_replicas(value) is value


@pytest.fixture(scope="module")
def runs():
    """The outcome of this process with one device; of one with two; on torch, of two processes."""
    commands = [("-m", "tests.data_parallel")]
    if keras.backend.backend() == "torch":
        port = str(free_port())
        commands = [("-m", "tests.data_parallel", str(rank), port) for rank in range(2)]
    others = [start(*command) for command in commands]
    keras.utils.clear_session()
    found = [data_parallel.one_device()]
    for status, output, errors in finish(*others):
        assert status == 0, errors
        found.append(json.loads(output.splitlines()[-1]))
    return found


def test_losses_metrics_and_weights_are_those_of_one_device(runs):
    one, *others = runs
    for other in others:
        assert other["history"].keys() == one["history"].keys()
        for name, values in one["history"].items():
            np.testing.assert_allclose(other["history"][name], values, rtol=1e-6, atol=1e-7, err_msg=name)
        for ours, expected in zip(other["weights"], one["weights"], strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


def check_shards(first, second):
    """Each of two processes reads a half with `shard="auto"`, in batches of the same shapes."""
    assert (first[0], second[0]) == ([0, 2], [1, 2])
    assert first[1] == second[1]
    assert sorted(first[2] + second[2]) == [4 + n for n in range(20)]


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="processes of torch.distributed")
def test_two_processes_of_torch_read_a_half_each(runs):
    assert runs[0]["shard"][0] == (0, 1)
    check_shards(*(one["shard"] for one in runs[1:]))


@on_jax
def test_two_processes_exchange_values_and_errors_and_read_a_half_each():
    variables = {distribution.ADDRESSES: f"127.0.0.1:{free_port()}", distribution.COUNT: "2"}
    ended = finish(*(start("-c", EXCHANGE, **variables, **{distribution.RANK: str(rank)}) for rank in range(2)))
    shards = []
    for rank, (status, output, errors) in enumerate(ended):
        assert status == 3, errors
        found, shard = json.loads(output.splitlines()[-1])
        shards.append(shard)
        assert found == {
            "gather": [["", 0], ["é", 1]],
            "broadcast": 7,
            "unequal": "ValueError: Expected the same seed in all processes. Received: seed=0 in process 0 and 1 in "
            "process 1",
            "written": ["OSError: ", "RuntimeError: Process 0 has ended: "][rank] + "Expected room.",
            "stops": [0, 2, 1],
        }
    for first, second in zip(*shards, strict=True):
        check_shards(first, second)


@on_jax
def test_no_loop_waits_for_another_device():
    """Devices exchange gradients after a loop, not at each of its steps."""
    ((status, output, errors),) = finish(start("-c", LOOPS))
    assert status == 0, errors
    *divided, plain = json.loads(output.splitlines()[-1])
    assert [inside for inside, _ in divided] == [0, 0]
    assert all(whole for _, whole in divided)
    assert plain[0], "the check sees no all-reduce where there is one"


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


@pytest.mark.parametrize(
    ("address", "count", "rank"),
    [(None, "2", "0"), (":1", "2", "1"), ("host:99999", "2", "1"), ("host:1", "2", "2"), ("host:1", None, "1")],
)
def test_variables_that_describe_no_job_are_refused(monkeypatch, address, count, rank):
    names = distribution.ADDRESSES, distribution.COUNT, distribution.RANK
    for name, value in zip(names, (address, count, rank), strict=True):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    expected = "the address of process 0" if keras.backend.backend() == "jax" else "KERAS_BACKEND=jax"
    with pytest.raises(ValueError, match=expected):
        Job.from_environment()
    monkeypatch.setenv(distribution.COUNT, "1")
    monkeypatch.setenv(distribution.RANK, "0")
    assert Job.from_environment().count == 1
