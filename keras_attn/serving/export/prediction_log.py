"""`PredictionLog`, the protocol buffer of a warm-up record, with those of its fields that an export writes.

The package that has the original, tensorflow-serving-api, is not needed for an export, so the messages are declared
here with the names and numbers of TensorFlow Serving's .proto files. The tensors of a request are kept as bytes, which
are encoded as a message is: a serialized `TensorProto`.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

_DECLARATION = """
name: "prediction_log.proto"
syntax: "proto3"
message_type {
  name: "ModelSpec"
  field { name: "signature_name" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
}
message_type {
  name: "PredictRequest"
  field { name: "model_spec" number: 1 type_name: "ModelSpec" type: TYPE_MESSAGE label: LABEL_OPTIONAL }
  field { name: "inputs" number: 2 type_name: "PredictRequest.InputsEntry" type: TYPE_MESSAGE label: LABEL_REPEATED }
  nested_type {
    name: "InputsEntry"
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }
    options { map_entry: true }
  }
}
message_type {
  name: "PredictLog"
  field { name: "request" number: 1 type_name: "PredictRequest" type: TYPE_MESSAGE label: LABEL_OPTIONAL }
}
message_type {
  name: "PredictionLog"
  field { name: "predict_log" number: 6 type_name: "PredictLog" type: TYPE_MESSAGE label: LABEL_OPTIONAL }
}
"""
_pool = descriptor_pool.DescriptorPool()  # not the default one, which the original's file may be in
_pool.Add(text_format.Parse(_DECLARATION, descriptor_pb2.FileDescriptorProto()))
PredictionLog = message_factory.GetMessageClass(_pool.FindMessageTypeByName("PredictionLog"))


def encode(signature: str, inputs: dict[str, bytes]) -> bytes:
    """A record: the name of a signature and its inputs, each a serialized `TensorProto`."""
    log = PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    for name, tensor in inputs.items():
        log.predict_log.request.inputs[name] = tensor
    return log.SerializeToString(deterministic=True)


def decode(record: bytes) -> tuple[str, dict[str, bytes]]:
    """The signature and the inputs of a record."""
    request = PredictionLog.FromString(record).predict_log.request
    return request.model_spec.signature_name or "serving_default", dict(request.inputs)
