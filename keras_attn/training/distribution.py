"""`--distribute data`: the devices on which a run trains, and batches that divide among them."""

import hashlib
import json
import os
from collections.abc import Sequence

import keras

from keras_attn import ParallelDataset, Tokenizer, files
from keras_attn.backend import Job, training_devices
from keras_attn.training.corpora import Corpus, TextFiles


def join(distribute: str | None) -> Job:
    """The job of this process, as the environment describes it.

    Args:
        distribute: "data" or None.

    Raises:
        ValueError: If the variables are wrong, or the backend or the command cannot train with several processes.
    """
    job = Job.from_environment()
    if job.count > 1 and distribute is None:
        raise ValueError(f"Expected --distribute data with {job.count} processes. Received: no --distribute")
    if job.count == 1 and distribute is not None:
        for name, several in (("WORLD_SIZE", os.environ.get("WORLD_SIZE", "1") != "1"), ("TF_CONFIG", _has_workers())):
            if several:
                raise ValueError(
                    "Expected one process, or several on JAX (KERAS_BACKEND=jax) with Keras' variables "
                    f"KERAS_DISTRIBUTION_.... Received: {name}={os.environ[name]}"
                )
    return job


def devices_for(distribute: str | None, batch_size: int | None, accumulation_steps: int = 1) -> list[str]:
    """The devices on which to train, printed if there is a choice.

    Args:
        distribute: "data", or None, for which the list is empty.
        batch_size: Sentences of a batch, for all devices together; None: batches have numbers of their own.
        accumulation_steps: Batches of an update.

    Raises:
        ValueError: If the backend cannot, or the batch does not divide among the devices.
    """
    if distribute is None:
        return []
    devices = training_devices()
    if accumulation_steps > 1 and len(devices) > 1 and keras.backend.backend() == "tensorflow":
        raise ValueError(
            "Expected an update for each batch: Keras cannot accumulate gradients on several devices of TensorFlow. "
            f"Use JAX (KERAS_BACKEND=jax). Received: accumulation_steps={accumulation_steps}"
        )
    if batch_size is not None and batch_size % len(devices):
        raise ValueError(
            f"Expected a batch_size that divides among {len(devices)} devices, such as "
            f"{-(-batch_size // len(devices)) * len(devices)}. Received: batch_size={batch_size}"
        )
    print(f"Training on {len(devices)} device{'s' * (len(devices) > 1)}: {', '.join(devices)}.", flush=True)
    return devices


def check_batches(devices: Sequence[str], splits: dict[str, ParallelDataset]) -> None:
    """Refuses batches that do not divide among the devices: of a split with fewer pairs, or of a few long pairs.

    Args:
        devices: As `devices_for` returned them.
        splits: The data sets by the names of their splits.

    Raises:
        ValueError: The sentence has the rows of such a batch.
    """
    for split, data in splits.items() if devices else ():
        for rows, *lengths in data.shapes:
            if rows % len(devices):
                raise ValueError(
                    f"Expected batches that divide among {len(devices)} devices: use another batch_size, or a larger "
                    f"split or tokens_per_batch. Received: {rows} pairs of up to {max(lengths)} tokens in the split "
                    f"{split}"
                )


def check_equal_text(job: Job, corpus: Corpus, tokenizers: Sequence[Tokenizer]) -> None:
    """Compares the text and the vocabularies of all processes before training.

    Raises:
        ValueError: In all processes. The sentence names what differs.
    """
    if job.count > 1:
        texts = {f"text of the split {split}": [*map(_digest, sides)] for split, sides in corpus.splits.items()}
        job.assert_equal(texts | {"vocabularies": [tokenizer.fingerprint for tokenizer in tokenizers]})


def _digest(side: Sequence[str] | TextFiles) -> str:
    if isinstance(side, TextFiles):
        return " ".join(map(files.sha256, side.paths))
    return hashlib.sha256("\n".join(side).encode()).hexdigest()


def _has_workers() -> bool:
    """Returns whether TF_CONFIG describes several workers, whose strategy fails in Keras."""
    try:
        workers = json.loads(os.environ.get("TF_CONFIG", "{}"))["cluster"]["worker"]
    except (ValueError, KeyError, TypeError):
        return False
    return keras.backend.backend() == "tensorflow" and len(workers) > 1
