"""The stock server's JSON; the examples are those of its documentation, or follow from json_tensor.cc."""

import json

import numpy as np
import pytest

from keras_attn.serving.dev_server import json_tensors
from keras_attn.serving.dev_server.errors import RequestError
from keras_attn.serving.dev_server.json_tensors import read_request
from keras_attn.serving.dev_server.tensors import Signature, Tensor

pytestmark = pytest.mark.once

STRING, FLOAT, INT, BOOL = (np.dtype(name) for name in ("object", "float32", "int32", "bool"))
SIGNATURES = {
    "serving_default": Signature({"text": Tensor(STRING, (None,))}, {}),
    "pair": Signature({"a": Tensor(STRING, (None,)), "b": Tensor(FLOAT, (None, 2))}, {}),
    "scalar": Signature({"text": Tensor(STRING, (None,)), "n": Tensor(INT, ())}, {}, frozenset({"n"})),
    "any": Signature({"x": Tensor(FLOAT, None)}, {}),
    "bool": Signature({"x": Tensor(BOOL, (None,))}, {}),
}


def read(content):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return read_request(body, SIGNATURES.__getitem__)


def write_answer(outputs, in_rows, max_bytes=10**9):
    return json_tensors.write_answer(outputs, in_rows, max_bytes)


def lists(inputs):
    return {name: array.tolist() for name, array in inputs.items()}


@pytest.mark.parametrize(
    ("content", "expected", "in_rows"),
    [
        ({"instances": ["x", "é"]}, {"text": [b"x", "é".encode()]}, True),
        ({"instances": [{"text": "x"}, {"text": "y"}]}, {"text": [b"x", b"y"]}, True),
        ({"instances": [{"b64": "//4="}, "y"]}, {"text": [b"\xff\xfe", b"y"]}, True),
        ({"instances": [{"text": {"b64": "YQ"}}]}, {"text": [b"a"]}, True),
        ({"inputs": ["x"], "signature_name": ""}, {"text": [b"x"]}, False),
        ({"inputs": {"text": []}}, {"text": []}, False),
        (b'\xef\xbb\xbf{"inputs": ["\xff\xc3"]}', {"text": [b"\xff\xc3"]}, False),
        ({"inputs": [rb"\u0000".decode("unicode_escape")]}, {"text": [b"\0"]}, False),
        (
            {"signature_name": "pair", "instances": [{"a": "x", "b": [1, 2.5]}, {"a": "y", "b": [3, 4]}]},
            {"a": [b"x", b"y"], "b": [[1, 2.5], [3, 4]]},
            True,
        ),
        ({"signature_name": "scalar", "inputs": {"text": ["x"], "n": 7}}, {"text": [b"x"], "n": 7}, False),
        ({"signature_name": "scalar", "inputs": {"text": ["x"]}}, {"text": [b"x"]}, False),
        ({"signature_name": "any", "inputs": [[[1], [2]]]}, {"x": [[[1], [2]]]}, False),
        ({"signature_name": "bool", "instances": [True, False]}, {"x": [True, False]}, True),
    ],
)
def test_what_a_request_says(content, expected, in_rows):
    request = read(content)
    assert lists(request.inputs) == expected
    assert request.in_rows is in_rows
    signature = SIGNATURES[request.signature_name]
    assert all(array.dtype == signature.inputs[name].dtype for name, array in request.inputs.items())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "a body of JSON"),
        (b"", "a body of JSON"),
        (b"[" * 100_000, "a body of JSON"),
        ([1], r'either "instances" or "inputs". Received: a list of 1'),
        ({}, "Received: an object with nothing"),
        ({"instances": ["x"], "inputs": ["x"]}, 'an object with "instances", "inputs"'),
        ({"inputs": ["x"], "signature_name": 3}, "signature_name to be a string"),
        ({"instances": []}, "at least one row. Received: a list of 0"),
        ({"instances": "x"}, 'at least one row. Received: "x"'),
        ({"instances": [{"text": "x"}, "y"]}, 'Row 1 of instances has others: "y"'),
        ({"instances": [{"text": "x"}, {"other": "y"}]}, 'Row 1 of instances has others: an object with "other"'),
        ({"instances": ["x", {"text": "y"}]}, 'text to hold values of type string. Received: an object with "text"'),
        ({"instances": [{"b64": "a!"}]}, "type string"),
        ({"instances": [3]}, "type string. Received: 3"),
        ({"instances": ["\ud800"]}, r'type string. Received: "\\ud800"'),
        ({"instances": [["x"], ["y"]]}, r"text to be string of shape \(any\). Received: string of shape \(2, 1\)"),
        ({"instances": [["x"], ["y", "z"]]}, "nested lists of equal lengths"),
        ({"inputs": ["x", ["y"]]}, "text to hold values of type string. Received: a list of 1"),
        ({"inputs": "x"}, r"Received: string of shape \(\)"),
        ({"inputs": {"other": ["x"]}}, "the inputs: text. Received: other"),
        ({"signature_name": "pair", "inputs": ["x"]}, '"inputs" to name the inputs: a, b'),
        (
            {"signature_name": "pair", "inputs": {"a": ["x"], "b": [[1, 2], [3, 4]]}},
            "Received: a 1, b 2",
        ),
        ({"signature_name": "pair", "inputs": {"a": ["x"], "b": [[1, 1e39]]}}, "float32. Received: 1e"),
        ({"signature_name": "pair", "inputs": {"a": ["x"], "b": [[1, True]]}}, "float32. Received: true"),
        ({"signature_name": "scalar", "inputs": {"text": ["x"], "n": 2**31}}, "int32. Received: 2147483648"),
        ({"signature_name": "scalar", "inputs": {"text": ["x"], "n": 1.0}}, "int32. Received: 1.0"),
        ({"signature_name": "bool", "inputs": [1]}, "bool. Received: 1"),
    ],
)
def test_what_is_wrong_with_a_request(content, sentence):
    with pytest.raises(RequestError, match=sentence) as refused:
        read(content)
    assert refused.value.status == 400


def test_an_answer_in_rows_and_in_columns():
    strings = np.array([b"\xc3\xa9", b"\xff"], object)
    scores = np.array([[0.1], [-1 / 3]], "float32")
    assert json.loads(write_answer({"t": strings}, True)) == {"predictions": ["é", "\ufffd"]}
    assert json.loads(write_answer({"t": strings}, False)) == {"outputs": ["é", "\ufffd"]}
    rows = [{"t_bytes": {"b64": "w6k="}, "s": [0.1]}, {"t_bytes": {"b64": "/w=="}, "s": [-0.33333334]}]
    assert json.loads(write_answer({"t_bytes": strings, "s": scores}, True)) == {"predictions": rows}
    columns = {"t": ["é", "\ufffd"], "s": [[0.1], [-0.33333334]]}
    assert json.loads(write_answer({"t": strings, "s": scores}, False)) == {"outputs": columns}


def test_numbers_are_written_as_the_stock_server_writes_them():
    values = np.array([0.2, 9e6, 3e-5, np.nan, -np.inf, 0], "float32")
    assert write_answer({"x": values}, False) == b'{"outputs":[0.2,9000000.0,3e-05,NaN,-Infinity,0.0]}'
    assert write_answer({"x": np.array([1, 2])}, False) == b'{"outputs":[1,2]}'


@pytest.mark.parametrize("outputs", [{"x": np.float32(1)}, {"x": np.zeros(2), "y": np.zeros(3)}])
def test_outputs_without_rows_are_no_predictions(outputs):
    outputs = {name: np.asarray(value) for name, value in outputs.items()}
    assert json.loads(write_answer(outputs, False))
    with pytest.raises(RequestError, match="no rows"):
        write_answer(outputs, True)


OUTPUTS = {
    "words": np.array([[b"a", b"\xc3\xa9"], [b"", b"b"], [b'"', b"c"]], object),
    "scores": np.array([0.1, -1 / 3, np.nan], "float32"),
    "alignments": np.linspace(0, 1, 3 * 2 * 5, dtype="float32").reshape(3, 2, 5),
    "none": np.zeros((3, 0), "int32"),
}


@pytest.mark.parametrize("in_rows", [True, False])
@pytest.mark.parametrize("names", [*([name] for name in OUTPUTS), list(OUTPUTS)])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_large_answer_is_written_in_pieces_that_make_the_same_text(names, in_rows, rows, monkeypatch):
    outputs = {name: OUTPUTS[name][:rows] for name in names}
    whole = write_answer(outputs, in_rows)
    for values in (1, 2, 7, 25):
        monkeypatch.setattr(json_tensors, "_PIECE", values)
        assert write_answer(outputs, in_rows) == whole
    assert write_answer(outputs, in_rows, len(whole)) == whole
    with pytest.raises(RequestError, match=f"at most {len(whole) - 1} bytes. This one's is larger") as refused:
        write_answer(outputs, in_rows, len(whole) - 1)
    assert (refused.value.status, refused.value.code) == (413, "RESOURCE_EXHAUSTED")


def test_a_long_sentence_is_cut_and_can_be_sent():
    with pytest.raises(RequestError, match="Expected the inputs: text") as refused:
        read({"inputs": {"\ud800": ["x"], "x" * 10_000: ["y"]}})
    assert len(refused.value.sentence) < 1100
    refused.value.sentence.encode()
    # gRPC sends the last as 12 bytes, of which a client takes 8,192.
    assert len(RequestError("NOT_FOUND", "\U0001f600" * 1000).sentence) < 300
