"""The parts of `tests.benchmarks.accelerator` that need no training: its plan, its order, its peer."""

import json
import sys

import keras
import numpy as np
import pytest

from tests.benchmarks import accelerator
from tests.benchmarks.accelerator_worker import Worker

ECHO = """
import json, os, sys, time
print(json.dumps({"platform": "cpu"}), flush=True)
for line in sys.stdin:
    case = json.loads(line)["case"]
    if case["batch"] == 7:
        os._exit(3)
    if case["batch"] == 9:
        time.sleep(60)
    status = "out of memory" if case["batch"] == 4 else "done"
    print(json.dumps(case | {"status": status}), flush=True)
"""


class Fake:
    """A worker that answers at once."""

    def __init__(self, answers):
        self.answers, self.facts = answers, {}

    def measure(self, case, settings, seconds):
        return case | {"status": self.answers.get(case["batch"], "done"), "rates": settings.get("rates")}

    def alive(self):
        return True

    def close(self):
        pass


def case(batch, **changes):
    fields = {"backend": "jax", "kind": "train", "system": "keras_attn", "model": "13.0M", "dtype": "float32"}
    return fields | {"batch": batch} | changes


def run(cases, answers, remaining):
    done, written = [], []
    accelerator.run(cases, {}, done, lambda backend: Fake(answers), remaining, lambda: written.append(len(done)))
    assert written == list(range(1, len(cases) + 1))
    return done


def test_a_case_without_memory_skips_larger_ones_of_its_kind_alone():
    cases = [case(2), case(4), case(8), case(8, dtype="bfloat16"), case(8, backend="torch")]
    done = run(cases, {4: "out of memory"}, lambda: 100)
    assert [one["status"] for one in done] == ["done", "out of memory", "skipped", "done", "done"]
    assert done[2]["reason"] == "a smaller batch ran out of memory"


def test_the_rest_is_skipped_when_the_budget_is_spent():
    left = iter([100, 100, 1, 0])
    done = run([case(2), case(4), case(8)], {}, lambda: next(left))
    assert [one.get("reason") for one in done] == [None, "out of time", "out of time"]


def test_rates_reach_the_cases_of_their_backend_and_dtype():
    measured = case(0, kind="rates")
    done = run([measured, case(2), case(2, dtype="bfloat16"), case(2, backend="torch")], {}, lambda: 100)
    assert [bool(one["rates"]) for one in done] == [False, True, False, False]


def test_a_worker_that_dies_or_takes_too_long_says_so():
    def start():
        return Worker("jax", 30, (sys.executable, "-c", ECHO))

    worker = start()
    assert worker.facts == {"platform": "cpu"}
    assert worker.measure(case(4), {}, 30)["status"] == "out of memory"
    assert worker.measure(case(7), {}, 30)["error"] == "the process ended with status 3"
    assert not worker.alive()
    assert worker.measure(case(2), {}, 30)["status"] == "failed"
    worker.close()
    worker = start()
    assert worker.measure(case(9), {}, 0.2) is None
    assert not worker.alive()
    worker.close()


@pytest.mark.parametrize("size", accelerator.BATCHES)
def test_the_plan_has_every_case_once(size):
    batches = accelerator.BATCHES[size]
    cases = accelerator.plan(batches, accelerator.BACKENDS, joeynmt=True)
    assert len({json.dumps(one, sort_keys=True) for one in cases}) == len(cases)
    trained = {
        tuple(one[name] for name in ("backend", "model", "dtype", "batch")) for one in cases if "train" in one["kind"]
    }
    assert len(trained) == 2 * 2 * 2 * len(batches)
    assert not any(one["backend"] == "jax" and one.get("system", "keras_attn") != "keras_attn" for one in cases)


def test_ratios_compare_equal_cases():
    ours, peer = case(2, backend="jax"), case(2, backend="torch", system="plain_pytorch")
    cases = [ours | {"target_tokens_per_second": 30}, peer | {"target_tokens_per_second": 10}]
    cases.append(case(4, backend="torch", system="plain_pytorch") | {"target_tokens_per_second": 1})
    (found,) = accelerator.ratios([one | {"status": "done"} for one in cases])
    assert (found["ratio"], found["backend"], found["peer"], found["batch"]) == (3.0, "jax", "plain_pytorch", 2)


def test_the_peer_is_the_same_model(rng):
    torch = pytest.importorskip("torch")
    from tests.benchmarks.accelerator_peer import PlainPyTorch
    from tests.benchmarks.joeynmt_peer import ORDER, weights
    from tests.benchmarks.joeynmt_sizes import EMBEDDING, UNITS, JoeyNMTSizes

    model = JoeyNMTSizes(11, 13)
    lengths = np.array([5, 3])
    source = np.where(np.arange(5) < lengths[:, None], rng.integers(4, 11, (2, 5)), 0).astype("int32")
    target = rng.integers(4, 13, (2, 7)).astype("int32")
    expected = model({"encoder_token_ids": source, "decoder_token_ids": target})
    peer = PlainPyTorch(11, 13, UNITS, EMBEDDING).eval()
    names = {"src_embed.lut": "source_embedding", "trg_embed.lut": "target_embedding", "encoder.rnn": "encoder"}
    names |= {"decoder.rnn": "cell", "decoder.bridge_layer": "bridge", "decoder.attention.key_layer": "key"}
    names |= {"decoder.attention.query_layer": "query", "decoder.attention.energy_layer": "score"}
    names |= {"decoder.att_vector_layer": "attentional", "decoder.output_layer": "output"}
    found = {}
    for name, value in weights(model).items():
        module, _, leaf = name.rpartition(".")
        value = np.array(value)
        if names[module] in ("source_embedding", "target_embedding", "output"):  # back from JoeyNMT's order of ids
            value[: len(ORDER)] = value[ORDER]
        if (names[module], leaf) == ("bridge", "weight"):
            value = value[:, UNITS:]  # of the backward state
        if names[module] == "attentional" and leaf == "weight":  # of [c ; s] again
            value = np.concatenate([value[:, UNITS:], value[:, :UNITS]], 1)
        found[f"{names[module]}.{leaf}"] = torch.from_numpy(value)
    peer.load_state_dict(found)  # every parameter, with its shape
    assert sum(parameter.numel() for parameter in peer.parameters()) == model.count_params()
    logits = peer(torch.from_numpy(source), torch.from_numpy(lengths), torch.from_numpy(target))
    np.testing.assert_allclose(logits.detach().numpy(), keras.ops.convert_to_numpy(expected), atol=1e-5)
    greedy = peer.search(torch.from_numpy(source), torch.from_numpy(lengths), 1, 6, 2, 3)
    assert greedy.shape == (2, 6)
    assert not (greedy == 3).any()
