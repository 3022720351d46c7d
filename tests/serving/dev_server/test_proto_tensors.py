"""gRPC's tensors: what a few bytes may claim is refused before it takes memory."""

import time
import tracemalloc

import keras
import numpy as np
import pytest

from keras_attn.serving.dev_server.errors import RequestError
from keras_attn.serving.dev_server.tensors import Signature, Tensor

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the server is TensorFlow's alone; it is tested on that backend"
)

TEXT, IDS, ANY = (
    Tensor(np.dtype("O"), (None,)),
    Tensor(np.dtype("int32"), (None, None)),
    Tensor(np.dtype("int32"), None),
)
LIMIT = 1000
N = 300_000_000


def proto(dtype: str, *axes: int, **values):
    from tensorflow.core.framework import tensor_pb2, types_pb2

    made = tensor_pb2.TensorProto(dtype=types_pb2.DataType.Value(dtype), **values)
    for size in axes:
        made.tensor_shape.dim.add(size=size)
    return made


def read(tensor: Tensor, made) -> np.ndarray:
    from keras_attn.serving.dev_server.proto_tensors import read_inputs

    return read_inputs({"x": made}, Signature({"x": tensor}, {}), LIMIT)["x"]


@pytest.mark.parametrize(
    ("tensor", "dtype", "axes", "values", "sentence"),
    [
        (
            IDS,
            "DT_INT32",
            (-1024, (2**64 - N) // 1024 - 2**63),
            {"int_val": [1]},
            r"axes of at least 0. Received: \(-1024",
        ),
        (IDS, "DT_INT32", (-1024, -3), {"int_val": [1]}, "axes of at least 0"),
        (TEXT, "DT_STRING", (-5,), {"string_val": [b"x"]}, r"axes of at least 0. Received: \(-5\)"),
        (IDS, "DT_INT32", (2**62, 4), {"int_val": [1]}, "at most 1,000 elements"),
        (IDS, "DT_INT32", (2**32, 2**32), {"int_val": [1]}, "at most 1,000 elements"),
        (ANY, "DT_INT32", (2**62,) * 32, {"int_val": [1]}, "at most 1,000 elements"),
        (ANY, "DT_INT32", (1,) * 33, {"int_val": [1]}, "at most 32 axes"),
        (ANY, "DT_INT32", (2**62,) * 50_000, {"int_val": [1]}, "at most 32 axes"),
        (TEXT, "DT_STRING", (1000,), {"string_val": [b"xx"]}, "at most 1,000 bytes. Its last string is repeated"),
        (TEXT, "DT_STRING", (1,), {"string_val": [b"x", b"y"]}, "It is damaged"),
        (IDS, "DT_INT32", (1, 1), {"int_val": [1, 2]}, "It is damaged"),
        (IDS, "DT_INT32", (2, 2), {"tensor_content": b"12345"}, "It is damaged"),
        (TEXT, "DT_RESOURCE", (1,), {}, r"x to be string of shape \(any\). Received: resource of shape \(1\)"),
        (TEXT, "DT_VARIANT", (1,), {}, "Received: variant"),
        (TEXT, "DT_INVALID", (1,), {}, "Received: type 0"),
        (IDS, "DT_INT32_REF", (1, 1), {"int_val": [1]}, "Received: int32_ref"),
        (TEXT, "DT_STRING", (), {"string_val": [b"x"]}, r"Received: string of shape \(\)"),
    ],
)
def test_claims_are_refused(tensor, dtype, axes, values, sentence):
    made = proto(dtype, *axes, **values)
    tracemalloc.start()
    begin = time.perf_counter()
    try:
        with pytest.raises(RequestError, match=sentence) as refused:
            read(tensor, made)
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - begin < 5
    assert refused.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("tensor", "made", "expected"),
    [
        (TEXT, ("DT_STRING", (3,), {"string_val": [b"a", b"b"]}), [b"a", b"b", b"b"]),
        (TEXT, ("DT_STRING", (2,), {}), [b"", b""]),
        (TEXT, ("DT_STRING", (0,), {}), []),
        (IDS, ("DT_INT32", (2, 2), {"int_val": [1, 2]}), [[1, 2], [2, 2]]),
        (IDS, ("DT_INT32", (1, 1), {"tensor_content": b"\7\0\0\0"}), [[7]]),
        (IDS, ("DT_INT32", (0, 5), {}), []),
    ],
)
def test_what_a_tensor_says(tensor, made, expected):
    dtype, axes, values = made
    found = read(tensor, proto(dtype, *axes, **values))
    assert (found.dtype, found.tolist()) == (tensor.dtype, expected)


def test_a_type_without_a_name():
    made = proto("DT_STRING", 1, string_val=[b"x"])
    made.dtype = 77
    with pytest.raises(RequestError, match="Received: type 77"):
        read(TEXT, made)
