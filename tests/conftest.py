"""Shared fixtures. The backend is whatever KERAS_BACKEND says: run the suite once for each."""

import ctypes
import gc
import os
import sys
import time
import zlib
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiling is most of the time that tests take there
# Tests, the processes that they start and the next run share what XLA compiled.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# XLA's older emitters compile a small program in two thirds of the time. Of a flag that it does not know, it dies.
if os.environ.get("KERAS_BACKEND") == "jax" and version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import keras
import numpy as np
import pytest

# Tracing makes objects by the hundred thousand. Python would look for cycles among all of them again and again.
gc.freeze()
gc.set_threshold(20_000, 10, 10)

if keras.backend.backend() == "jax":  # which compiles an initializer for each shape; NumPy draws as well
    from tests import eager_random

    eager_random.install()

if keras.backend.backend() == "tensorflow":  # whose optimizer of graphs takes a seventh of the time of a first call
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


# The times, in seconds since 1970, after which slow tests, and all tests, are left out. .ci/run sets them.
SLOW_UNTIL, TESTS_UNTIL = (int(os.environ.get(name, 0)) for name in ("SLOW_UNTIL", "TESTS_UNTIL"))
LEFT_OUT = "left out, because the time for tests was over"


def pytest_runtest_setup(item):
    limits = [SLOW_UNTIL, TESTS_UNTIL] if _has(item, "slow") else [TESTS_UNTIL]
    if any(0 < limit < time.time() for limit in limits):
        pytest.skip(LEFT_OUT)


def pytest_terminal_summary(terminalreporter):
    if number := sum(LEFT_OUT in str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(f"{number} tests were {LEFT_OUT}.")


def pytest_collection_modifyitems(config, items):
    """Skips what the marks `once` and `by_turns` leave to other backends, unless `-m` names the mark."""
    if SLOW_UNTIL:  # files in an order of the run's own: slow tests that are left out are now these, now those
        items.sort(key=lambda item: zlib.crc32(f"{SLOW_UNTIL} {item.path.relative_to(config.rootpath)}".encode()))
    if keras.backend.backend() == "torch":
        return
    divided = defaultdict(list)  # the cases of each test that has several; the other tests of each file
    for item in items:
        if "once" not in config.option.markexpr and _has(item, "once"):
            item.add_marker(pytest.mark.skip(reason="means the same on every backend: see `once` in CONTRIBUTING.md"))
        elif "by_turns" not in config.option.markexpr and _has(item, "by_turns") and not _has(item, "skipif"):
            divided[item.nodeid.partition("[")[0] if hasattr(item, "callspec") else item.path].append(item)
    for several in divided.values():
        for number, item in enumerate(several if len(several) > 1 else ()):
            # The Thue-Morse sequence, 0 1 1 0 1 0 0 1: of a table each row and each column has cases of both.
            if ["tensorflow", "jax"][number.bit_count() % 2] != keras.backend.backend():
                item.add_marker(pytest.mark.skip(reason="the other compiles it: see `by_turns` in CONTRIBUTING.md"))


def _has(item, mark: str) -> bool:
    return bool(item.get_closest_marker(mark)) and not item.get_closest_marker(f"not_{mark}")


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
    """A command that runs in this process changes `tf.data` for the tests after it, whose batches it would reorder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_attn.backend.disable_pipeline_autotuning", lambda: None)
        yield


@pytest.fixture(autouse=True, scope="module")
def _free_compiled_programs():
    """What a module compiled is freed after it: otherwise the suites need more memory than the machine has.

    Each program that XLA compiles also holds memory maps, of which a process has 65,530: then LLVM crashes. TensorFlow
    registers the gradient of each `tf.custom_gradient` of a traced graph for ever, and so keeps the graph.
    """
    yield
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()
    if keras.backend.backend() == "tensorflow":
        from tensorflow.python.framework import ops

        gradients = ops.gradient_registry._registry
        for name in [name for name in gradients if name.startswith("CustomGradient-")]:
            del gradients[name]
    gc.collect()
    # glibc's: gives freed memory back
    if sys.platform == "linux" and (malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        malloc_trim(0)


@pytest.fixture
def processes_on_jax(monkeypatch):
    """The processes that a test starts run on JAX, which is imported in half the time that torch or TensorFlow take."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")


@pytest.fixture
def traces_soon(monkeypatch):
    """Loops on torch are traced after a few steps."""
    if keras.backend.backend() == "torch":
        monkeypatch.setattr("keras_attn.backend.torch_loops._CALLS_BEFORE_TRACE", 5)


@pytest.fixture
def backend():
    return keras.backend.backend()
