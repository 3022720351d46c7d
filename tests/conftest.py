"""Seed, dtype policy and backend of the tests: the backend is the one that KERAS_BACKEND names."""

import gc
import os
import signal
import sys
from importlib import metadata, util
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiling is most of the time that tests take there
if util.find_spec("jaxlib") and metadata.version("jaxlib") < "0.11":  # later ones have the slow emitters alone
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1")
# Tests, the processes that they start and the next run share what XLA compiled.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import keras
import numpy as np
import pytest


def pytest_configure(config):
    config.option.loadscopereorder = False  # pytest-xdist: not the files with the most tests first
    gc.freeze()  # so that later collections are quick
    gc.set_threshold(20_000, 20, 20)  # and few: traces make many objects
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _seed_and_policy():
    """Every test starts from the same seed and leaves float32 behind."""
    keras.utils.set_random_seed(7)
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(autouse=True, scope="session")
def _pipelines_as_they_are():
    """A command that runs in this process would change `tf.data` for the tests after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_attn.backend.tune_process", lambda: None)
        yield


@pytest.fixture(autouse=True, scope="module")
def _free_compiled_programs():
    """Each program that XLA compiles holds memory maps, of which a process has 65,530: then LLVM crashes."""
    yield
    if keras.backend.backend() == "jax":
        sys.modules["jax"].clear_caches()
    if keras.backend.backend() != "torch":
        gc.collect()
