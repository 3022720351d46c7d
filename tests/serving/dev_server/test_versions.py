"""The versions of a folder, with a loader that a test chooses: no TensorFlow, unless a version is real."""

import asyncio
import types

import keras
import pytest

from keras_attn.serving.dev_server.versions import Versions


def versions(folder, *names: str, broken=()) -> Versions:
    def load(path):
        if path.name in broken:
            raise broken[path.name]
        return types.SimpleNamespace(version=int(path.name))

    for name in names:
        (folder / name).mkdir()
    return Versions("m", folder, load)


def test_numbers_that_no_interface_can_send_are_no_versions(tmp_path):
    found = versions(tmp_path, "7", "99999999999999999999", str(2**63), "٣", "-1", "x")
    found.load()
    assert found.current.version == 7
    asyncio.run(found.look())
    assert found.states("m") == [(7, "AVAILABLE", "")]


def test_watching_goes_on_whatever_fails(tmp_path, caplog):
    broken = {"2": ValueError("Version 2 is damaged."), "3": KeyError("no one expects this")}
    found = versions(tmp_path, "1", broken=broken)
    found.load()

    async def scenario():
        watching = asyncio.create_task(found.watch(0.01))
        for name in ("2", "3"):
            (tmp_path / name).mkdir()
            await asyncio.sleep(0.1)
            assert found.current.version == 1
        (tmp_path / "4").mkdir()
        async with asyncio.timeout(5):
            while found.current.version != 4:
                await asyncio.sleep(0.01)
        watching.cancel()

    asyncio.run(scenario())
    assert "Version 2 is damaged. Version 1 is served on." in caplog.text
    assert "KeyError" in caplog.text


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the server is TensorFlow's alone")
@pytest.mark.parametrize("record", [b"\xff\xff\xffgarbage", b"", b"negative axis", b"other type"])
def test_a_version_whose_warm_up_is_damaged_says_so(record, tmp_path):
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    from keras_attn.serving.dev_server.saved_model import WARM_UP, SavedModel
    from tests.serving import served

    if record in (b"negative axis", b"other type"):
        log = prediction_log_pb2.PredictionLog()
        text = log.predict_log.request.inputs["text"]
        text.CopyFrom(tf.make_tensor_proto(["x"]))
        if record == b"negative axis":
            text.tensor_shape.dim[0].size = -5
        else:
            text.dtype = 20
        record = log.SerializeToString()
    folder = tmp_path / "1"
    served.save(folder)
    (folder / WARM_UP).parent.mkdir()
    with tf.io.TFRecordWriter(str(folder / WARM_UP)) as writer:
        writer.write(record)
    if record == b"":
        assert SavedModel(folder).version == 1, "an empty record is no request, and skipped"
        return
    with pytest.raises(ValueError, match=r"Expected a SavedModel in .* It does not load: "):
        SavedModel(folder)
