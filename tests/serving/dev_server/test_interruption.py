"""Runs of a real SavedModel that are stopped."""

import threading
import time

import keras
import numpy as np
import pytest

from keras_attn.serving.dev_server.errors import RequestError
from keras_attn.serving.dev_server.stop import Stop
from tests.serving import served

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the server is TensorFlow's alone; it is tested on that backend"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from keras_attn.serving.dev_server.saved_model import SavedModel

    return SavedModel(served.save(tmp_path_factory.mktemp("stopped") / "1"), runs=2)


def run(model, text: str, stop: Stop, signature: str = "slow"):
    return model.run(signature, {"text": np.array([text.encode()], object)}, stop)


def test_a_loop_ends_at_once_and_others_go_on(model):
    run(model, "1", Stop())
    outcomes, stop = {}, Stop()

    def stopped():
        try:
            run(model, "2000000000", stop)
        except RequestError as error:
            outcomes["stopped"] = error.code

    def other():
        outcomes["other"] = run(model, str(served.SECOND), Stop())["text"].tolist()

    threads = [threading.Thread(target=target) for target in (stopped, other)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    assert not outcomes
    stop.set()
    stop.set()
    threads[0].join(10)
    threads[1].join(60)
    assert outcomes == {"stopped": "CANCELLED", "other": [served.SECOND.encode()]}


def test_a_stop_leaves_nothing_behind(model):
    for _ in range(5):
        early, late = Stop(), Stop()
        early.set()
        with pytest.raises(RequestError):
            run(model, "2000000000", early)
        assert run(model, "1", late)["text"].tolist() == [b"1"]
        late.set()
        assert run(model, "ein", Stop(), "serving_default")["translation"].tolist() == [b"EIN"]
    with pytest.raises(RequestError, match="cannot run this"):
        run(model, "no number", Stop())
    assert run(model, "1", Stop())["text"].tolist() == [b"1"]
