"""`Job`: what processes tell each other. Threads with a store of their own stand in for them."""

import threading
import time

import keras
import pytest

from keras_attn.backend import Job, job, job_stores

SECONDS = 60


class Store:
    """A store of one process, over a dict that all share."""

    ends_with_rank_0 = True

    def __init__(self, rank, count, values):
        self.rank = rank
        self.count = count
        self.values = values

    def set(self, key, text):
        assert key not in self.values
        self.values[key] = text

    def texts(self, folder):
        found = [(key, text) for key, text in list(self.values.items()) if key.startswith(folder)]
        return {int(key.rpartition("/")[2]): text for key, text in found}

    def watch(self):
        return lambda: ConnectionError("closed by peer") if "gone" in self.values else None

    def is_lost(self, error):
        return isinstance(error, ConnectionError)


@pytest.fixture
def together():
    """Calls a function with the job of each process, side by side; returns what each returned or raised."""

    def run(function, count=3):
        values = {}
        outcomes = [None] * count

        def process(rank):
            try:
                with (one := Job(Store(rank, count, values))).ending_together():
                    one._has_met = True
                    outcomes[rank] = function(one)
            except Exception as error:
                outcomes[rank] = error

        threads = [threading.Thread(target=process, args=(rank,), daemon=True) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        return outcomes

    return run


def test_a_process_alone_asks_nobody(capfd):
    alone = Job()
    alone.meet()
    assert alone.gather({"a": 1}) == [{"a": 1}]
    assert alone.share("a") == "a"
    alone.agree({"a": 1})
    alone.on_rank_0(lambda: print("written"))
    assert capfd.readouterr().out == "written\n"
    assert [alone.vote(step, wish) for step, wish in ((1, 0), (2, 2), (3, 0))] == [0, 2, 0]
    assert alone.leave(2) == 2
    with pytest.raises(KeyError), alone.ending_together():
        raise KeyError


def test_values_of_all_and_of_rank_0(together):
    def exchange(one):
        time.sleep(0.01 * one.rank)
        return one.gather([one.rank, "é"]), one.share(one.rank + 7)

    assert together(exchange) == [([[0, "é"], [1, "é"], [2, "é"]], 7)] * 3


def test_an_error_of_one_process_is_a_sentence_in_all(together):
    def write(one):
        one.gather(0)
        one.on_rank_0(lambda: (_ for _ in ()).throw(OSError("Expected room for what is written.")))

    first, *others = together(write)
    assert isinstance(first, OSError)
    for error in others:
        assert isinstance(error, RuntimeError)
        assert str(error) == "Process 0 has ended: Expected room for what is written."


def test_a_lost_connection_is_the_end_of_the_process_that_said_why(together):
    """Rank 2 ends; that rank 1 has lost it shows in an error of the backend."""

    def train(one):
        if one.rank == 2:
            raise ValueError("Expected a disk.")
        if one.rank == 1:
            raise ConnectionError("closed by peer")
        one.gather(0)

    first, second, third = together(train)
    assert isinstance(third, ValueError)
    for error in (first, second):
        assert isinstance(error, RuntimeError)
        assert str(error).endswith("Process 2 has ended: Expected a disk.")


def test_a_process_that_ends_without_a_word_is_noticed_by_those_that_wait(together, monkeypatch):
    monkeypatch.setattr(job, "_SECONDS_TO_LEAVE", 0)

    def write(one):
        if one.rank == 1:
            one._store.set("gone", "")
            return
        one.gather(0)

    found = str(together(write, count=2)[0])
    assert found.startswith("Expected 2 processes to go on. Another one has ended")


def test_a_lost_connection_without_a_word_is_a_sentence(together, monkeypatch):
    monkeypatch.setattr(job, "_SECONDS_TO_LEAVE", 0)

    def train(one):
        if one.rank == 0:
            raise ConnectionError("closed by peer")

    expected = "Expected 2 processes to go on. Another one has ended, or the connection to it: closed by peer"
    assert str(together(train, count=2)[0]) == expected


def test_another_configuration_is_named_in_all_processes(together):
    values = {"seed": 0, "batch_size": 16, "tokenize": "none"}

    def agree(one):
        one.agree(values)
        one.agree(values | ({"batch_size": 8, "seed": 1} if one.rank == 2 else {}))

    sentence = "Expected the same seed, batch_size in all processes. Received: seed=0 in process 0 and 1 in process 2"
    errors = together(agree)
    assert [type(error) for error in errors] == [ValueError] * 3
    assert [str(error) for error in errors] == [sentence] * 3


@pytest.mark.parametrize(("process", "wishes", "decision"), [(1, {3: 2}, 2), (0, {3: 1}, 1), (2, {3: 1, 4: 2}, 1)])
def test_all_processes_stop_after_the_same_step(together, process, wishes, decision):
    """The barrier has the part of the loss, which no process has before all have begun the step."""
    barrier = threading.Barrier(3)

    def train(one):
        for step in range(1, 30):
            barrier.wait(SECONDS / 3)
            if found := one.vote(step, wishes.get(step, 0) if one.rank == process else 0):
                return step, found
        return None

    stops = together(train)
    assert stops[0][1] == decision
    assert 4 <= stops[0][0] <= 6
    assert len(set(stops)) == 1


@pytest.mark.parametrize(
    ("address", "count", "rank"),
    [(None, "2", "0"), ("host", "2", "0"), (":1", "2", "1"), ("host:99999", "2", "1"), ("host:1", "2", "2")],
)
def test_variables_that_describe_no_job_are_refused(monkeypatch, address, count, rank):
    names = job_stores.ADDRESSES, job_stores.COUNT, job_stores.RANK
    for name, value in zip(names, (address, count, rank), strict=True):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    expected = "the address of process 0" if keras.backend.backend() == "jax" else "KERAS_BACKEND=jax"
    with pytest.raises(ValueError, match=expected):
        Job.from_environment()
    monkeypatch.setenv(job_stores.COUNT, "1")
    monkeypatch.setenv(job_stores.RANK, "0")
    assert Job.from_environment().count == 1


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="torch's alone")
def test_torchrun_describes_a_job_from_keras_3_16_on(monkeypatch):
    variables = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "host", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "a"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(keras, "__version__", "3.15.1")
    with pytest.raises(
        ValueError, match=r"Keras 3.16 or later .*KERAS_BACKEND=jax.* Received: torch with Keras 3.15.1"
    ):
        Job.from_environment()
    monkeypatch.setattr(keras, "__version__", "3.16.0.dev2026102704")
    found = Job.from_environment()
    assert (found.rank, found.count) == (1, 3)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert Job.from_environment().count == 1
