"""`keras-attn serve` in a process of its own, over REST and gRPC, without our client."""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import time
import urllib.error
import urllib.request

import keras
import numpy as np
import pytest

from keras_attn.cli.serve import main
from tests.serving import served

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the server is TensorFlow's alone; it is tested on that backend"
)


def rest(server, path: str, content=None) -> tuple[int, dict]:
    """Status and JSON of a path below /v1/models."""
    body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
    try:
        with urllib.request.urlopen(f"{server.rest}/v1/models/{path}", body, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.fixture(scope="module")
def stub(live):
    import grpc
    from tensorflow_serving.apis import prediction_service_pb2_grpc

    with grpc.insecure_channel(live.rpc.removeprefix("grpc://")) as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def request_of(model: str, signature: str, inputs: dict, version: int | None = None):
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = model, signature
    if version is not None:
        request.model_spec.version.value = version
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(value if hasattr(value, "dtype") else tf.make_tensor_proto(value))
    return request


def refused(call, request) -> tuple[str, str]:
    import grpc

    with pytest.raises(grpc.RpcError) as error:
        call(request, timeout=30)
    return error.value.code().name, error.value.details()


CALLS = {
    "serving_default": {"text": ["ein Hund", "", "Ärger"]},
    "translate_n_best": {"text": ["zwei Hunde spielen", "", "Gras"]},
    "translate_with_options": {"text": ["vier", "zwölf"], "length_penalty": 2.0},
    "translate_token_ids": {"token_ids": [[5, 7, 0], [11, 13, 17]], "lengths": [2, 3]},
    "score": {"source": ["ein", "zwei"], "target": ["a", "two"]},
}


@pytest.mark.parametrize("signature", CALLS)
def test_rest_and_grpc_say_the_same(live, stub, signature):
    import tensorflow as tf

    status, answer = rest(live, "mirror:predict", {"signature_name": signature, "inputs": CALLS[signature]})
    assert status == 200, answer
    inputs = CALLS[signature]
    if "token_ids" in inputs:
        inputs = {name: tf.make_tensor_proto(value, tf.int32) for name, value in inputs.items()}
    response = stub.Predict(request_of("mirror", signature, inputs), timeout=30)
    assert (response.model_spec.signature_name, response.model_spec.version.value) == (signature, 1)
    found = {name: tf.make_ndarray(proto) for name, proto in response.outputs.items()}
    expected = answer["outputs"] if len(found) > 1 else {next(iter(found)): answer["outputs"]}
    assert expected.keys() == found.keys()
    for name, array in found.items():
        if array.dtype == object:
            assert np.vectorize(bytes.decode, [object])(array).tolist() == expected[name]
        else:
            assert array.tolist() == np.array(expected[name], array.dtype).tolist()


def test_what_it_says_is_the_models(live):
    found = rest(live, "mirror:predict", {"instances": ["ein Hund", {"b64": "/2E="}]})
    rows = [{"translation": "EIN HUND", "score": -8.0}, {"translation": "\ufffdA", "score": -2.0}]
    assert found == (200, {"predictions": rows})
    content = {"signature_name": "translate_with_options", "inputs": ["four"]}
    assert rest(live, "mirror/versions/1:predict", content) == (200, {"outputs": [2.0]}), "the default of 0.5"
    content["inputs"] = {"text": ["four", "1"], "length_penalty": 3}
    assert rest(live, "mirror:predict", content) == (200, {"outputs": [12.0, 3.0]})


def test_status_and_metadata(live, stub):
    from tensorflow_serving.apis import get_model_metadata_pb2

    state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert rest(live, "mirror") == rest(live, "mirror/versions/1") == (200, {"model_version_status": [state]})
    status, answer = rest(live, "mirror/metadata")
    assert (status, answer["model_spec"]) == (200, {"name": "mirror", "signature_name": "", "version": "1"})
    definitions = answer["metadata"]["signature_def"]["signature_def"]
    assert definitions.keys() == {*CALLS, "slow"}
    assert definitions["score"]["inputs"]["source"]["dtype"] == "DT_STRING"
    assert definitions["score"]["inputs"]["source"]["tensor_shape"]["dim"] == [{"size": "-1", "name": ""}]
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "mirror"
    packed = get_model_metadata_pb2.SignatureDefMap()
    stub.GetModelMetadata(request, timeout=30).metadata["signature_def"].Unpack(packed)
    assert packed.signature_def.keys() == definitions.keys()
    assert refused(stub.GetModelMetadata, get_model_metadata_pb2.GetModelMetadataRequest())[0] == "INVALID_ARGUMENT"


def test_model_status_over_grpc(live):
    import grpc
    from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc

    request = get_model_status_pb2.GetModelStatusRequest()
    with grpc.insecure_channel(live.rpc.removeprefix("grpc://")) as channel:
        service = model_service_pb2_grpc.ModelServiceStub(channel)
        assert refused(service.GetModelStatus, request)[0] == "NOT_FOUND"
        request.model_spec.name = "mirror"
        (state,) = service.GetModelStatus(request, timeout=30).model_version_status
    assert (state.version, state.State.Name(state.state), state.status.error_code) == (1, "AVAILABLE", 0)


@pytest.mark.parametrize(
    ("path", "content", "status", "sentence"),
    [
        ("mirror:predict", b"{", 400, "a body of JSON"),
        ("mirror:predict", {"inputs": [["x"]]}, 400, r"text to be string of shape \(any\)"),
        ("mirror:predict", {"inputs": ["x"], "signature_name": "none"}, 400, "among: score, serving_default"),
        ("other:predict", {"inputs": ["x"]}, 404, r"Servable not found for request: Latest\(other\)"),
        ("mirror/versions/7:predict", {"inputs": ["x"]}, 404, r"Specific\(mirror, 7\)"),
        ("mirror/versions/7", None, 404, "mirror with version 7"),
        ("other/metadata", None, 404, r"Latest\(other\)"),
        ("mirror:classify", {}, 400, "Malformed request: POST /v1/models/mirror:classify"),
        ("mirror:predict", None, 400, "Malformed request: GET"),
        ("mirror:predict", {"inputs": ["x" * 100_000]}, 413, "at most 100,000 bytes"),
        ("mirror:predict", {"inputs": ["five"], "signature_name": "slow"}, 400, "The model cannot run this"),
    ],
)
def test_rest_refuses_in_a_sentence(live, path, content, status, sentence):
    found, answer = rest(live, path, content)
    assert (found, list(answer)) == (status, ["error"])
    assert re.search(sentence, answer["error"])
    assert rest(live, "mirror:predict", {"inputs": ["x"]})[0] == 200


def test_grpc_refuses_in_a_sentence(live, stub):
    import tensorflow as tf

    default = "serving_default"
    damaged = tf.make_tensor_proto(["x"])
    damaged.tensor_shape.dim[0].size = 10**12
    for request, code, sentence in (
        (request_of("other", default, {"text": ["x"]}), "NOT_FOUND", r"Latest\(other\)"),
        (request_of("mirror", default, {"text": ["x"]}, 7), "NOT_FOUND", r"Specific\(mirror, 7\)"),
        (request_of("mirror", "none", {"text": ["x"]}), "FAILED_PRECONDITION", "among: score"),
        (request_of("mirror", default, {"texts": ["x"]}), "INVALID_ARGUMENT", "inputs: text. Received: texts"),
        (request_of("mirror", default, {"text": [1.0]}), "INVALID_ARGUMENT", "text to be string"),
        (request_of("mirror", default, {"text": "x"}), "INVALID_ARGUMENT", r"of shape \(\)"),
        (request_of("mirror", default, {"text": damaged}), "INVALID_ARGUMENT", "at most 100,000 elements"),
        (request_of("mirror", default, {"text": ["x" * 100_000]}), "RESOURCE_EXHAUSTED", "larger than max"),
    ):
        found, details = refused(stub.Predict, request)
        assert found == code, details
        assert re.search(sentence, details)
    request = request_of("mirror", default, {"text": ["x"]})
    request.output_filter.append("score")
    assert list(stub.Predict(request, timeout=30).outputs) == ["score"]
    request.output_filter.append("loss")
    assert "score, translation" in refused(stub.Predict, request)[1]


def metrics(live) -> dict[str, float]:
    """What the server counts, by name and labels."""
    page = urllib.request.urlopen(f"{live.rest}/monitoring/prometheus/metrics", timeout=30).read().decode()
    return {line.split()[0]: float(line.split()[1]) for line in page.splitlines() if not line.startswith("#")}


def test_twenty_clients_at_once_get_their_own_answers(live, stub):
    import tensorflow as tf

    def ask(client: int) -> int:
        for n in range(15):
            texts = [f"client {client} text {n} row {row}" for row in range(1 + (client + n) % 4)]
            if client % 2:
                status, answer = rest(live, "mirror:predict", {"inputs": texts})
                assert status == 200, answer
                found = answer["outputs"]["translation"]
            else:
                response = stub.Predict(request_of("mirror", "serving_default", {"text": texts}), timeout=30)
                found = [text.decode() for text in tf.make_ndarray(response.outputs["translation"])]
            assert found == [text.upper() for text in texts]
        return 15

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(ask, range(20))) == 300
    before = metrics(live)
    assert before['keras_attn_serve_requests_total{api="gRPC",code="OK"}'] >= 150
    assert rest(live, "mirror:predict", {"inputs": ["x" * 100_000]})[0] == 413
    value, too_large = metrics(live), 'keras_attn_serve_requests_total{api="REST",code="RESOURCE_EXHAUSTED"}'
    assert value[too_large] == before.get(too_large, 0) + 1
    assert value["keras_attn_serve_batch_rows_sum"] > value["keras_attn_serve_batch_rows_count"], "nothing ran together"
    assert value["keras_attn_serve_requests_present"] == 0
    assert value["process_resident_memory_bytes"] > 2**20


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return served.save(tmp_path_factory.mktemp("saved") / "1")


def until(condition, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
def test_too_many_requests_a_new_version_and_the_end(saved, tmp_path):
    """One process, for starting it takes most of the time."""
    import grpc

    folder = tmp_path / "mirror"
    shutil.copytree(saved, folder / "1")
    slow = {"signature_name": "slow", "inputs": [served.SECOND]}
    flags = ("--max-requests", "3", "--poll-seconds", "0.05", "--name", "m")
    with served.serving(folder, *flags) as server, concurrent.futures.ThreadPoolExecutor(9) as pool:
        found = [answer.result() for answer in [pool.submit(rest, server, "m:predict", slow) for _ in range(9)]]
        assert sorted(status for status, _ in found) == [200] * 3 + [429] * 6
        assert {answer["error"] for status, answer in found if status == 429} == {
            "The server has 3 requests and takes no more. Send this one again a little later."
        }

        # A version that is damaged is left out; one that is whole is taken, also by who asks for none.
        shutil.copytree(saved, tmp_path / "3", ignore=lambda folder, _: ["variables"])
        (tmp_path / "3" / "saved_model.pb").write_bytes(b"damaged")
        os.rename(tmp_path / "3", folder / "3")
        until(lambda: len(rest(server, "m")[1]["model_version_status"]) == 2)
        states = [state["state"] for state in rest(server, "m")[1]["model_version_status"]]
        assert states == ["END", "AVAILABLE"]
        served.save(tmp_path / "4", prefix="4 ")
        os.rename(tmp_path / "4", folder / "4")
        until(lambda: rest(server, "m/versions/4")[0] == 200)
        assert rest(server, "m:predict", {"inputs": ["x"]})[1]["outputs"]["translation"] == ["4 X"]
        assert rest(server, "m/versions/1:predict", {"inputs": ["x"]})[0] == 404

        # What is there is answered, what comes is refused.
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        with grpc.insecure_channel(server.rpc.removeprefix("grpc://")) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            over_grpc = stub.Predict.future(request_of("m", "slow", {"text": [served.SECOND]}), timeout=60)
            over_rest = pool.submit(rest, server, "m:predict", slow)
            page = f"{server.rest}/monitoring/prometheus/metrics"
            until(lambda: "requests_present 2.0" in urllib.request.urlopen(page, timeout=30).read().decode())
            server.process.send_signal(signal.SIGTERM)
            until(lambda: rest(server, "m:predict", {"inputs": ["x"]})[0] == 503)
            assert refused(stub.Predict, request_of("m", "serving_default", {"text": ["x"]}))[0] == "UNAVAILABLE"
            assert over_rest.result() == (200, {"outputs": [served.SECOND]})
            assert over_grpc.result().outputs["text"].string_val == [served.SECOND.encode()]
        assert server.process.wait(20) == 0
        assert "2 requests are answered first" in server.process.stdout.read()


def test_what_cannot_be_served_is_a_sentence(saved, live, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")  # the command sets both
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    port, rpc_port = (address.rpartition(":")[2] for address in (live.rest, live.rpc))
    for arguments, status, sentence in (
        ([tmp_path / "none"], 2, "Expected a folder with versions of a model. There is no"),
        ([tmp_path], 2, "Export one: keras-attn export"),
        ([saved], 2, "serve the folder above it"),
        ([saved.parent, "--port", port], 1, "Choose another --port."),
        ([saved.parent, "--port", "0", "--grpc-port", rpc_port], 1, "Choose another --grpc-port."),
        ([saved.parent, "--host", "192.0.2.1", "--port", "0"], 1, "not this machine's"),
        ([saved.parent, "--name", "a/b"], 2, "a --name without / and :"),
    ):
        assert main([str(argument) for argument in arguments]) == status
        said = capsys.readouterr().err.splitlines()
        assert said[-1].startswith("keras-attn serve: ")
        assert sentence in said[-1]


@pytest.mark.slow
def test_what_xla_compiles_needs_its_flag(tmp_path):
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    twice = tf.function(lambda lengths: 2 * lengths, jit_compile=True)
    text = tf.TensorSpec((None,), tf.string, name="text")
    double = tf.function(lambda text: {"score": twice(tf.strings.length(text))}, input_signature=[text])
    folder = tmp_path / "double" / "1"
    tf.saved_model.save(tf.Module(), str(folder), signatures={"serving_default": double})
    (folder / "assets.extra").mkdir()
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.inputs["text"].CopyFrom(tf.make_tensor_proto(["ab"]))
    with tf.io.TFRecordWriter(str(folder / "assets.extra" / "tf_serving_warmup_requests")) as writer:
        writer.write(log.SerializeToString())
    with served.serving(folder.parent, "--xla-cpu-compilation-enabled") as server:
        assert rest(server, "double:predict", {"instances": ["a", "abc"]}) == (200, {"predictions": [2, 6]})
    sentence = "it is compiled by XLA, and the server was started without --xla-cpu-compilation-enabled"
    with pytest.raises(AssertionError, match=sentence), served.serving(folder.parent):
        pass
