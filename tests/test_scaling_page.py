"""docs/scaling.md: its scripts for JAX run on two virtual devices, here with short sentences in one bucket."""

import json
import re
from pathlib import Path

import keras
import pytest

from tests.data_parallel import finish, start

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
WHOLE_BATCH = "keras.distribution.set_distribution(keras.distribution.DataParallel())\n"
SHARDS = """
import json
values = {variable.path: variable.value for variable in [*model.variables, *model.optimizer.variables]}
print(json.dumps({path: [value.shape, value.sharding.shard_shape(value.shape)] for path, value in values.items()}))
"""


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the scripts are for JAX")
def test_the_scripts_train_on_two_devices():
    script, layouts = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), flags=re.M | re.S)
    assert "batch_size=32" in script
    script = script.replace("batch_size=32", "batch_size=32, bucket_boundaries=1, max_length=40")
    assert WHOLE_BATCH in script
    script = script.split("print(")[0]  # without the translation, whose search takes long to compile
    divided = script.replace(WHOLE_BATCH, layouts)
    ((status, output, errors),) = finish(start("-c", script + SHARDS + divided + SHARDS))
    assert status == 0, errors
    replicated, parts = (json.loads(line) for line in output.splitlines() if line.startswith("{"))

    assert all(whole == part for whole, part in replicated.values())
    halves = {"source_embedding/embeddings": 0, "target_embedding/embeddings": 0, "output/kernel": 1, "output/bias": 0}
    for path, (whole, part) in parts.items():
        axis = next((axis for name, axis in halves.items() if name.replace("/", "_") in path.replace("/", "_")), None)
        expected = [size // 2 if i == axis else size for i, size in enumerate(whole)]
        assert part == expected, path
