"""docs/scaling.md: its script for JAX runs on two virtual devices, here with short sentences in one bucket."""

import json
import re
from pathlib import Path

import keras
import pytest

from tests.data_parallel import finish, start

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
SHARDS = """
import json
print(json.dumps([variable.value.sharding.is_fully_replicated for variable in model.variables]))
print(json.dumps(len(model.variables[0].value.sharding.device_set)))
"""


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the script is for JAX")
def test_the_script_trains_on_two_devices():
    (script,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), flags=re.M | re.S)
    assert "batch_size=32" in script
    script = script.replace("batch_size=32", "batch_size=32, bucket_boundaries=1, max_length=40")
    script = script.split("print(")[0]  # without the translation, whose search takes long to compile
    ((status, output, errors),) = finish(start("-c", script + SHARDS))
    assert status == 0, errors
    replicated, devices = (json.loads(line) for line in output.splitlines()[-2:])
    assert all(replicated)
    assert devices == 2
