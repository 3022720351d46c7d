"""The stock server's JSON format: requests to tensors, tensors to answers.

A request has either `instances` (rows) or `inputs` (columns); its answer has `predictions` or `outputs`. A single input
and a single output need no name. A string may be written as `{"b64": "..."}`, for any bytes; an output named `*_bytes`
is written like this. A float is written with the fewest digits that identify it in its precision. NaN and infinities
are written as `NaN` and `Infinity`, as by the stock server, which strict JSON parsers refuse.
"""

import base64
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from keras_attn.serving.dev_server.errors import invalid, large_answer
from keras_attn.serving.dev_server.tensors import DEFAULT_SIGNATURE, Signature, Tensor, type_name

_PIECE = 2**14  # values that are written at once


class Request(NamedTuple):
    signature_name: str
    inputs: dict[str, np.ndarray]
    in_rows: bool


def read_request(body: bytes, signature_of: Callable[[str], Signature]) -> Request:
    """Reads the tensors of a request's body.

    Args:
        body: JSON. Bytes that are not UTF-8 are kept, as in the stock server.
        signature_of: Returns the signature of a name; raises a RequestError for an unknown one.

    Raises:
        RequestError: INVALID_ARGUMENT, with what was expected.
    """
    try:
        content = json.loads(body.decode("utf-8-sig", "surrogateescape"))
    except ValueError as error:
        raise invalid(f"Expected a body of JSON. Received one with an error: {error}") from None
    except RecursionError:
        raise invalid("Expected a body of JSON. Received one that is nested too deeply.") from None
    if not isinstance(content, dict) or ("instances" in content) == ("inputs" in content):
        raise invalid('Expected a JSON object with either "instances" or "inputs". Received: ' + _kind(content))
    name = content.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(name, str):
        raise invalid(f"Expected signature_name to be a string. Received: {_kind(name)}")
    name = name or DEFAULT_SIGNATURE
    signature = signature_of(name)
    if "inputs" in content:
        return Request(name, _arrays(_named(content["inputs"], signature), signature), False)
    return Request(name, _arrays(_columns(content["instances"], signature), signature), True)


def write_answer(outputs: Mapping[str, np.ndarray], in_rows: bool, max_bytes: int) -> bytes:
    """Writes the body of an answer.

    Args:
        outputs: The outputs by name.
        in_rows: Whether the request has rows.
        max_bytes: Bytes of the body, at most.

    Raises:
        RequestError: INVALID_ARGUMENT, if the request has rows and the outputs have none; RESOURCE_EXHAUSTED, if the
            body would be larger.
    """
    pieces, size = [], 0
    for piece in _pieces(outputs, in_rows):
        pieces.append(piece.encode())
        size += len(pieces[-1])
        if size > max_bytes:
            raise large_answer(max_bytes, "is")
    return b"".join(pieces)


def _pieces(outputs: Mapping[str, np.ndarray], in_rows: bool) -> Iterator[str]:
    """The JSON of an answer in pieces: the Python objects of all its values at once would take much memory."""
    only = next(iter(outputs)) if len(outputs) == 1 else None
    if not in_rows:
        body = _object(outputs) if only is None else _nested(only, outputs[only])
        return itertools.chain(['{"outputs":'], body, "}")
    counts = {array.shape[:1] for array in outputs.values()}
    if len(counts) != 1 or () in counts:
        raise invalid('Expected "inputs" with this signature, whose outputs have no rows. Received: "instances"')
    body = _joined("[", _rows(outputs), "]") if only is None else _nested(only, outputs[only])
    return itertools.chain(['{"predictions":'], body, "}")


def _rows(outputs: Mapping[str, np.ndarray]) -> Iterator[Iterable[str]]:
    count = len(next(iter(outputs.values())))
    step = _PIECE // max(1, sum(array[:1].size for array in outputs.values()))
    if not step:  # each row is large
        yield from (_object({name: array[n] for name, array in outputs.items()}) for n in range(count))
        return
    for begin in range(0, count, step):
        values = [_values(name, array[begin : begin + step]) for name, array in outputs.items()]
        yield [_dumps([dict(zip(outputs, row, strict=True)) for row in zip(*values, strict=True)])[1:-1]]


def _object(arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
    members = (itertools.chain([_dumps(name), ":"], _nested(name, array)) for name, array in arrays.items())
    return _joined("{", members, "}")


def _nested(name: str, array: np.ndarray) -> Iterator[str]:
    if array.size <= _PIECE:
        yield _dumps(_values(name, array))
    elif step := _PIECE // array[:1].size:
        parts = (array[begin : begin + step] for begin in range(0, len(array), step))
        yield from _joined("[", ([_dumps(_values(name, part))[1:-1]] for part in parts), "]")
    else:
        yield from _joined("[", (_nested(name, part) for part in array), "]")


def _joined(begin: str, parts: Iterable[Iterable[str]], end: str) -> Iterator[str]:
    yield begin
    for n, part in enumerate(parts):
        if n:
            yield ","
        yield from part
    yield end


def _named(value, signature: Signature) -> dict:
    if isinstance(value, dict) and not _is_base64(value):
        return value
    return {_only(signature, "inputs"): value}


def _columns(instances, signature: Signature) -> dict[str, list]:
    if not isinstance(instances, list) or not instances:
        raise invalid(f'Expected "instances" to be a list with at least one row. Received: {_kind(instances)}')
    if not (isinstance(instances[0], dict) and not _is_base64(instances[0])):
        return {_only(signature, "instances"): instances}
    names = instances[0].keys()
    for number, row in enumerate(instances):
        if not isinstance(row, dict) or row.keys() != names:
            raise invalid(f"Expected rows with the same names. Row {number} of instances has others: {_kind(row)}")
    return {name: [row[name] for row in instances] for name in names}


def _only(signature: Signature, key: str) -> str:
    required = set(signature.inputs) - signature.defaults or set(signature.inputs)
    if len(required) != 1:
        names = ", ".join(sorted(signature.inputs))
        raise invalid(f'Expected "{key}" to name the inputs: {names}. Received values without names.')
    return required.pop()


def _arrays(columns: Mapping[str, object], signature: Signature) -> dict[str, np.ndarray]:
    signature.check_names(columns)
    arrays = {name: _array(name, value, signature.inputs[name]) for name, value in columns.items()}
    signature.check(arrays)
    return arrays


def _array(name: str, value, tensor: Tensor) -> np.ndarray:
    shape, leaves = [], [value]
    while leaves and isinstance(leaves[0], list):
        sizes = {len(leaf) if isinstance(leaf, list) else None for leaf in leaves}
        if len(sizes) > 1 or len(shape) == 32:
            raise invalid(f"Expected {name} to be nested lists of equal lengths. Received lists of several lengths.")
        shape += sizes
        leaves = [item for leaf in leaves for item in leaf]
    array = np.empty(len(leaves), tensor.dtype)
    array[:] = [_leaf(name, leaf, tensor.dtype) for leaf in leaves]
    return array.reshape(shape)


def _leaf(name: str, value, dtype: np.dtype):
    try:
        if dtype.kind == "O":
            return _bytes(value)
        if dtype.kind == "b" and isinstance(value, bool):
            return value
        if dtype.kind in "iu" and type(value) is int and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            return value
        is_number = dtype.kind == "f" and type(value) in (int, float)
        if is_number and (not math.isfinite(value) or abs(value) <= float(np.finfo(dtype).max)):
            return float(value)
    except (ValueError, OverflowError):  # wrong base64, half of a surrogate pair, an infinite number
        pass
    raise invalid(f"Expected {name} to hold values of type {type_name(dtype)}. Received: {_kind(value)}")


def _bytes(value) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if not _is_base64(value):
        raise ValueError
    text = value["b64"].rstrip("=")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _is_base64(value) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _values(name: str, array: np.ndarray):
    if array.dtype.kind == "O":
        if name.endswith("_bytes"):
            leaves = [{"b64": base64.b64encode(text).decode()} for text in array.ravel()]
        else:
            leaves = [text.decode(errors="replace") for text in array.ravel()]
        kept = np.empty(len(leaves), object)
        kept[:] = leaves
        return kept.reshape(array.shape).tolist()
    if array.dtype.kind == "f":
        numbers = np.array([float(str(number)) for number in array.ravel()])  # with the digits that NumPy prints
        return numbers.reshape(array.shape).tolist()
    return array.tolist()


def _dumps(content) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _kind(value) -> str:
    """A short description of a value, for an error message."""
    if isinstance(value, dict):
        names = ", ".join(json.dumps(name[:40]) for name in list(value)[:5])
        return f"an object with {names or 'nothing'}{', ...' if len(value) > 5 else ''}"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    return json.dumps(value[:80] if isinstance(value, str) else value)
