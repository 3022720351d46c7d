"""Keeps what JAX compiles on disk, so that the next process need not compile it again."""

import hashlib
import os
import platform
from pathlib import Path

import keras

_LARGEST = 256 << 20  # bytes; the files that were read least recently are removed first


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
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        abilities = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    except OSError:
        abilities = [platform.processor()]
    return f"{platform.machine()}-{hashlib.sha256(repr(abilities).encode()).hexdigest()[:12]}"
