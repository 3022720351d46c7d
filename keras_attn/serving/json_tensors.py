"""TensorFlow Serving's JSON format: requests to arrays, arrays to answers.

A request has either `instances` (rows) or `inputs` (columns); its answer has `predictions` or `outputs`. A single input
and a single output need no name. A string may be written as `{"b64": "..."}`, for any bytes. A float is written with
the fewest digits that identify it in its precision, NaN and infinities as `NaN` and `Infinity`.
"""

import base64
import json
from collections.abc import Mapping
from reprlib import repr as shortened

import numpy as np
import tensorflow as tf
from aiohttp import web

_LEAVES = {"O": {str, dict}, "b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}  # by an array's dtype.kind


def read_request(body: bytes, signatures: Mapping) -> tuple[str, dict[str, np.ndarray], bool]:
    """Returns the signature's name, the inputs, and whether they came in rows.

    Args:
        body: JSON. Bytes that are not UTF-8 are kept, as by TensorFlow Serving.
        signatures: A `SignatureDef` for each name.

    Raises:
        web.HTTPBadRequest: with what was expected.
    """
    try:
        content = json.loads(body.decode("utf-8-sig", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise web.HTTPBadRequest(text=f"Expected a body of JSON. Received one with an error: {error}") from None
    if not isinstance(content, dict) or ("instances" in content) == ("inputs" in content):
        raise web.HTTPBadRequest(
            text=f'Expected an object with "instances" or "inputs". Received: {shortened(content)}'
        )
    name = content.get("signature_name") or "serving_default"
    if not isinstance(name, str) or name not in signatures:
        known = ", ".join(sorted(signatures))
        raise web.HTTPBadRequest(text=f"Expected a signature_name among: {known}. Received: {shortened(name)}")
    signature, in_rows = signatures[name], "instances" in content
    columns = _columns(content["instances"]) if in_rows else content["inputs"]
    if not _has_names(columns):
        required = set(signature.inputs) - set(signature.defaults)
        columns = dict.fromkeys(required, columns) if len(required) == 1 else {}
    return name, _arrays(columns, signature), in_rows


def write_answer(outputs: Mapping[str, np.ndarray], in_rows: bool) -> bytes:
    """Writes the body of an answer.

    Raises:
        web.HTTPBadRequest: if the request has rows and the outputs have none.
    """
    if in_rows and len({array.shape[:1] for array in outputs.values()} | {()}) != 2:
        raise web.HTTPBadRequest(text='Expected "inputs" with this signature, whose outputs have no rows.')
    values = {name: _values(array) for name, array in outputs.items()}
    if len(values) == 1:
        (found,) = values.values()
    elif in_rows:
        found = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    else:
        found = values
    content = {"predictions" if in_rows else "outputs": found}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _columns(instances) -> dict[str, list] | list:
    """The columns of rows with names; other rows as they are."""
    if not isinstance(instances, list) or not instances:
        raise web.HTTPBadRequest(text=f'Expected "instances" to be a list with rows. Received: {shortened(instances)}')
    if not _has_names(instances[0]):
        return instances
    names = instances[0].keys()
    if any(not isinstance(row, dict) or row.keys() != names for row in instances):
        raise web.HTTPBadRequest(text=f"Expected rows with the same names. Received: {shortened(instances)}")
    return {name: [row[name] for row in instances] for name in names}


def _has_names(value) -> bool:
    return isinstance(value, dict) and value.keys() != {"b64"}


def _arrays(columns: Mapping[str, object], signature) -> dict[str, np.ndarray]:
    names, known = set(columns), set(signature.inputs)
    if names - known or known - names - set(signature.defaults):
        expected, received = (", ".join(sorted(some)) for some in (known, names))
        raise web.HTTPBadRequest(text=f"Expected the inputs by name: {expected}. Received: {received or 'no names'}")
    arrays = {name: _array(name, value, signature.inputs[name]) for name, value in columns.items()}
    counts = {name: len(array) for name, array in arrays.items() if array.ndim}
    if len(set(counts.values())) > 1:
        raise web.HTTPBadRequest(text=f"Expected as many rows of each input. Received: {counts}")
    return arrays


def _array(name: str, value, info) -> np.ndarray:
    dtype, shape = tf.dtypes.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape)
    nested = np.array(value, object)  # lists of several lengths, or nested deeper than 64 times, are its leaves
    leaves = nested.ravel()
    array = np.empty(len(leaves), dtype.as_numpy_dtype)
    try:
        types = {type(leaf) for leaf in leaves}
        if not shape.is_compatible_with(nested.shape) or types - _LEAVES[array.dtype.kind]:
            raise ValueError
        with np.errstate(over="raise"):
            array[:] = [_bytes(leaf) if array.dtype.kind == "O" else leaf for leaf in leaves]
    except (ValueError, ArithmeticError):  # wrong base64, half of a surrogate pair, a number that is too large
        sentence = f"Expected {name} to be {dtype.name} of shape {shape}. Received: {shortened(value)}"
        raise web.HTTPBadRequest(text=sentence) from None
    return array.reshape(nested.shape)


def _bytes(value: str | dict) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if value.keys() != {"b64"} or not isinstance(value["b64"], str):
        raise ValueError
    return base64.b64decode(value["b64"], validate=True)


def _values(array: np.ndarray) -> list:
    if array.dtype.kind == "O":
        return np.vectorize(lambda text: text.decode(errors="replace"), [object])(array).tolist()
    if array.dtype.kind == "f":
        return array.astype(str).astype(float).tolist()  # with the digits that NumPy prints
    return array.tolist()
