"""Settings of a process: freed memory, threads, and the folder in which JAX keeps what it compiles."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from keras_attn.backend import keep_compiled, settings

of_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="only JAX keeps what it compiles")

PROGRAM = """
import sys
from pathlib import Path
from keras_attn.backend import keep_compiled
keep_compiled(Path(sys.argv[1]))
import jax
print(float(jax.jit(lambda x: (x * 3).sum())(jax.numpy.arange(7.0))))
"""


CHOSEN = [{}, {"TF_NUM_INTRAOP_THREADS": "7"}] if keras.backend.backend() == "tensorflow" else [{}]
FAULTS = """
import resource, sys
import numpy as np
from keras_attn.backend import tune_process
tune_process()
np.ones(1 << 22)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.ones(1 << 22)  # 32 MiB, 8,192 pages
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
tf = sys.modules.get("tensorflow")
print(tf.config.threading.get_intra_op_parallelism_threads() if tf else "")
"""


def _run(program, *arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMP", "JAX_PERS"))}
    environment.pop("TF_NUM_INTRAOP_THREADS", None)
    environment = environment | {"PYTHONPATH": str(Path(__file__).parents[2])} | variables
    line = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the GNU C library")
@pytest.mark.parametrize("chosen", CHOSEN)
def test_freed_memory_stays_and_threads_are_divided(chosen):
    faults, threads = _run(FAULTS, **chosen).stdout.split("\n")[:2]
    assert int(faults) < 8192  # less than those of one of 20 arrays
    if keras.backend.backend() == "tensorflow":
        assert threads == ("0" if chosen else str(max(1, os.cpu_count() // 2)))


@pytest.fixture
def config():
    """JAX's configuration without a folder; as before afterwards. Nothing is compiled between."""
    import jax

    names = ["jax_compilation_cache_dir", "jax_compilation_cache_max_size"]
    names += ["jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes"]
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield jax.config
    for name, value in before.items():
        jax.config.update(name, value)


@of_jax
def test_a_second_process_compiles_nothing(tmp_path):
    listings = []
    for _ in range(2):
        done = _run(PROGRAM, tmp_path / "new" / "folder")
        assert done.stdout == "63.0\n", done.stderr
        assert "persistent" not in done.stderr.lower()
        listings.append(sorted(path.name for path in tmp_path.rglob("*-cache")))
    assert listings[0] == listings[1] != []


@of_jax
def test_the_folder_is_of_this_processor_and_private(config, tmp_path):
    keep_compiled(tmp_path / "compiled")
    (folder,) = (tmp_path / "compiled").iterdir()
    assert config.jax_compilation_cache_dir == str(folder)
    assert config.jax_compilation_cache_max_size == 256 << 20
    assert not folder.stat().st_mode & 0o077
    assert folder.name == settings._processor()


@of_jax
def test_settings_of_the_user_stay(config, tmp_path):
    config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    keep_compiled(tmp_path / "compiled")
    assert config.jax_compilation_cache_dir == str(tmp_path / "own")
    config.update("jax_compilation_cache_dir", None)
    config.update("jax_enable_compilation_cache", False)
    try:
        keep_compiled(tmp_path / "compiled")
    finally:
        config.update("jax_enable_compilation_cache", True)
    assert config.jax_compilation_cache_dir is None
    assert not (tmp_path / "compiled").exists()


@of_jax
def test_a_file_and_a_folder_in_which_others_can_write_are_not_used(config, tmp_path):
    folder = tmp_path / settings._processor()
    folder.mkdir()
    folder.chmod(0o777)
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "file"):
        keep_compiled(place)
        assert config.jax_compilation_cache_dir is None
