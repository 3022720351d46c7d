"""docs/scaling.md: its script for JAX runs on two virtual devices, here with one epoch of one bucket."""

import re
from pathlib import Path

import keras
import pytest

from tests.data_parallel import finish, start

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the script is for JAX")
def test_the_script_trains_on_two_devices():
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), flags=re.M | re.S)
    for ours, quicker in {"epochs=2": "epochs=1", "batch_size=32": "batch_size=32, bucket_boundaries=1"}.items():
        assert ours in code
        code = code.replace(ours, quicker)
    code += "print([weight.value.sharding.device_set for weight in model.weights][0])\n"
    ((status, output, errors),) = finish(start("-c", code))
    assert status == 0, errors
    assert output.splitlines()[-1].count("CpuDevice") == 2
