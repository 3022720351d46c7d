"""One version of a SavedModel, run as the stock server runs it: in a session, by the tensor names of its signatures."""

import logging
import re
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 registers its ops
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import prediction_log_pb2

from keras_attn.serving.dev_server.errors import RequestError
from keras_attn.serving.dev_server.interruption import InterruptibleSession
from keras_attn.serving.dev_server.proto_tensors import read_inputs
from keras_attn.serving.dev_server.stop import Stop
from keras_attn.serving.dev_server.tensors import Signature, Tensor

WARM_UP = "assets.extra/tf_serving_warmup_requests"
_WARM_UP_BYTES = 2**30  # of a tensor, at most
_CODES = {  # of TensorFlow's errors, whose numbers are those of gRPC
    1: "CANCELLED",
    3: "INVALID_ARGUMENT",
    4: "DEADLINE_EXCEEDED",
    5: "NOT_FOUND",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    11: "OUT_OF_RANGE",
    12: "UNIMPLEMENTED",
    14: "UNAVAILABLE",
}


class SavedModel:
    """A loaded version, ready to run in any thread. Its memory is freed with the object.

    Its warm-up records are run first, as by the stock server; a record that fails is an error.

    Args:
        directory: The version's folder, whose name is the version's number.
        runs: Runs at once; a further one waits.

    Attributes:
        version: The version's number.
        signatures: dict of the `Signature` for each name.
        definitions: The same as protocol buffers (`SignatureDef`).

    Raises:
        ValueError: if the SavedModel does not load or a warm-up record fails, with the reason.
    """

    def __init__(self, directory: Path, runs: int = 1):
        self.version = int(directory.name)
        try:
            self._session = InterruptibleSession(directory, runs)
            # Names with two underscores are the loader's own, for initialization.
            definitions = self._session.meta_graph.signature_def.items()
            self.definitions = {name: value for name, value in definitions if not name.startswith("__")}
            self.signatures = {name: _signature(definition) for name, definition in self.definitions.items()}
            self._fetches = {
                name: self._session.fetches({key: tensor.name for key, tensor in definition.outputs.items()})
                for name, definition in self.definitions.items()
            }
            self._warm_up(directory / WARM_UP)
        except Exception as error:  # damaged files fail in many ways
            sentence = " ".join(str(error).split())
            raise ValueError(f"Expected a SavedModel in {str(directory)!r}. It does not load: {sentence}") from error

    def signature(self, name: str) -> Signature:
        """Returns the signature of a name.

        Raises:
            RequestError: FAILED_PRECONDITION, the stock server's code over gRPC, if there is none of that name.
        """
        if name not in self.signatures:
            known = ", ".join(sorted(self.signatures))
            raise RequestError("FAILED_PRECONDITION", f"Expected a signature_name among: {known}. Received: {name!r}")
        return self.signatures[name]

    def run(self, signature_name: str, inputs: dict[str, np.ndarray], stop: Stop) -> dict[str, np.ndarray]:
        """Runs a signature on arrays that its `check` accepts, until it has the outputs or `stop` is set.

        Raises:
            RequestError: if the graph fails, with TensorFlow's code and message.
        """
        definition = self.definitions[signature_name]
        feeds = {definition.inputs[name].name: array for name, array in inputs.items()}
        for name in definition.defaults.keys() - inputs.keys():
            feeds[definition.inputs[name].name] = tf.make_ndarray(definition.defaults[name])
        try:
            values = self._session.run(self._fetches[signature_name], feeds, stop)
        except tf.errors.OpError as error:
            if stop.is_set:
                raise RequestError("CANCELLED", "The run was stopped: nobody waits for its answer.") from error
            code = _CODES.get(error.error_code, "INTERNAL")
            raise RequestError(code, f"The model cannot run this: {_reason(error.message)}") from error
        # A session returns a scalar as a NumPy scalar, not as an array.
        outputs = self.signatures[signature_name].outputs
        return {name: np.asarray(value, outputs[name].dtype) for name, value in values.items()}

    def _warm_up(self, path: Path) -> None:
        if not path.is_file():
            return
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if not log.HasField("predict_log"):
                logging.warning("A warm-up record of version %d is no predict_log; it is skipped.", self.version)
                continue
            request = log.predict_log.request
            name = request.model_spec.signature_name or "serving_default"
            self.run(name, read_inputs(request.inputs, self.signature(name), _WARM_UP_BYTES), Stop())


def _reason(message: str) -> str:
    """The sentence of a failed check in the graph, with the value that it names; else the first line."""
    if found := re.search(r"assertion failed: \[(Expected [^\]]*)\] \[([^\]]*)\]", message):
        return f"{found[1]} {found[2]}"
    if "XLA compilation disabled" in message:
        return "it is compiled by XLA, and the server was started without --xla-cpu-compilation-enabled"
    return message.splitlines()[0]


def _signature(definition: meta_graph_pb2.SignatureDef) -> Signature:
    inputs = {name: _tensor(info) for name, info in definition.inputs.items()}
    outputs = {name: _tensor(info) for name, info in definition.outputs.items()}
    return Signature(inputs, outputs, frozenset(definition.defaults))


def _tensor(info: meta_graph_pb2.TensorInfo) -> Tensor:
    dtype = np.dtype(tf.dtypes.as_dtype(info.dtype).as_numpy_dtype)
    if info.tensor_shape.unknown_rank:
        return Tensor(dtype, None)
    return Tensor(dtype, tuple(None if axis.size < 0 else axis.size for axis in info.tensor_shape.dim))
