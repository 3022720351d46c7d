"""A version by itself, as the server loads it."""

import keras
import numpy as np
import pytest

from tests.serving import served

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the server is TensorFlow's alone; it is tested on that backend"
)


@pytest.fixture
def folder(tmp_path):
    return served.save(tmp_path / "7")


def test_signatures_are_those_of_the_model(folder):
    from keras_attn.serving.dev_server.saved_model import SavedModel
    from keras_attn.serving.dev_server.stop import Stop

    model = SavedModel(folder)
    signature = model.signatures["translate_with_options"]
    assert model.version == 7
    assert str(signature.inputs["text"]) == "string of shape (any)"
    assert str(signature.inputs["length_penalty"]) == "float32 of shape ()"
    assert signature.defaults == {"length_penalty"}
    assert not signature.is_batched
    assert model.signatures["translate_n_best"].is_batched
    text = np.array([b"four"], object)
    assert model.run("translate_with_options", {"text": text}, Stop())["score"].tolist() == [2.0]


def test_warm_up_records_are_run_before_a_version_is_served(folder):
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    from keras_attn.serving.dev_server.saved_model import WARM_UP, SavedModel

    (folder / "assets.extra").mkdir()

    def write(rounds):
        log = prediction_log_pb2.PredictionLog()
        log.predict_log.request.model_spec.signature_name = "slow"
        log.predict_log.request.inputs["text"].CopyFrom(tf.make_tensor_proto([rounds]))
        with tf.io.TFRecordWriter(str(folder / WARM_UP)) as writer:
            writer.write(log.SerializeToString())

    write("3")
    assert SavedModel(folder).version == 7
    write("three")
    with pytest.raises(ValueError, match=r"It does not load: The model cannot run this"):
        SavedModel(folder)


@pytest.mark.parametrize("content", [b"", b"damaged"])
def test_what_is_damaged_does_not_load(tmp_path, content):
    from keras_attn.serving.dev_server.saved_model import SavedModel

    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(content)
    with pytest.raises(ValueError, match="It does not load"):
        SavedModel(tmp_path / "1")
