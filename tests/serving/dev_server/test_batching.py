"""The batcher by itself, with models of NumPy: no TensorFlow, no network."""

import asyncio
import threading

import numpy as np
import pytest

from keras_attn.serving.dev_server.batching import Batcher
from keras_attn.serving.dev_server.errors import RequestError
from keras_attn.serving.dev_server.tensors import Signature, Tensor

NUMBERS = Tensor(np.dtype("int32"), (None, None))
SCALAR = Tensor(np.dtype("int32"), ())


class Doubling:
    """y = 2 x, unless there is a 13 in x; it keeps the rows of what it was given, and waits while `gate` is shut."""

    def __init__(self):
        self.signatures = {
            "double": Signature({"x": NUMBERS}, {"y": NUMBERS}),
            "add": Signature({"x": NUMBERS, "n": SCALAR}, {"y": NUMBERS}),
            "sum": Signature({"x": NUMBERS}, {"y": NUMBERS}),  # its answer has no row for each
        }
        self.rows, self.stopped = [], 0
        self.gate = threading.Event()
        self.gate.set()

    def run(self, signature_name, inputs, stop):
        stopped = threading.Event()
        with stop.calls(stopped.set):
            while not self.gate.wait(0.01):
                if stopped.is_set():
                    self.stopped += 1
                    raise RequestError("CANCELLED", "The run was stopped.")
        x = inputs["x"]
        self.rows.append(len(x))
        if 13 in x:
            raise RequestError("INVALID_ARGUMENT", "13 is unlucky.")
        return {
            "y": {"double": lambda: 2 * x, "add": lambda: x + inputs["n"], "sum": lambda: x.sum(0)}[signature_name]()
        }


def numbers(*rows) -> dict[str, np.ndarray]:
    return {"x": np.array(rows, "int32")}


def run(scenario, **options):
    """Runs a coroutine of a batcher and a model; gives the model."""
    model = Doubling()

    async def main():
        batcher = Batcher(**{"delay": 0.05} | options)
        try:
            await scenario(batcher, model)
        finally:
            model.gate.set()
            await batcher.close()

    asyncio.run(main())
    return model


def test_requests_run_together_and_each_gets_its_own_rows():
    async def scenario(batcher, model):
        asked = [numbers(*([n, n + 1] for _ in range(n % 3 + 1))) for n in range(20, 31)]
        found = await asyncio.gather(*(batcher.run(model, "double", x) for x in asked))
        for inputs, outputs in zip(asked, found, strict=True):
            np.testing.assert_array_equal(outputs["y"], 2 * inputs["x"])

    model = run(scenario)
    assert model.rows == [sum(n % 3 + 1 for n in range(20, 31))]


def test_batches_end_at_their_size_and_a_larger_request_is_one_by_itself():
    async def scenario(batcher, model):
        await asyncio.gather(
            *(batcher.run(model, "double", numbers(*[[n]] * count)) for n, count in enumerate([3, 3, 11, 2]))
        )

    assert sorted(run(scenario, max_batch_size=7).rows) == [2, 3 + 3, 11]


def test_only_what_fits_is_joined():
    async def scenario(batcher, model):
        calls = [batcher.run(model, "double", numbers([1, 2])), batcher.run(model, "double", numbers([1, 2, 3]))]
        calls += [batcher.run(model, "add", numbers([1]) | {"n": np.array(n, "int32")}) for n in (5, 7)]
        calls += [batcher.run(Doubling(), "double", numbers([1, 2]))]  # another version
        found = [outputs["y"].tolist() for outputs in await asyncio.gather(*calls)]
        assert found == [[[2, 4]], [[2, 4, 6]], [[6]], [[8]], [[2, 4]]]

    assert run(scenario).rows == [1, 1, 1, 1]


def test_a_faulty_request_spoils_no_other():
    async def scenario(batcher, model):
        calls = [batcher.run(model, "double", numbers([n])) for n in (11, 13, 17)]
        one, wrong, other = await asyncio.gather(*calls, return_exceptions=True)
        assert (one["y"].item(), other["y"].item()) == (22, 34)
        assert wrong.code == "INVALID_ARGUMENT"
        calls = [batcher.run(model, "sum", numbers([n], [n])) for n in (3, 5)]
        assert [found["y"].item() for found in await asyncio.gather(*calls)] == [6, 10]

    assert run(scenario).rows == [3, 1, 1, 1, 4, 2, 2]


def test_more_requests_than_may_be_present_are_refused():
    async def scenario(batcher, model):
        model.gate.clear()

        async def ask(n):
            with batcher.admit():
                return (await batcher.run(model, "double", numbers([n])))["y"].item()

        tasks = [asyncio.create_task(ask(n)) for n in range(5)]
        await asyncio.sleep(0)
        refused = await asyncio.gather(*tasks[3:], return_exceptions=True)
        assert [refusal.status for refusal in refused] == [429, 429]
        assert [refusal.code for refusal in refused] == ["RESOURCE_EXHAUSTED"] * 2
        model.gate.set()
        assert await asyncio.gather(*tasks[:3]) == [0, 2, 4]
        assert await ask(5) == 10, "there is room again"

    run(scenario, max_requests=3)


def test_what_is_there_is_answered_before_the_end_and_nothing_more_is_taken():
    async def scenario(batcher, model):
        model.gate.clear()

        async def ask():
            with batcher.admit():
                return await batcher.run(model, "double", numbers([1]))

        task = asyncio.create_task(ask())
        await asyncio.sleep(0.1)
        assert not await batcher.drain(0.01)
        with pytest.raises(RequestError, match="shutting down") as refused:
            await ask()
        assert refused.value.status == 503
        model.gate.set()
        assert await batcher.drain(10)
        assert task.result()["y"] == 2

    run(scenario)


def test_what_waits_at_the_end_is_refused_and_who_goes_makes_room():
    async def scenario(batcher, model):
        model.gate.clear()
        tasks = [asyncio.create_task(batcher.run(model, "double", numbers([n]))) for n in (1, 2, 3)]
        await asyncio.sleep(0.1)  # a batch of one, for its size; two wait
        tasks[2].cancel()
        await asyncio.gather(tasks[2], return_exceptions=True)
        assert len(batcher._short.queue) == 1
        await batcher.close()
        for refusal in await asyncio.gather(*tasks[:2], return_exceptions=True):
            assert refusal.code == "UNAVAILABLE"

    run(scenario, max_batch_size=1)


def test_a_run_is_stopped_when_all_who_asked_for_it_have_gone():
    async def scenario(batcher, model):
        model.gate.clear()
        tasks = [asyncio.create_task(batcher.run(model, "double", numbers([n]))) for n in (1, 2)]
        await asyncio.sleep(0.2)
        tasks[0].cancel()
        await asyncio.sleep(0.1)
        assert model.stopped == 0, "the other one still waits"
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        other = asyncio.create_task(batcher.run(model, "double", numbers([3])))
        await asyncio.sleep(0.2)
        assert model.stopped == 1 + 0, "the joined run, and neither of its requests alone"
        model.gate.set()
        assert (await other)["y"] == 6

    assert run(scenario).rows == [1]


@pytest.mark.parametrize("rows", [numbers([5] * 513), numbers(*[[5]] * 65), numbers(*[[5] * 400] * 21)])
def test_short_requests_do_not_wait_for_a_long_one(rows):
    async def scenario(batcher, model):
        model.gate.clear()
        long = asyncio.create_task(batcher.run(model, "double", rows))
        await asyncio.sleep(0.1)
        other = Doubling()
        async with asyncio.timeout(5):
            assert (await batcher.run(other, "double", numbers([3])))["y"] == 6
        assert not long.done()
        model.gate.set()
        assert (await long)["y"].size == rows["x"].size

    run(scenario)


def test_closing_stops_what_runs():
    async def scenario(batcher, model):
        model.gate.clear()
        task = asyncio.create_task(batcher.run(model, "double", numbers([1])))
        await asyncio.sleep(0.2)
        await batcher.close()
        with pytest.raises(RequestError, match="shut down"):
            await task
        while not model.stopped:
            await asyncio.sleep(0.01)

    run(scenario)
