"""The stock server's gRPC interface: Predict, GetModelMetadata and GetModelStatus. Other calls are UNIMPLEMENTED."""

import contextlib
import logging
import math

import grpc
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from keras_attn.serving.dev_server.errors import RequestError
from keras_attn.serving.dev_server.messages import model_spec, status_response
from keras_attn.serving.dev_server.saved_model import array_of
from keras_attn.serving.dev_server.service import Service
from keras_attn.serving.dev_server.tensors import DEFAULT_SIGNATURE, invalid


def server(service: Service, max_request_bytes: int) -> grpc.aio.Server:
    """Returns a server without a port. gRPC itself answers larger requests with RESOURCE_EXHAUSTED."""
    options = [
        ("grpc.max_receive_message_length", max_request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),  # a port in use is an error; otherwise two servers would share its requests
    ]
    # Each call keeps a message in memory. Predict refuses more than max_requests, with a clear sentence.
    most = 2 * service.batcher.max_requests + 16
    created = grpc.aio.server(options=options, maximum_concurrent_rpcs=most)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        _Prediction(service, max_request_bytes), created
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(_Model(service), created)
    return created


class _Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, service: Service, max_elements: int):
        self._service = service
        self._max_elements = max_elements

    async def Predict(self, request, context):
        async with _errors(context):
            with self._service.request("gRPC"):
                model = self._service.versions.get(*_name_and_version(request.model_spec))
                name = request.model_spec.signature_name or DEFAULT_SIGNATURE
                signature = model.signature(name)
                signature.check_names(request.inputs)
                inputs = {key: self._array(key, proto) for key, proto in request.inputs.items()}
                signature.check(inputs)
                wanted = list(request.output_filter) or list(signature.outputs)
                if len(set(wanted)) < len(wanted) or not signature.outputs.keys() >= set(wanted):
                    known = ", ".join(sorted(signature.outputs))
                    raise invalid(f"Expected output_filter among: {known}. Received: {', '.join(wanted)}")
                outputs = await self._service.batcher.run(model, name, inputs)
                response = predict_pb2.PredictResponse(
                    model_spec=model_spec(self._service.versions.name, model.version)
                )
                response.model_spec.signature_name = name
                for key in wanted:
                    response.outputs[key].CopyFrom(tf.make_tensor_proto(outputs[key]))
                return response

    async def GetModelMetadata(self, request, context):
        async with _errors(context):
            if list(request.metadata_field) != ["signature_def"]:
                fields = ", ".join(request.metadata_field) or "none"
                raise invalid(f"Expected metadata_field to be: signature_def. Received: {fields}")
            model = self._service.versions.get(*_name_and_version(request.model_spec))
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            response.model_spec.CopyFrom(model_spec(self._service.versions.name, model.version))
            definitions = get_model_metadata_pb2.SignatureDefMap(signature_def=model.definitions)
            response.metadata["signature_def"].Pack(definitions)
            return response

    def _array(self, name: str, proto):
        # A TensorProto may give a shape and one value: a few bytes could ask for all of the memory.
        if math.prod(axis.size for axis in proto.tensor_shape.dim) > self._max_elements:
            raise invalid(f"Expected {name} to have at most {self._max_elements:,} elements. It has more.")
        try:
            return array_of(proto)
        except (ValueError, TypeError) as error:
            raise invalid(f"Expected {name} to be a tensor. It is damaged: {error}") from None


class _Model(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, service: Service):
        self._service = service

    async def GetModelStatus(self, request, context):
        async with _errors(context):
            return status_response(self._service.versions.states(*_name_and_version(request.model_spec)))


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
