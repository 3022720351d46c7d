"""The versions of one model: SavedModels, each run in a session, with TensorFlow Serving's JSON.

A request has either `instances` (rows) or `inputs` (columns); its answer has `predictions` or `outputs`. A single input
and a single output need no name. A string may be written as `{"b64": "..."}`, for any bytes. A float is written with
the fewest digits that identify it in its precision, NaN and infinities as `NaN` and `Infinity`.
"""

import base64
import json
import logging
import math
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shortened

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 registers its ops
from aiohttp import web

_RETRY_SECONDS = 10.0
_MOST_ANSWER_BYTES = 2**25
_ERRORS = {3: web.HTTPBadRequest, 4: web.HTTPGatewayTimeout}  # by TensorFlow's error code
_LEAVES = {"O": {str, dict}, "b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}  # by an array's dtype.kind


class SavedModel:
    """One version, whose memory is freed with the object.

    Args:
        directory: The version's folder, whose name is the version's number.

    Attributes:
        version: The version's number.
        signatures: A `SignatureDef` for each name.

    Raises:
        ValueError: if it does not load, with the reason.
    """

    def __init__(self, directory: Path):
        self.version = int(directory.name)
        try:
            for path in directory.rglob("*"):
                mode = path.stat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # opening a FIFO might never end
                    raise ValueError(f"{str(path)!r} is a FIFO or a device.")
            with tf.Graph().as_default() as graph:
                self._session = tf.compat.v1.Session(graph=graph)
                meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], str(directory))
            # Names with two underscores are the loader's own, for initialization.
            signatures = meta_graph.signature_def.items()
            self.signatures = {name: value for name, value in signatures if not name.startswith("__")}
        except Exception as error:  # damaged files fail in many ways
            sentence = " ".join(str(error).split())
            raise ValueError(f"Expected a SavedModel in {str(directory)!r}. It does not load: {sentence}") from error

    def predict(self, body: bytes, end: float) -> bytes:
        """Returns the body of the answer to a request.

        Args:
            body: JSON. Bytes that are not UTF-8 are kept, as by TensorFlow Serving.
            end: The time, of `time.monotonic`, at which a run is stopped.

        Raises:
            web.HTTPException: with what was expected; if the graph fails, with TensorFlow's message.
        """
        name, inputs, in_rows = _read_request(body, self.signatures)
        signature = self.signatures[name]
        values = {key: tf.make_ndarray(value) for key, value in signature.defaults.items()} | inputs
        feeds = {signature.inputs[key].name: value for key, value in values.items()}
        fetches = {key: info.name for key, info in signature.outputs.items()}
        milliseconds = max(1, math.ceil(1000 * (end - time.monotonic())))
        try:
            outputs = self._session.run(fetches, feeds, tf.compat.v1.RunOptions(timeout_in_ms=milliseconds))
        except tf.errors.OpError as error:
            reason = " ".join(error.message.split())
            kind = _ERRORS.get(error.error_code, web.HTTPInternalServerError)
            raise kind(text=f"The model cannot run this: {reason}") from error
        outputs = {key: np.asarray(value) for key, value in outputs.items()}  # of a scalar, it is no array
        size = sum(sum(map(len, x.flat)) if x.dtype.kind == "O" else x.nbytes for x in outputs.values())
        if size > _MOST_ANSWER_BYTES:
            sentence = f"Expected a request whose answer has at most {_MOST_ANSWER_BYTES:,} bytes."
            raise web.HTTPBadRequest(text=f"{sentence} This one's is larger. Send fewer or shorter texts at once.")
        return _write_answer(outputs, in_rows)


class Versions:
    """The versions in a folder, of which the newest that loads is served, as by TensorFlow Serving's default policy.

    Args:
        name: The model's name in requests.
        directory: The folder with a folder for each version.

    Attributes:
        current: The `SavedModel` that is served, or None.
        failures: For each version that does not load, why, and the time to try again.

    Raises:
        FileNotFoundError: if the folder does not exist or has no version.
    """

    def __init__(self, name: str, directory: Path):
        self.name = name
        self.directory = directory
        self.current: SavedModel | None = None
        self.failures: dict[int, tuple[str, float]] = {}
        if not directory.is_dir() or not self._folders():
            raise FileNotFoundError(
                f"Expected a folder with versions of a model, such as 1/. Received: {str(directory)!r}. "
                "`keras-attn export RUN DIRECTORY` makes one. Of a version, give the folder above it."
            )

    def look(self) -> None:
        """Loads the newest version that can be loaded; releases the one that is served if its folder has gone.

        Requests that run on an old version are completed on it.
        """
        folders = self._folders()
        self.failures = {version: failure for version, failure in self.failures.items() if version in folders}
        for version in sorted(folders, reverse=True):
            if self.current and version == self.current.version:
                return
            why, again = self.failures.get(version, ("", 0.0))
            if time.monotonic() < again:
                continue
            try:
                self.current = SavedModel(folders[version])
            except ValueError as error:
                self.failures[version] = str(error), time.monotonic() + _RETRY_SECONDS
                if str(error) != why:
                    logging.warning("Version %d of %s is left out: %s", version, self.name, error)
            else:
                self.failures.pop(version, None)
                logging.warning("Version %d of %s is served now.", version, self.name)
                return
        if self.current and self.current.version not in folders:
            logging.warning("Version %d of %s has gone, and no other loads.", self.current.version, self.name)
            self.current = None

    def get(self, name: str, version: int | None) -> SavedModel:
        """Returns the model of this name and version.

        Raises:
            web.HTTPException: with TensorFlow Serving's message for another name or version.
        """
        model = self.current
        if model is None or name != self.name or version not in (None, model.version):
            requested = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            served = f"{self.name}, version {model.version if model else 'none'}"
            raise web.HTTPNotFound(text=f"Servable not found for request: {requested}. This server has {served}.")
        return model

    def _folders(self) -> dict[int, Path]:
        paths = (path for path in self.directory.iterdir() if path.name.isascii() and path.name.isdigit())
        return {int(path.name): path for path in paths if path.is_dir()}


def _read_request(body: bytes, signatures: Mapping) -> tuple[str, dict[str, np.ndarray], bool]:
    """Returns the signature's name, the inputs, and whether they came in rows."""
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


def _write_answer(outputs: Mapping[str, np.ndarray], in_rows: bool) -> bytes:
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
        # A name may have bytes that are not UTF-8, which no answer can have.
        expected, received = (", ".join(sorted(some)).encode(errors="replace").decode() for some in (known, names))
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
