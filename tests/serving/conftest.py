"""A `keras-attn serve` process for a hand-made model, shared by all tests that do not stop it."""

import signal

import pytest


@pytest.fixture(scope="session")
def live(tmp_path_factory):
    from tests.serving import served

    folder = tmp_path_factory.mktemp("live") / "mirror"
    served.save(folder / "1")
    with served.serving(folder) as found:
        yield found
        found.process.send_signal(signal.SIGINT)
        assert found.process.wait(20) == 0
