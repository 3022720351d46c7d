"""One training process of `tests.benchmarks.distributed`, which starts it, tells it when to train, and ends it.

    python -m tests.benchmarks.distributed_process JOB

JOB is a `Job` as JSON. The process prints lines of JSON: the losses of the first updates when it is warm, then the
seconds of one epoch for each line that it reads. It ends with its input, and after `Job.seconds` in any case.
"""

import dataclasses
import json
import os
import signal
import sys
import time


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What a process trains, and where.

    Attributes:
        cores: The cores of this process; empty for all that it may use.
        rank, count: This process among those that train together.
        address: Host and port of rank 0, if there are several.
        devices: Virtual devices of this process.
        units, vocabulary_size: Sizes of the model, an `RNNSearch`.
        batch_size: Sentences of a batch, of all processes and devices together.
        updates: Batches of an epoch.
        compared: Updates whose losses are reported one by one.
        seconds: After these the process is ended.
    """

    cores: list[int] = dataclasses.field(default_factory=list)
    rank: int = 0
    count: int = 1
    address: str = ""
    devices: int = 1
    units: int
    vocabulary_size: int
    batch_size: int
    updates: int
    compared: int
    seconds: int


def pairs(job: Job) -> tuple[list, list]:
    """Rows of random ids, on both sides about as long as the sentences of Multi30k."""
    import numpy as np

    random = np.random.default_rng(0)
    lengths = np.clip(random.gamma(6.0, 2.2, (2, job.updates * job.batch_size)).astype(int), 3, 31)
    return tuple([random.integers(4, job.vocabulary_size, n).tolist() for n in side] for side in lengths)


def train(job: Job) -> None:
    """Trains as docs/scaling.md and docs/clusters.md show it, and reports."""
    import keras

    from keras_attn import ParallelDataset
    from keras_attn.losses import SmoothedCrossentropy
    from keras_attn.models import RNNSearch
    from tests.benchmarks.train_throughput import Subset

    if job.count > 1:
        keras.distribution.initialize(job.address, job.count, job.rank)
        keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    elif job.devices > 1:
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    devices = keras.distribution.list_devices()
    if len(devices) != job.count * job.devices:
        raise RuntimeError(f"Expected {job.count * job.devices} devices. Received: {', '.join(devices)}")
    keras.utils.set_random_seed(0)
    data = ParallelDataset(
        *pairs(job), batch_size=job.batch_size // job.count, bucket_boundaries=2, max_length=32, shard="auto"
    )
    sizes = {name: job.units for name in ("units", "readout_size", "attention_units")}
    sizes |= {"embedding_size": job.units // 2, "initializer": "glorot_uniform"}
    model = RNNSearch(job.vocabulary_size, job.vocabulary_size, **sizes)  # no dropout: it would differ by row
    model.compile(keras.optimizers.Adam(1e-3, global_clipnorm=1.0), SmoothedCrossentropy(0.1))

    def fit(indices) -> float:
        return model.fit(Subset(data, indices), epochs=1, shuffle=False, verbose=0).history["loss"][0]

    losses = [fit([index]) for index in range(job.compared)]
    fit(range(len(data)))  # compiles what is left
    report = data.report()
    tell(losses=losses, target_tokens=report["target_tokens"], parameters=model.count_params(), updates=len(data))
    for _ in sys.stdin:
        start = time.perf_counter()
        fit(range(len(data)))
        tell(seconds=time.perf_counter() - start)


def tell(**values) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    signal.alarm(job.seconds)  # also if the benchmark itself was killed
    if job.cores:
        os.sched_setaffinity(0, job.cores)  # before JAX is imported, which counts them and starts threads
    train(job)


if __name__ == "__main__":
    main()
