"""The tensors of gRPC's requests and answers: protocol buffers to arrays, and arrays to protocol buffers.

A `TensorProto` may give a shape and one value, which stands for all the rest, so a few bytes can ask for all memory.
Every axis and every size is checked, in Python's whole numbers, before an array is made.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from keras_attn.serving.dev_server.errors import invalid
from keras_attn.serving.dev_server.tensors import Signature, Tensor, written

_MOST_AXES = 32


def read_inputs(protos: Mapping, signature: Signature, max_bytes: int) -> dict[str, np.ndarray]:
    """Reads the inputs of a request; strings become bytes in an object array.

    Args:
        protos: A `TensorProto` for each name.
        signature: The signature whose inputs they are.
        max_bytes: Elements of a tensor, and bytes of its strings, at most.

    Raises:
        RequestError: INVALID_ARGUMENT, with what was expected.
    """
    signature.check_names(protos)
    inputs = {name: _array(name, proto, signature.inputs[name], max_bytes) for name, proto in protos.items()}
    signature.check(inputs)
    return inputs


def claimed_elements(protos: Mapping) -> int:
    """Returns how many elements tensors have by their shapes, which are not checked."""
    sizes = ([axis.size for axis in proto.tensor_shape.dim[:_MOST_AXES]] for proto in protos.values())
    return sum(abs(math.prod(axes)) for axes in sizes)


def write_answer(response, outputs: Mapping[str, np.ndarray]) -> bytes:
    """Adds outputs to a `PredictResponse`; returns its bytes."""
    for name, array in outputs.items():
        response.outputs[name].CopyFrom(tf.make_tensor_proto(array))
    return response.SerializeToString()


def _array(name: str, proto, tensor: Tensor, max_bytes: int) -> np.ndarray:
    shape = _shape(name, proto.tensor_shape)
    dtype = tf.dtypes.as_dtype(tensor.dtype)
    if proto.dtype != dtype.as_datatype_enum or not tensor.accepts(shape):
        raise invalid(f"Expected {name} to be {tensor}. Received: {_type(proto.dtype)} of shape {written(shape)}")
    if math.prod(shape) > max_bytes:
        raise invalid(f"Expected {name} to have at most {max_bytes:,} elements. It has more.")
    try:
        return _strings(name, proto.string_val, shape, max_bytes) if dtype == tf.string else tf.make_ndarray(proto)
    except (ValueError, TypeError) as error:
        raise invalid(f"Expected {name} to be a tensor. It is damaged: {error}") from None


def _shape(name: str, proto) -> tuple[int, ...]:
    if proto.unknown_rank or len(proto.dim) > _MOST_AXES:
        raise invalid(f"Expected {name} to have at most {_MOST_AXES} axes. It has more, or does not say how many.")
    shape = tuple(axis.size for axis in proto.dim)
    if min(shape, default=0) < 0:
        raise invalid(f"Expected {name} to have axes of at least 0. Received: {written(shape)}")
    return shape


def _strings(name: str, values: Iterable[bytes], shape: tuple[int, ...], max_bytes: int) -> np.ndarray:
    values = list(values)
    last, missing = values[-1] if values else b"", math.prod(shape) - len(values)
    if len(last) * missing > max_bytes:
        raise invalid(f"Expected {name} to have at most {max_bytes:,} bytes. Its last string is repeated too often.")
    array = np.empty(max(len(values), math.prod(shape)), object)
    array[:] = values + [last] * missing
    return array.reshape(shape)


def _type(number: int) -> str:
    try:
        return tf.dtypes.as_dtype(number).name
    except TypeError:
        return f"type {number}"
