"""The stock server's gRPC interface: Predict, GetModelMetadata and GetModelStatus. Other calls are UNIMPLEMENTED.

The generated code would receive a request, parse it and serialize its answer by itself, all on the event loop and
without a limit of time. So requests and answers are bytes here, each a stream of one message, which looks the same to a
client.
"""

import contextlib
import logging

import grpc
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2

from keras_attn.serving.dev_server.errors import RequestError, invalid
from keras_attn.serving.dev_server.messages import model_spec, status_response
from keras_attn.serving.dev_server.proto_tensors import claimed_elements, read_inputs, write_answer
from keras_attn.serving.dev_server.service import Service
from keras_attn.serving.dev_server.tensors import DEFAULT_SIGNATURE, least_bytes


def server(service: Service) -> grpc.aio.Server:
    """Returns a server without a port. gRPC itself answers larger requests with RESOURCE_EXHAUSTED."""
    limits = service.settings
    options = [
        ("grpc.max_receive_message_length", limits.max_request_bytes),
        ("grpc.max_send_message_length", -1),
        # Of one client, whose further calls wait there. Not fewer: a call counts until both sides have ended it.
        ("grpc.max_concurrent_streams", max(128, limits.max_requests)),
        ("grpc.so_reuseport", 0),  # a port in use is an error; otherwise two servers would share its requests
    ]
    # Each call keeps a message in memory. Predict refuses more than max_requests, with a clear sentence.
    created = grpc.aio.server(options=options, maximum_concurrent_rpcs=4 * limits.max_requests + 16)
    calls = _Calls(service)
    prediction = {"Predict": calls.predict, "GetModelMetadata": calls.metadata}
    model = {"GetModelStatus": calls.status}
    created.add_generic_rpc_handlers(
        tuple(
            grpc.method_handlers_generic_handler(
                f"tensorflow.serving.{name}",
                {method: grpc.stream_stream_rpc_method_handler(call) for method, call in methods.items()},
            )
            for name, methods in (("PredictionService", prediction), ("ModelService", model))
        )
    )
    return created


class _Calls:
    def __init__(self, service: Service):
        self._service = service

    async def predict(self, messages, context) -> None:
        service, limits = self._service, self._service.settings
        async with _errors(context):
            with service.request("gRPC") as share:
                body = await self._received(messages)
                share.hold(len(body))
                with service.batcher.admit():
                    request = await service.aside(len(body), _parsed, predict_pb2.PredictRequest, body)
                    model = service.versions.get(*_name_and_version(request.model_spec))
                    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
                    signature, wanted = model.signature(name), request.output_filter
                    size = len(body) + claimed_elements(request.inputs)
                    inputs = await service.aside(size, read_inputs, request.inputs, signature, limits.max_request_bytes)
                    if len(set(wanted)) < len(wanted) or not signature.outputs.keys() >= set(wanted):
                        known = ", ".join(sorted(signature.outputs))
                        raise invalid(f"Expected output_filter among: {known}. Received: {', '.join(wanted)}")
                    outputs = await service.run(model, name, inputs)
                    outputs = {key: outputs[key] for key in wanted or outputs}
                    size = least_bytes(outputs)
                    share.hold(len(body) + size)
                    response = predict_pb2.PredictResponse(model_spec=model_spec(service.versions.name, model.version))
                    response.model_spec.signature_name = name
                    answer = await service.aside(size, write_answer, response, outputs)
                await self._send(context, answer)

    async def metadata(self, messages, context) -> None:
        async with _errors(context):
            request = _parsed(get_model_metadata_pb2.GetModelMetadataRequest, await self._received(messages))
            if list(request.metadata_field) != ["signature_def"]:
                fields = ", ".join(request.metadata_field) or "none"
                raise invalid(f"Expected metadata_field to be: signature_def. Received: {fields}")
            model = self._service.versions.get(*_name_and_version(request.model_spec))
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            response.model_spec.CopyFrom(model_spec(self._service.versions.name, model.version))
            definitions = get_model_metadata_pb2.SignatureDefMap(signature_def=model.definitions)
            response.metadata["signature_def"].Pack(definitions)
            await self._send(context, response.SerializeToString())

    async def status(self, messages, context) -> None:
        async with _errors(context):
            request = _parsed(get_model_status_pb2.GetModelStatusRequest, await self._received(messages))
            states = self._service.versions.states(*_name_and_version(request.model_spec))
            await self._send(context, status_response(states).SerializeToString())

    async def _received(self, messages) -> bytes:
        async with self._service.transfer():
            async for body in messages:
                return body
        raise invalid("Expected a request. Received no message.")

    async def _send(self, context, answer: bytes) -> None:
        """Sends an answer, or ends the call if the client does not take it in time."""
        async with self._service.transfer():
            await context.write(answer)


def _parsed(kind: type, body: bytes):
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise invalid(f"Expected a {kind.DESCRIPTOR.name}. Received a damaged message: {error}") from None


def _name_and_version(spec) -> tuple[str, int | None]:
    if spec.version_label:
        raise invalid("Expected a version's number or none. This server knows no version labels.")
    return spec.name, spec.version.value if spec.HasField("version") else None


@contextlib.asynccontextmanager
async def _errors(context):
    try:
        yield
    except RequestError as error:
        await context.abort(grpc.StatusCode[error.code], error.sentence)
    except Exception:
        logging.exception("A request failed.")
        await context.abort(grpc.StatusCode.INTERNAL, "The server failed at this request; its log says why.")
