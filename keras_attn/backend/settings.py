"""Settings that fit the devices of this process: what compiles, in which precision, and what the process keeps."""

import ctypes
import hashlib
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

import keras

_BFLOAT16 = {"avx512_bf16", "amx_bf16"}  # instructions
_MALLOC = {-4: 0, -1: 2**31 - 1, -2: 64 << 20}  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD of <malloc.h>
_LARGEST = 256 << 20  # bytes of compiled programs; the files that were read least recently are removed first


def preferred_jit_compile() -> bool | str:
    """The value of `jit_compile` that is fastest for a model made of this package's loops.

    For TensorFlow on a CPU XLA is slower, and off here whatever "auto" means to a version of Keras: a training step of
    the 6 M parameters of `recipes/rnnsearch.py` took 0.75 s with XLA and 0.48 s without, on two cores, and a search
    step with 13 M parameters, 128 sentences and a beam of 5 took 132 ms and 91 ms.

    Returns:
        False for TensorFlow without an accelerator, else "auto".
    """
    return "auto" if keras.backend.backend() != "tensorflow" or has_accelerator() else False


def preferred_precision() -> str:
    """The dtype policy for training: mixed precision if all accelerators multiply bfloat16 in hardware.

    Returns:
        "mixed_bfloat16" with TPUs, or GPUs of compute capability 8.0 and later, on which Keras trains; else "float32".
        On a CPU bfloat16 products gain little, and recurrences in it lose more.
    """
    capabilities = _capabilities()
    return "mixed_bfloat16" if capabilities and all(map(_has_bfloat16, capabilities)) else "float32"


def has_bfloat16_products() -> bool:
    """Returns True if `bfloat16_products` gains something: TensorFlow or torch on a processor with AMX or AVX-512 BF16.

    Linux says what a processor has; elsewhere this is False.
    """
    flags = {flag for line in _processor_lines() if line.startswith("flags") for flag in line.split()}
    return keras.backend.backend() != "jax" and not has_accelerator() and not flags.isdisjoint(_BFLOAT16)


def has_accelerator() -> bool:
    """Returns True if Keras computes on a GPU or TPU."""
    return bool(_capabilities())


@cache
def tune_process() -> None:
    """Makes training and search on a CPU faster, by settings of memory and threads that hold for the whole process.

    Only programs call it, before they compute anything: the commands, the recipes and the benchmarks.

    - Linux: freed memory stays in the process (`mallopt` of the GNU C library). Large blocks otherwise return to the
      system at once, and each batch waits for new pages of zeros: an update of 64 sentences took 410 ms on TensorFlow
      and 355 with this setting, one of 128 sentences and twice the widths 2,900 and 1,270; on JAX 294 and 270, on
      torch 437 and 417. Blocks above 128 KiB are no longer mapped one by one, so that a process keeps what it needed
      most, here up to 20 % more than before.
    - TensorFlow: half of the cores work on one operation, the other half on another one, as the two directions of an
      encoder and the two gradients of a product are: 265 ms instead of 355, on two cores. It stays as it is where
      `TF_NUM_INTRAOP_THREADS` or `tf.config.threading` says otherwise.
    - TensorFlow: the autotuner of `tf.data` is off, for which every epoch would wait at its end. Keras wraps a
      `PyDataset` in a `tf.data` pipeline. TensorFlow 2.21 often ends the iterator of such a pipeline only when its
      autotuner wakes, which it does 10 ms (2^k - 1) after the epoch's start, and later once a minute: epochs of 85 s
      took 140 s. There is nothing to tune where a batch takes 0.1 ms to make. The switch is
      `tf.data.experimental.enable_debug_mode`, the one that reaches pipelines that Keras makes.

    With an accelerator, for which batches are copied ahead, TensorFlow stays as it is. JAX is not started: several
    processes do that together.
    """
    if platform.libc_ver()[0] == "glibc":
        for parameter, value in _MALLOC.items():
            ctypes.CDLL(None).mallopt(parameter, value)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        _divide_threads()  # before `has_accelerator`, which starts TensorFlow
        if not has_accelerator():
            tf.data.experimental.enable_debug_mode()


def _divide_threads() -> None:
    """Gives half of the cores to one operation of TensorFlow, unless that was set, or TensorFlow is running already."""
    import tensorflow as tf

    threads = tf.config.threading
    is_chosen = "TF_NUM_INTRAOP_THREADS" in os.environ or threads.get_intra_op_parallelism_threads()
    if is_chosen or tf.config.list_physical_devices("GPU"):
        return
    with suppress(RuntimeError):  # it has computed something, and nothing public says so before
        threads.set_intra_op_parallelism_threads(max(1, (os.cpu_count() or 1) // 2))


def keep_compiled(folder: Path) -> None:
    """Makes JAX keep what it compiles in `folder`, at most 256 MiB of it; on the other backends this does nothing.

    To compile a search of one new shape takes 1.5 s; with what an earlier process compiled it takes 0.3 (2.9 M
    parameters, one core).

    This changes JAX's configuration of the whole process, so only commands call it. It stays as it is where the user
    has chosen a folder (`JAX_COMPILATION_CACHE_DIR`) or switched the cache off (`JAX_ENABLE_COMPILATION_CACHE=0`), and
    where the folder cannot be written or others can write in it, since what is read from it is run.

    Args:
        folder: A folder that may be missing. Each kind of processor has a folder of its own in it: programs that were
            compiled for one may not run on another, and a home directory may be shared by both.
    """
    if keras.backend.backend() != "jax":
        return
    import jax

    if jax.config.jax_compilation_cache_dir or not jax.config.jax_enable_compilation_cache:
        return
    folder = folder / _processor()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK) or not _is_private(folder):
            return
    except OSError:  # a read-only home directory, or a full one: compiling works without
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", _LARGEST)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # many short ones take most of the time
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _is_private(folder: Path) -> bool:
    """Returns True if nobody but this user can write in `folder`."""
    status = folder.stat()
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)


def _processor() -> str:
    """The machine's architecture, with a digest of what its processor can do where the system tells it."""
    abilities = sorted({line for line in _processor_lines() if line.startswith(("model name", "flags", "Features"))})
    abilities = abilities or [platform.processor()]
    return f"{platform.machine()}-{hashlib.sha256(repr(abilities).encode()).hexdigest()[:12]}"


def _processor_lines() -> list[str]:
    """Returns the lines in which Linux describes each core; none on other systems."""
    try:
        return Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return []


def _capabilities() -> list[str]:
    """The compute capability of each accelerator, such as "9.0"; "" for one that is not NVIDIA's."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        devices = [device for device in jax.local_devices() if device.platform != "cpu"]
        return [str(getattr(device, "compute_capability", "")) for device in devices]
    if backend == "tensorflow":
        import tensorflow as tf

        details = map(tf.config.experimental.get_device_details, tf.config.get_visible_devices("GPU"))
        found = [".".join(map(str, detail.get("compute_capability", ()))) for detail in details]
        return found + [""] * len(tf.config.list_logical_devices("TPU"))
    import torch

    if not torch.cuda.is_available():  # Apple's GPUs train in float32
        return []
    found = map(torch.cuda.get_device_capability, range(torch.cuda.device_count()))
    return [".".join(map(str, pair)) for pair in found]


def _has_bfloat16(capability: str) -> bool:
    major = capability.partition(".")[0]
    return int(major) >= 8 if major.isdecimal() else True
