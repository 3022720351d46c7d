"""The precision in which the devices of this process train fastest."""

import keras


def preferred_precision() -> str:
    """The dtype policy for training: mixed precision if all accelerators multiply bfloat16 in hardware.

    Returns:
        "mixed_bfloat16" with TPUs, or GPUs of compute capability 8.0 and later, on which Keras trains; else "float32".
        On a CPU bfloat16 products gain little, and recurrences in it lose more.
    """
    capabilities = _capabilities()
    return "mixed_bfloat16" if capabilities and all(map(_has_bfloat16, capabilities)) else "float32"


def has_accelerator() -> bool:
    """Returns True if Keras computes on a GPU or TPU."""
    return bool(_capabilities())


def _capabilities() -> list[str]:
    """The compute capability of each accelerator, such as "9.0"; "" for one that is not NVIDIA's."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        devices = [device for device in jax.local_devices() if device.platform != "cpu"]
        return [str(getattr(device, "compute_capability", "")) for device in devices]
    if backend == "tensorflow":
        import tensorflow as tf

        details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
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
