"""`shard="auto"`: this process's part in the running job."""

import json

import keras
import pytest

from keras_attn import ParallelDataset
from tests.data_parallel import finish, free_port, start

CODE = """
import json, sys
import keras
from keras_attn import ParallelDataset

rank, port = int(sys.argv[1]), sys.argv[2]
if keras.backend.backend() == "jax":
    keras.distribution.initialize(f"127.0.0.1:{port}", 2, rank)
else:
    import torch.distributed

    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
rows = [[4 + n] for n in range(20)]
found = []
for _ in range(2):
    data = ParallelDataset(rows, rows, batch_size=3, shard="auto")
    seen = sorted(int(row) for batch in data for row in batch[1][:, 0] if row > 3)
    found.append((data.shard, len(data), data.shapes, seen))
    if keras.backend.backend() == "torch":
        torch.distributed.barrier()
        break
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
print(json.dumps(found))
"""


def test_one_process_reads_everything():
    rows = [[4 + n] for n in range(20)]
    data = ParallelDataset(rows, rows, batch_size=3, shard="auto")
    assert data.shard == (0, 1)
    assert data.report()["pairs"] == 20


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="one process on TensorFlow")
def test_two_processes_read_a_half_each():
    port = str(free_port())
    ended = finish(*(start("-W", "ignore", "-c", CODE, str(rank), port) for rank in range(2)))
    for status, _, errors in ended:
        assert status == 0, errors
    ranks = [json.loads(output.splitlines()[-1]) for _, output, _ in ended]
    for first, second in zip(*ranks, strict=True):
        assert (first[0], second[0]) == ([0, 2], [1, 2])
        assert first[1:3] == second[1:3]
        assert sorted(first[3] + second[3]) == [4 + n for n in range(20)]
