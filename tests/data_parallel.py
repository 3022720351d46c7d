"""Trains a tiny model on two devices, in a process of its own, and prints the outcome as JSON.

    python -m tests.data_parallel [RANK PORT]

On JAX `keras.distribution.DataParallel` over two virtual devices, on TensorFlow `MirroredStrategy` over two logical
CPUs; on torch this process is one of two under `DistributedDataParallel`. The halves of every batch have different
numbers of tokens.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import keras

from keras_attn import ParallelDataset
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy
from keras_attn.models import RNNSearch

ROOT = Path(__file__).parents[1]
BATCHES, ROWS, EPOCHS, RATE = 2, 4, 2, 0.3
SECONDS = 240


def start(*command: str, **environment: str) -> subprocess.Popen:
    """A Python process in a process group of its own, with two virtual devices on JAX unless XLA_FLAGS are given."""
    devices = environment.pop("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    flags = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {devices}", "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        env=os.environ | flags | environment,
    )


def finish(*processes: subprocess.Popen) -> list[tuple[int, str, str]]:
    """The exit status and both outputs of each; whatever happens, no process group survives."""
    try:
        outputs = [process.communicate(timeout=SECONDS) for process in processes]
        return [(p.returncode, *texts) for p, texts in zip(processes, outputs, strict=True)]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def pairs() -> tuple[list, list]:
    """Rows of ids: the first half of each batch is long, the second short."""
    lengths = [9, 8, 2, 1] * BATCHES
    source = [[4 + (3 * i + j) % 7 for j in range(n)] for i, n in enumerate(lengths)]
    target = [[4 + (2 * i + 5 * j) % 9 for j in range(n)] for i, n in enumerate(lengths)]
    return source, target


def made():
    """The model, and its data in batches of one shape, in the given order."""
    keras.utils.set_random_seed(3)
    sizes = {"units": 5, "embedding_size": 7, "readout_size": 6, "attention_units": 3}
    model = RNNSearch(11, 13, **sizes, initializer="glorot_uniform")
    data = ParallelDataset(*pairs(), batch_size=ROWS, bucket_boundaries=1, shuffle=False)
    return model, data


def parts() -> dict:
    return {
        "optimizer": keras.optimizers.SGD(RATE),
        "loss": SmoothedCrossentropy(0.1),
        "weighted_metrics": [Perplexity(), TokenAccuracy()],
    }


def shard() -> tuple:
    """With `shard="auto"` this process's part, the shapes of its batches and its rows."""
    rows = [[4 + n] for n in range(20)]
    data = ParallelDataset(rows, rows, batch_size=3, shard="auto")
    return data.shard, data.shapes, sorted(int(row) for batch in data for row in batch[1][:, 0] if row > 3)


def outcome(model, history: dict) -> dict:
    return {"history": history, "weights": [weight.tolist() for weight in model.get_weights()]}


def fit(scope=contextlib.nullcontext) -> dict:
    """Keras' own loop."""
    with scope():
        model, data = made()
        model.compile(**parts(), run_eagerly=False)
        history = model.fit(data, epochs=EPOCHS, shuffle=False, validation_data=data, verbose=0).history
    return outcome(model, history)


def torch_loop(rank: int, count: int) -> dict:
    """A loop by hand, on the rows of one process of `count`: before Keras 3.16 `fit` has no distribution on torch."""
    import torch

    model, data = made()
    used = parts()
    loss, metrics, wrapped = used["loss"], used["weighted_metrics"], model
    parameters = [variable.value for variable in model.trainable_variables]
    if count > 1:
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parameters, RATE)
    half = slice(rank * ROWS // count, (rank + 1) * ROWS // count)
    history = {"loss": [], **{metric.name: [] for metric in metrics}}
    for _ in range(EPOCHS):
        values = []
        for index in range(len(data)):
            inputs, labels, weights = data[index]
            inputs = {name: torch.tensor(ids[half]) for name, ids in inputs.items()}
            labels, weights = torch.tensor(labels[half]), torch.tensor(weights[half])
            logits = wrapped(inputs)
            value = loss(labels, logits, weights)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            value = value.detach()
            if count > 1:
                torch.distributed.all_reduce(value)  # the mean over the replicas
            values.append(float(value) / count)
            for metric in metrics:
                metric.update_state(labels, logits, weights)
        history["loss"].append(sum(values) / len(values))
        for metric in metrics:
            history[metric.name].append(float(metric.result()))
            metric.reset_state()
    return outcome(model, history)


def one_device() -> dict:
    if keras.backend.backend() == "torch":
        return torch_loop(0, 1) | {"shard": shard()}
    return fit()


def main(rank: str = "0", port: str = "") -> None:
    backend = keras.backend.backend()
    if backend == "jax":
        keras.distribution.set_distribution(keras.distribution.DataParallel())
        result = fit()
    elif backend == "tensorflow":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        result = fit(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope)
    else:
        import torch.distributed

        address = f"tcp://127.0.0.1:{port}"
        torch.distributed.init_process_group("gloo", init_method=address, rank=int(rank), world_size=2)
        result = torch_loop(int(rank), 2) | {"shard": shard()}
        torch.distributed.destroy_process_group()
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
