"""REST and gRPC transports of the client: each makes one attempt at one request."""

import base64
import contextlib
import http.client
import json
import urllib.parse

import numpy as np

from keras_attn.requirements import require

_BUSY = "Send fewer requests at once, or allow more retries."
_ABSENT = "Start the server, or check the address."


class ServerUnavailable(Exception):
    """The server did not accept a request; it may accept it later."""

    def __init__(self, why: str, advice: str):
        super().__init__(why)
        self.advice = advice


def transport(address: str, model: str, version: int | None, timeout: float):
    """Returns the transport for the scheme of an address.

    Raises:
        ValueError: if the address or the name of the model is malformed.
        ImportError: if the packages for gRPC are not installed.
    """
    try:
        parts = urllib.parse.urlsplit(address)
        port = parts.port
        is_known = parts.scheme in ("http", "https") or (parts.scheme == "grpc" and port is not None)
    except ValueError:  # of the port, or of an IPv6 address
        is_known = False
    if not is_known or not parts.hostname:
        raise ValueError(
            f"Expected an address as http://localhost:8501, https://... or grpc://localhost:8500. Received: {address!r}"
        )
    if not model or "/" in model or ":" in model:
        raise ValueError(f"Expected a model's name, without / and :. Received: {model!r}")
    if parts.scheme != "grpc":
        return Rest(parts, model, version, timeout)
    require("serving", "grpc", "tensorflow", "tensorflow_serving", purpose="a grpc:// address")
    return Grpc(parts.netloc, model, version, timeout)


class Rest:
    """REST over HTTP. Each request has its own connection: an idle one might have been closed by the server."""

    def __init__(self, address: urllib.parse.SplitResult, model: str, version: int | None, timeout: float):
        self._connection = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        self._address = address
        self._timeout = timeout
        self._path = address.path.rstrip("/") + "/v1/models/" + urllib.parse.quote(model)
        self._path += "" if version is None else f"/versions/{version}"

    def predict(self, signature: str, inputs: dict[str, list]) -> dict[str, np.ndarray]:
        columns = {name: list(map(_json_string, values)) for name, values in inputs.items()}
        answer = self._send("POST", ":predict", {"signature_name": signature, "inputs": columns})
        outputs = answer.get("outputs")
        return outputs if isinstance(outputs, dict) else {}

    def signatures(self) -> list[str]:
        metadata = self._send("GET", "/metadata").get("metadata", {})
        return sorted(metadata.get("signature_def", {}).get("signature_def", {}))

    def close(self) -> None:
        pass

    def _send(self, method: str, path: str, body: dict | None = None) -> dict:
        data = None if body is None else json.dumps(body).encode()
        connection = self._connection(self._address.hostname, self._address.port, timeout=self._timeout)
        try:
            with contextlib.closing(connection):
                connection.request(method, self._path + path, data, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                status, text = answer.status, answer.read()
        except ConnectionRefusedError:
            raise ServerUnavailable("the connection was refused", _ABSENT) from None
        except TimeoutError:
            raise _too_slow(self._timeout) from None
        except (OSError, http.client.HTTPException) as error:
            where = self._address.netloc
            raise ConnectionError(f"The connection with {where} failed: {error or type(error).__name__}.") from None
        try:
            content = json.loads(text)
            sentence = content.get("error", "") if isinstance(content, dict) else None
        except ValueError:
            sentence = None
        if status in (429, 503):
            raise ServerUnavailable(f"status {status}, {_ended(sentence or 'no reason')}", _BUSY)
        if sentence is None:
            raise RuntimeError(
                f"Expected a model server at {self._address.netloc}. It answers with status {status} and no JSON."
            )
        if status in (408, 504):
            raise TimeoutError(f"The server stopped this (status {status}): {sentence}")
        if status in (400, 403, 404, 413):
            raise ValueError(f"The server refuses this (status {status}): {sentence}")
        if status != 200:
            raise RuntimeError(f"The server failed (status {status}): {sentence}")
        return content


class Grpc:
    """gRPC, with one channel."""

    def __init__(self, address: str, model: str, version: int | None, timeout: float):
        import grpc
        from tensorflow_serving.apis import model_pb2, prediction_service_pb2_grpc

        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_http_proxy", 0),
            # Reconnect soon, so that a retry does not fail because of the attempt before it.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        self._channel = grpc.insecure_channel(address, options)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._spec = model_pb2.ModelSpec(name=model)
        if version is not None:
            self._spec.version.value = version
        self._timeout = timeout

    def predict(self, signature: str, inputs: dict[str, list]) -> dict[str, np.ndarray]:
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest(model_spec=self._spec)
        request.model_spec.signature_name = signature
        for name, values in inputs.items():
            texts = [value if isinstance(value, bytes) else _utf8(value) for value in values]
            request.inputs[name].CopyFrom(tf.make_tensor_proto(texts, tf.string, (len(texts),)))
        answer = self._send(self._stub.Predict, request)
        return {name: tf.make_ndarray(tensor) for name, tensor in answer.outputs.items()}

    def signatures(self) -> list[str]:
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=self._spec)
        request.metadata_field.append("signature_def")
        answer = self._send(self._stub.GetModelMetadata, request)
        definitions = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(definitions)
        return sorted(name for name in definitions.signature_def if not name.startswith("__"))

    def close(self) -> None:
        self._channel.close()

    def _send(self, call, request):
        import grpc

        try:
            return call(request, timeout=self._timeout)
        except grpc.RpcError as error:
            code, sentence = error.code().name, error.details() or "no reason"
        if code == "DEADLINE_EXCEEDED" and sentence.startswith("Expected"):
            raise TimeoutError(f"The server stopped this ({code}): {sentence}")
        if code == "DEADLINE_EXCEEDED":
            raise _too_slow(self._timeout)
        if (
            code == "RESOURCE_EXHAUSTED" and "larger" in sentence
        ):  # the request is too large, the server is not overloaded
            raise ValueError(f"The server refuses this ({code}): {sentence}")
        if code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
            raise ServerUnavailable(f"{code}, {_ended(sentence)}", _ABSENT if "connect" in sentence.lower() else _BUSY)
        if code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "OUT_OF_RANGE"):
            raise ValueError(f"The server refuses this ({code}): {sentence}")
        raise RuntimeError(f"The server failed ({code}): {sentence}")


def _too_slow(timeout: float) -> TimeoutError:
    return TimeoutError(
        f"Expected an answer in {timeout:g} s. There was none. Send fewer texts at once (batch_size) or wait longer "
        "(timeout)."
    )


def _ended(sentence: str) -> str:
    return sentence.rstrip(". ")


def _json_string(value: str | bytes) -> str | dict:
    if isinstance(value, str):
        _utf8(value)
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"Expected valid Unicode. Received: {text[:40]!a}. Pass bytes if the text may be invalid."
        ) from None
