"""What the attacks share: a server of a small exported translator in a process of its own, and an honest client."""

import threading
from collections.abc import Iterator
from pathlib import Path

import keras
import pytest

from keras_attn.serving.client import Client
from tests.attack.hostile import Honest, Target

# Short times, small answers and a second name, so that attacks on them are quick.
FLAGS = (
    *("--transfer-seconds", "3", "--request-seconds", "20", "--max-answer-bytes", "16777216"),
    *("--allow-host", "my.example", "--poll-seconds", "0.2"),
)


@pytest.fixture(scope="session")
def published(tmp_path_factory) -> Path:
    """The folder of a small exported translator."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the server is TensorFlow's alone; it is attacked on that backend")
    from keras_attn.export import export_translator, saved_model
    from tests.serving.conftest import SENTENCES, build

    root = tmp_path_factory.mktemp("attacked") / "small"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_model, "check_signatures", lambda *_: None)  # it takes long
        export_translator(build("bpe"), root, beam_size=3, sentences=SENTENCES)
    return root


@pytest.fixture(scope="session")
def target(published) -> Iterator[Target]:
    from tests.serving import served

    with served.serving(published, *FLAGS) as found:
        threading.Thread(target=found.process.stdout.read, daemon=True).start()  # so that its log blocks nothing
        target = Target(found.name, found.rest, found.rpc, found.process.pid, published)
        with Client(found.rest, found.name) as client:  # the first request of a signature is slow
            client.translate(["ein Mann"] * 20)
            client.translate_n_best(["ein Mann"] * 20)
        for value in (1.0, *[-1.0] * 20):
            inputs = {"text": ["ein"], "length_penalty": value}
            target.predict({"signature_name": "translate_with_options", "inputs": inputs})
        yield target
        assert found.process.poll() is None, "the server has ended"


@pytest.fixture(scope="module")
def honest(target) -> Iterator[Honest]:
    """An honest client beside the attacks of a file."""
    with Honest(target) as clients:
        yield clients
    clients.check()


@pytest.fixture
def little(target):
    """The attack takes little memory."""
    before = target.megabytes()
    yield
    assert target.megabytes() - before < 600
