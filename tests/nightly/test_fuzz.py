"""Coverage-guided fuzzing, each target in a process of its own; `NIGHTLY_SECONDS` for each (default: 300)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from keras_attn.requirements import is_installed

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not is_installed("atheris"), reason="atheris, the fuzzer, is not installed"),
]

ROOT = Path(__file__).parents[2]
TARGETS = {"tokenizer": [], "marian_files": ["yaml"], "tfa_files": ["tensorflow"], "preset": [], "request": ["aiohttp"]}


@pytest.mark.parametrize("target", TARGETS)
def test_any_input_is_read_or_refused_with_a_sentence(target, tmp_path):
    if missing := [package for package in TARGETS[target] if not is_installed(package)]:
        pytest.skip(f"{missing[0]} is not installed")
    (tmp_path / "corpus").mkdir()
    line = [sys.executable, "-W", "ignore", "-m", "tests.nightly.fuzz", target, str(tmp_path / "corpus")]
    line += [f"-max_total_time={os.environ.get('NIGHTLY_SECONDS', '300')}", "-timeout=20", "-rss_limit_mb=4000"]
    done = subprocess.run([*line, f"-artifact_prefix={tmp_path}/"], cwd=ROOT, capture_output=True, text=True)
    found = [path.read_bytes() for pattern in ("crash-*", "timeout-*", "oom-*") for path in tmp_path.glob(pattern)]
    assert done.returncode == 0, f"{found}\n{done.stderr[-3000:]}"
    assert int(re.search(r"^Done (\d+) runs", done.stderr, re.M)[1]) > 100
