"""`--distribute`: the devices on which a run trains, and batches that divide among them."""

import hashlib
import json
import os
from collections.abc import Sequence

import keras

from keras_attn import ParallelDataset, Tokenizer, files
from keras_attn.backend import Job, training_devices
from keras_attn.training import vocabulary
from keras_attn.training.corpora import Corpus, TextFiles


def join(distribute: str | None) -> Job:
    """The job of this process, as the environment describes it.

    Args:
        distribute: The value of `--distribute`, or None.

    Raises:
        ValueError: If the variables are wrong, or the backend or the command cannot train with several processes.
    """
    job = Job.from_environment()
    if job.count == 1 and distribute is not None:
        _refuse_other_launchers()
    if job.count > 1 and distribute != "data":
        raise ValueError(
            f"Expected --distribute data with {job.count} processes. Received: "
            f"{'no' if distribute is None else distribute} --distribute"
        )
    return job


def devices_for(distribute: str | None, batch_size: int | None, accumulation_steps: int = 1) -> list[str]:
    """The devices on which to train, printed if there is a choice.

    Args:
        distribute: The value of `--distribute`, or None, for which the list is empty.
        batch_size: Sentences of a batch, for all devices together; None: batches have numbers of their own.
        accumulation_steps: Batches of an update.

    Raises:
        ValueError: If the backend cannot, the devices do not divide into groups of N, or the batch does not divide
            among the devices or groups.
    """
    if distribute is None:
        return []
    parts = vocabulary.parts(distribute)
    if parts > 1 and keras.backend.backend() != "jax":
        raise ValueError(
            "Expected the backend jax to divide the vocabulary among devices (KERAS_BACKEND=jax). Received: "
            f"--distribute {distribute} on {keras.backend.backend()}"
        )
    devices = training_devices()
    if accumulation_steps > 1 and len(devices) > 1 and keras.backend.backend() == "tensorflow":
        raise ValueError(
            "Expected an update for each batch: Keras cannot accumulate gradients on several devices of TensorFlow. "
            f"Use JAX (KERAS_BACKEND=jax). Received: accumulation_steps={accumulation_steps}"
        )
    if len(devices) % parts:
        fit = " or ".join(f"model={n}" for n in range(2, len(devices) + 1) if len(devices) % n == 0)
        raise ValueError(
            f"Expected N in --distribute model=N to divide the {len(devices)} devices of this machine"
            f"{f', as {fit} does' if fit else ''}. Received: model={parts}"
        )
    if batch_size is not None:
        _check(len(devices), parts, batch_size, {f"batch_size={batch_size}": batch_size})
    print(
        f"Training on {len(devices)} device{'s' * (len(devices) > 1)}: {', '.join(devices)}"
        f"{f'; the vocabulary in {parts} parts' if parts > 1 else ''}.",
        flush=True,
    )
    return devices


def check_batches(
    devices: Sequence[str],
    batch_size: int | None,
    splits: dict[str, ParallelDataset],
    distribute: str | None = None,
) -> None:
    """Refuses batches that do not divide among the devices: of a split with fewer pairs, or of a few long pairs.

    Args:
        devices: As `devices_for` returned them.
        batch_size: As `devices_for`.
        splits: The data sets by the names of their splits.
        distribute: The value of `--distribute`.

    Raises:
        ValueError: The sentence names sizes that fit.
    """
    if devices and batch_size is None:
        _check_shapes(len(devices) // vocabulary.parts(distribute), splits)
    elif devices:
        sizes = {split: data.shapes[0][0] for split, data in splits.items()}
        rows = {f"batches of {size} in the small split {split}": size for split, size in sizes.items()}
        _check(len(devices), vocabulary.parts(distribute), batch_size, rows)


def _check_shapes(count: int, splits: dict[str, ParallelDataset]) -> None:
    """Refuses batches of `tokens_per_batch` that do not divide; those of 8 rows and more have a multiple of 8."""
    for split, data in splits.items():
        for rows, *lengths in data.shapes:
            if rows % count:
                longest = max(max(shape[1:]) for data in splits.values() for shape in data.shapes)
                enough = f"With --set tokens_per_batch={8 * longest} or more they do."
                raise ValueError(
                    f"Expected batches that divide among {count} devices. Received: {rows} pairs of up to "
                    f"{max(lengths)} tokens in the split {split}. "
                    + (enough if 8 % count == 0 else "Set batch_size in place of tokens_per_batch.")
                )


def _check(devices: int, parts: int, batch_size: int, rows: dict[str, int]) -> None:
    count = devices // parts  # groups, each of which has the whole model
    odd = [what for what, number in rows.items() if number % count]
    if not odd:
        return
    # A split with fewer pairs than the batch has batches of its own size, whatever the larger batch_size.
    limits = [number for number in rows.values() if number < batch_size]

    def fits(size: int) -> bool:
        return all(min(size, limit) % count == 0 for limit in [size, *limits])

    below, above = batch_size // count * count, -(-batch_size // count) * count
    while below and not fits(below):
        below -= count
    sizes = list(dict.fromkeys(size for size in (below, above) if size and fits(size)))
    advice = f"With --set batch_size={' or '.join(map(str, sizes))} they do."
    if not sizes:
        advice = f"Use at most {min(limits) * parts} devices, or a larger split."
    among = f"{count} devices" if parts == 1 else f"{count} groups of {parts} devices"
    raise ValueError(f"Expected batches that divide among {among}. Received: {odd[0]}. {advice}")


def check_equal_text(job: Job, corpus: Corpus, tokenizers: Sequence[Tokenizer]) -> None:
    """Compares the text and the vocabularies of all processes before training.

    Raises:
        ValueError: In all processes. The sentence names what differs.
    """
    if job.count > 1:
        texts = {f"text of the split {split}": [*map(_digest, sides)] for split, sides in corpus.splits.items()}
        job.agree(texts | {"vocabularies": [tokenizer.fingerprint for tokenizer in tokenizers]})


def _digest(side: Sequence[str] | TextFiles) -> str:
    if isinstance(side, TextFiles):
        return " ".join(map(files.sha256, side.paths))
    digest = hashlib.sha256()
    for line in side:
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _refuse_other_launchers() -> None:
    """Raises ValueError if the environment says that another launcher has started several processes."""
    try:
        workers = json.loads(os.environ.get("TF_CONFIG", "{}"))["cluster"]["worker"]
    except (ValueError, KeyError, TypeError):
        workers = []
    if keras.backend.backend() == "tensorflow" and len(workers) > 1:
        raise ValueError(
            "Expected one process on TensorFlow: with several workers, MultiWorkerMirroredStrategy fails in Keras. Use "
            f"JAX (KERAS_BACKEND=jax). Received: TF_CONFIG with {len(workers)} workers"
        )
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError(
            "Expected one process, several on JAX with Keras' variables KERAS_DISTRIBUTION_..., or several on torch "
            f"that torchrun starts (docs/clusters.md). Received: WORLD_SIZE={os.environ['WORLD_SIZE']}"
        )
