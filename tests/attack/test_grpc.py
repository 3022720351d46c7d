"""Attacks on the gRPC interface: every answer is a documented code and a sentence."""

import gzip
import itertools
import random
import re
import socket
import struct
import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("honest", "little")]

PREDICT = "/tensorflow.serving.PredictionService/Predict"
REFUSED = ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION")
TEXTS = [b"zwei Hunde spielen", b"ein Mann"]


@pytest.fixture(scope="module")
def channel(target):
    import grpc

    with grpc.insecure_channel(target.rpc.removeprefix("grpc://"), [("grpc.max_send_message_length", -1)]) as made:
        yield made


def call(channel, body: bytes, method: str = PREDICT, **options) -> tuple[str, object]:
    """The code, and the bytes of the answer or the sentence."""
    import grpc

    try:
        return "OK", channel.unary_unary(method)(body, timeout=30, **options)
    except grpc.RpcError as error:
        return error.code().name, error.details()


def check(found: tuple[str, object], *codes: str, sentence: str = "") -> None:
    code, said = found
    assert code in codes, found
    if code != "OK":
        assert 0 < len(said) < 1100
        assert re.search(sentence, said), said


def proto(dtype: int, axes=(), **values):
    from tensorflow.core.framework import tensor_pb2

    made = tensor_pb2.TensorProto(dtype=dtype, **values)
    for size in axes:
        made.tensor_shape.dim.add(size=size)
    return made


def request(inputs: dict, signature: str = "serving_default", model: str = "small"):
    from tensorflow_serving.apis import predict_pb2

    made = predict_pb2.PredictRequest()
    made.model_spec.name, made.model_spec.signature_name = model, signature
    for name, value in inputs.items():
        made.inputs[name].CopyFrom(value)
    return made


def strings(*axes: int, values=TEXTS):
    return proto(7, axes, string_val=values)


SIZES = (-(2**63), -1024, -5, -1, 0, 1, 2, 2**31, 2**32, 2**62, 2**63 - 1)
SHAPES = [(), *((size,) for size in SIZES), *itertools.product(SIZES, SIZES)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_shape_of_a_text(channel, shape):
    # Of the shapes of one axis, 2 is right, and in 1 there is a string too many.
    expected = ("OK",) if shape in ((2,),) else ("INVALID_ARGUMENT",)
    check(call(channel, request({"text": strings(*shape)}).SerializeToString()), *expected, sentence="^Expected text")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_shape_of_token_ids(channel, shape):
    inputs = {"token_ids": proto(3, shape, int_val=[5]), "lengths": proto(3, (1,), int_val=[1])}
    expected = ("OK",) if shape in ((1, 1), (1, 2)) else ("INVALID_ARGUMENT",)
    found = call(channel, request(inputs, "translate_token_ids").SerializeToString())
    check(found, *expected, sentence="^Expected (token_ids|as many rows)")


def test_axes_whose_product_wraps_around(channel, target):
    before = target.megabytes()
    for n in (300_000_000, 1, 2**20, 2**31):
        axes = (-1024, (2**64 - n) // 1024 - 2**63)
        found = call(channel, request({"text": strings(*axes, values=[b""])}).SerializeToString())
        check(found, "INVALID_ARGUMENT", sentence="axes of at least 0")
    for axes in ((2**32, 2**32), (2**62, 4), (2**21, 2**21, 2**22), (2**63 - 1,) * 300_000, (1,) * 300_000):
        found = call(channel, request({"text": strings(*axes)}).SerializeToString())
        check(found, "INVALID_ARGUMENT", sentence="^Expected text")
    long = request({"text": strings(2**20, values=[b"x" * 2**20])})
    check(call(channel, long.SerializeToString()), "INVALID_ARGUMENT", sentence="last string is repeated too often")
    assert target.megabytes() - before < 200


@pytest.mark.parametrize("dtype", [*range(40), *range(100, 130), -1, 2**31 - 1])
@pytest.mark.parametrize("name", ["text", "max_length"])
def test_the_type_of_a_tensor(channel, dtype, name):
    tensors = {"text": strings(2), name: proto(dtype, (2,) if name == "text" else (), string_val=TEXTS, int_val=[3])}
    fine = dtype == {"text": 7, "max_length": 3}[name]
    found = call(channel, request(tensors, "translate_with_options").SerializeToString())
    check(found, "OK" if fine else "INVALID_ARGUMENT", sentence=f"^Expected {name} to be .*Received: ")


def test_a_tensor_of_unknown_rank(channel):
    text = strings(2)
    text.tensor_shape.unknown_rank = True
    check(call(channel, request({"text": text}).SerializeToString()), "INVALID_ARGUMENT", sentence="32 axes")


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), -float("inf")], ids=repr)
@pytest.mark.parametrize("option", ["length_penalty", "max_length_ratio", "min_length_ratio"])
def test_a_number_out_of_range(channel, option, value):
    inputs = {"text": strings(2), option: proto(1, (), float_val=[value])}
    found = call(channel, request(inputs, "translate_with_options").SerializeToString())
    check(found, "INVALID_ARGUMENT", sentence=f"Expected {option} to be a number of at least 0. Received: ")


@pytest.mark.parametrize("number", range(150))
def test_a_damaged_message(channel, number):
    choose, message = random.Random(number), bytearray(request({"text": strings(2)}).SerializeToString())
    for _ in range(choose.randint(1, 4)):
        at = choose.randrange(len(message))
        kind = choose.randrange(3)
        if kind == 0:
            message[at] ^= 1 << choose.randrange(8)
        elif kind == 1:
            message.insert(at, choose.randrange(256))
        elif len(message) > 2:
            del message[at]
    check(call(channel, bytes(message)), "OK", *REFUSED)


BODIES = {
    "nothing": b"",
    "ones": b"\xff" * 1000,
    "zeros": bytes(1000),
    "a group in a group": b"\x0b" * 100_000,
    "JSON": b'{"inputs": ["x"]}',
    "too many bytes": bytes(2**22 + 1),
    "a length that is too long": b"\x0a\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("method", ["Predict", "GetModelMetadata", "GetModelStatus", "Classify", "\u00e9", ""])
def test_a_message_that_is_none(channel, name, method):
    service = "ModelService" if method == "GetModelStatus" else "PredictionService"
    path = f"/tensorflow.serving.{service}/{method}"
    if not method.isascii():
        path = "/" + "x" * 5000
    found = call(channel, BODIES[name], path)
    check(found, *REFUSED, "UNIMPLEMENTED", "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize("size", [1, 100, 10_000, 1_000_000])
@pytest.mark.parametrize("part", ["model", "signature", "input", "filter", "label"])
def test_a_long_name(channel, part, size):
    text = strings(2)
    made = request({"text": text, "y" * size: text} if part == "input" else {"text": text})
    if part == "model":
        made.model_spec.name = "y" * size
    elif part == "signature":
        made.model_spec.signature_name = "\u00e9" * size
    elif part == "filter":
        made.output_filter.append("y" * size)
    elif part == "label":
        made.model_spec.version_label = "y" * size
    check(call(channel, made.SerializeToString()), *REFUSED, sentence="^(Expected|Servable not found)")


@pytest.mark.parametrize("names", [["score"] * 2, ["score"] * 10_000, [""], ["scores"], ["score", "\0"]], ids=len)
def test_a_filter(channel, names):
    made = request({"text": strings(2)})
    made.output_filter.extend(names)
    check(call(channel, made.SerializeToString()), "INVALID_ARGUMENT", sentence="^Expected output_filter among")


@pytest.mark.parametrize("version", [-(2**63), -1, 0, 2, 2**63 - 1])
def test_a_version(channel, version):
    made = request({"text": strings(2)})
    made.model_spec.version.value = version
    check(call(channel, made.SerializeToString()), "NOT_FOUND", sentence=str(version))


def frames(*parts: bytes) -> bytes:
    """An HTTP/2 connection that opens streams: the preface, settings, and these frames."""
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + b"".join(parts)


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def headers(stream: int) -> bytes:
    """A HEADERS frame without Huffman coding or indexing."""
    fields = {":method": "POST", ":scheme": "http", ":path": PREDICT, ":authority": "localhost"}
    fields |= {"content-type": "application/grpc", "te": "trailers"}
    block = b""
    for name, value in fields.items():
        assert len(name) < 127
        assert len(value) < 127
        block += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    return frame(1, 4, stream, block)


def address(target) -> tuple[str, int]:
    host, _, port = target.rpc.removeprefix("grpc://").rpartition(":")
    return host, int(port)


def test_calls_that_send_slowly_take_no_room(target, channel, honest):
    """300 calls announce a message and send none of it; the honest go on, and the slow ones are ended."""
    errors = len(honest.errors)
    connections = [socket.create_connection(address(target), timeout=20) for _ in range(100)]
    begun = struct.pack(">BI", 0, 1000) + b"\x0a"
    for connection in connections:
        connection.sendall(frames(*(headers(n) + frame(0, 0, n, begun) for n in (1, 3, 5))))
    valid = request({"text": strings(2)}).SerializeToString()
    for _ in range(20):
        check(call(channel, valid), "OK")
        time.sleep(0.3)
    for connection in connections:
        received = connection.recv(2**16)
        time.sleep(0.001)
        assert b"grpc-status" in received or len(received) > 100, received
        connection.close()
    assert len(honest.errors) == errors


@pytest.mark.parametrize(
    "data",
    [random.Random(2).randbytes(5000), b"GET / HTTP/1.1\r\n\r\n", frames(frame(9, 0, 1, b"x" * 100)), bytes(1000)],
    ids=["garbage", "HTTP/1", "frames", "zeros"],
)
def test_what_is_no_call(target, channel, data):
    with socket.create_connection(address(target), timeout=20) as connection:
        connection.sendall(data)
    check(call(channel, request({"text": strings(2)}).SerializeToString()), "OK")


@pytest.mark.parametrize("megabytes", [1, 100, 1000])
def test_a_compressed_message_that_grows(target, megabytes):
    """A message that is marked as compressed, of zeros."""
    before = target.megabytes("VmHWM")
    body = gzip.compress(bytes(megabytes * 2**20))
    fields = headers(1)[9:] + b"\0\x0dgrpc-encoding\x04gzip"
    message = struct.pack(">BI", 1, len(body)) + body
    with socket.create_connection(address(target), timeout=20) as connection:
        connection.sendall(frames(frame(1, 4, 1, fields)))
        for begin in range(0, min(len(message), 60_000), 16_000):  # within the window of flow control
            connection.sendall(frame(0, 0, 1, message[begin : begin + 16_000]))
        connection.settimeout(5)
        received = connection.recv(2**16)
    assert received
    assert target.megabytes("VmHWM") - before < 200


def test_a_compressed_message_of_a_client(target):
    import grpc

    options = [("grpc.max_send_message_length", -1)]
    before = target.megabytes("VmHWM")
    with grpc.insecure_channel(target.rpc.removeprefix("grpc://"), options) as channel:
        for size in (10, 2**18, 2**26, 2**29):
            made = request({"text": strings(1, values=[bytes(size)])}).SerializeToString()
            found = call(channel, made, compression=grpc.Compression.Gzip)
            check(found, "OK" if size <= 2**18 else "RESOURCE_EXHAUSTED")
    assert target.megabytes("VmHWM") - before < 300


def test_calls_that_are_cancelled(channel, target):
    """A hundred clients ask for much and go; the next one does not wait for them."""
    much = request({"text": strings(4, values=[b"m n o p " * 750] * 4)}).SerializeToString()
    for _ in range(100):
        future = channel.unary_unary(PREDICT).future(much, timeout=30)
        time.sleep(0.02)
        future.cancel()
    begin = time.perf_counter()
    check(call(channel, request({"text": strings(2, values=[b"ein Mann " * 70] * 2)}).SerializeToString()), "OK")
    assert time.perf_counter() - begin < 5


def test_an_answer_that_is_too_large(channel):
    for texts in ([b"Mann " * 840] + [b"ein"] * 63, [b"m" * 200] * 64):
        made = request({"text": strings(64, values=texts)}, "translate_n_best")
        check(call(channel, made.SerializeToString()), "RESOURCE_EXHAUSTED", sentence="16,777,216 bytes.* larger")
