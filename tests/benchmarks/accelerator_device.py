"""What `tests.benchmarks.accelerator` asks of JAX's or torch's device: its name, its memory, its errors."""

import keras

from keras_attn.training.memory import peak_memory_mb

BACKEND = keras.backend.backend()


def torch_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def facts() -> dict:
    """The device and the versions, as the first line of a process."""
    result = {"backend": BACKEND, "keras": keras.version()}
    if BACKEND == "jax":
        import jax

        first = jax.devices()[0]
        return result | {"platform": first.platform, "device": first.device_kind, "jax": jax.__version__}
    import torch

    platform = torch_device()
    name = torch.cuda.get_device_name() if platform == "cuda" else "cpu"
    return result | {"platform": platform, "device": name, "torch": torch.__version__}


def allow_tf32() -> None:
    """Makes torch multiply float32 matrices in TF32 on CUDA, as JAX does by default."""
    if BACKEND == "torch" and torch_device() == "cuda":
        import torch

        torch.set_float32_matmul_precision("high")


def wait() -> None:
    """Returns when torch's device has done its work. On JAX `fit` ends with its last step, whose metrics it reads."""
    if BACKEND == "torch" and torch_device() == "cuda":
        import torch

        torch.cuda.synchronize()


def itemsize(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else 4


def _peak_bytes() -> int:
    if BACKEND == "torch" and torch_device() == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    if BACKEND == "jax":
        import jax

        if found := jax.local_devices()[0].memory_stats():
            return found["peak_bytes_in_use"]
    return round(peak_memory_mb() * 1e6)


def reset_peak() -> int:
    """Starts a case: the peak before it, which only torch on CUDA can reset."""
    if BACKEND == "torch" and torch_device() == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
        return 0
    return _peak_bytes()


def peak(before: int) -> dict:
    """The peak in MB; where the process had a higher one before, what is known is that it is at most that."""
    found = _peak_bytes()
    name = "peak_memory_mb" if found > before else "peak_memory_mb_at_most"
    return {name: round(found / 1e6, 1)}


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return True
    if BACKEND != "torch":
        return False
    import torch

    return isinstance(error, torch.OutOfMemoryError)


def free() -> None:
    """Gives the memory of the last case back, after the garbage collector has run."""
    if BACKEND == "jax":
        import jax

        jax.clear_caches()
    elif torch_device() == "cuda":
        import torch

        torch.cuda.empty_cache()
