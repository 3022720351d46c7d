"""The versions of one model: SavedModels, each run in a session by the tensor names of its signatures."""

import logging
import math
import stat
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 registers its ops
from aiohttp import web

_RETRY_SECONDS = 10.0
_ERRORS = {3: web.HTTPBadRequest, 4: web.HTTPGatewayTimeout}  # by TensorFlow's error code


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

    def run(self, name: str, inputs: dict[str, np.ndarray], seconds: float) -> dict[str, np.ndarray]:
        """Runs a signature on arrays of its inputs' dtypes and shapes.

        Raises:
            web.HTTPException: if the graph fails, with TensorFlow's message, or takes longer than `seconds`.
        """
        signature = self.signatures[name]
        values = {key: tf.make_ndarray(value) for key, value in signature.defaults.items()} | inputs
        feeds = {signature.inputs[key].name: value for key, value in values.items()}
        fetches = {key: info.name for key, info in signature.outputs.items()}
        options = tf.compat.v1.RunOptions(timeout_in_ms=max(1, math.ceil(1000 * seconds)))
        try:
            outputs = self._session.run(fetches, feeds, options=options)
        except tf.errors.OpError as error:
            reason = " ".join(error.message.split())
            kind = _ERRORS.get(error.error_code, web.HTTPInternalServerError)
            raise kind(text=f"The model cannot run this: {reason}") from error
        return {key: np.asarray(value) for key, value in outputs.items()}  # of a scalar, it is no array


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
