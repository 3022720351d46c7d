"""A client for a translator on TensorFlow Serving or `keras-attn serve`, over REST. It needs NumPy alone."""

import base64
import dataclasses
import http.client
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import NamedTuple

from keras_attn.serving.n_best import N_BEST, from_row
from keras_attn.translation import Translation

_MOST_BYTES = 2**28  # of an answer
_ERRORS = {400: ValueError, 403: ValueError, 404: ValueError, 413: ValueError, 408: TimeoutError, 504: TimeoutError}
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # without proxies


class PairScore(NamedTuple):
    """The log-probability `log_prob` of a target's tokens, given its source, and their number `length`."""

    log_prob: float
    length: int


@dataclasses.dataclass(eq=False)
class Client:
    """Translates through a server. Several threads may use one client.

    A long list is sent in several requests, one after the other. A request that the server did not accept (refused
    connections, HTTP's 429 and 503) is sent again, after random times that grow from 0.1 to 5 seconds; others are not.

    Args:
        address: `http://HOST:PORT` or `https://HOST:PORT`.
        model: The model's name on the server.
        version: The number of a version; None: the one that the server chooses.
        timeout: Seconds to wait for an answer, or for more of it.
        retries: How often a request is sent again, at most.
        batch_size: Texts in one request, at most.

    Raises:
        ValueError: if the address is malformed, or the server refuses a request: because of an unknown model, version
            or signature, or because it is too large.
        ConnectionError: if the server accepted none of the attempts at a request.
        TimeoutError: if a request took too long.
        RuntimeError: if the server failed, or is no model server.

    Example:
        >>> client = keras_attn.serving.client.Client("http://localhost:8501", "rnnsearch")
        >>> [translation.text for translation in client.translate(["ein Hund läuft ."])]
        ['a dog runs .']
    """

    address: str
    model: str
    _: dataclasses.KW_ONLY
    version: int | None = None
    timeout: float = 30.0
    retries: int = 6
    batch_size: int = 64

    def __post_init__(self):
        if not self.address.startswith(("http://", "https://")):
            raise ValueError(f"Expected an address such as http://localhost:8501. Received: {self.address!r}")
        if self.retries < 0 or self.batch_size < 1:
            raise ValueError(f"Expected retries >= 0, batch_size >= 1. Received: {self.retries}, {self.batch_size}")
        path = urllib.parse.quote(self.model, safe="") + ("" if self.version is None else f"/versions/{self.version}")
        self._url = f"{self.address.rstrip('/')}/v1/models/{path}:predict"

    def translate(self, texts: Iterable[str | bytes]) -> list[Translation]:
        """Returns the best translation of each text, with its score. A text may be bytes that are not UTF-8."""
        rows = self._predict("serving_default", {"text": texts}, "translation", "score")
        return [Translation(text, score=score) for text, score in rows]

    def translate_n_best(self, texts: Iterable[str | bytes]) -> list[Translation]:
        """Returns the best translation of each text with its tokens and alignment, and all hypotheses in `n_best`.

        `n_best` is empty if the model was exported for one hypothesis. The translation of a blank text has neither
        tokens nor an alignment.
        """
        return [from_row(*row) for row in self._predict("translate_n_best", {"text": texts}, *N_BEST)]

    def score(self, sources: Iterable[str | bytes], targets: Iterable[str | bytes]) -> list[PairScore]:
        """Returns the log-probability of each target as the translation of its source."""
        inputs = {"source": sources, "target": targets}
        return [PairScore(*row) for row in self._predict("score", inputs, "log_prob", "lengths")]

    def _predict(self, signature: str, inputs: dict[str, Iterable], *outputs: str) -> list[tuple]:
        """Returns the values of the outputs for each row of the inputs."""
        columns = {name: _column(texts) for name, texts in inputs.items()}
        count, *others = {len(column) for column in columns.values()}
        if others:
            raise ValueError(f"Expected a target for each source. Received: {count} and {others[0]}")
        rows = []
        for n in range(0, count, self.batch_size):
            batch = {name: column[n : n + self.batch_size] for name, column in columns.items()}
            answer = self._send({"signature_name": signature, "inputs": batch})
            try:
                rows += zip(*(answer["outputs"][name] for name in outputs), strict=True)
            except (LookupError, TypeError, ValueError):
                sentence = f"Expected a translator of keras_attn, which gives {', '.join(outputs)}"
                raise RuntimeError(f"{sentence}. Received: {str(answer)[:80]}") from None
        return rows

    def _send(self, content: dict) -> dict:
        request = urllib.request.Request(self._url, json.dumps(content).encode(), {"Content-Type": "application/json"})
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(random.uniform(0, min(5.0, 0.05 * 2**attempt)))
            try:
                with _OPENER.open(request, timeout=self.timeout) as answer:
                    return json.loads(answer.read(_MOST_BYTES))
            except urllib.error.HTTPError as error:
                with error:
                    why = f"status {error.code}, {error.read(1000).decode(errors='replace')}"
                if error.code not in (429, 503):
                    raise _ERRORS.get(error.code, RuntimeError)(f"The server refuses this or failed: {why}") from None
            except (OSError, http.client.HTTPException) as error:
                cause = getattr(error, "reason", error)  # of a URLError
                if not isinstance(cause, ConnectionRefusedError):
                    kind = TimeoutError if isinstance(cause, TimeoutError) else ConnectionError
                    sentence = f"Expected an answer from {self.address} within {self.timeout:g} s"
                    raise kind(f"{sentence}. Received: {cause!r}") from None
                why = "the connection is refused. Start the server, or check the address."
            except ValueError:
                sentence = f"Expected JSON of a model server at {self.address}, of less than {_MOST_BYTES:,} bytes."
                raise RuntimeError(sentence) from None
        raise ConnectionError(f"Expected an answer of {self.address}. Received: none to {attempt + 1} requests: {why}")


def _column(texts: Iterable[str | bytes]) -> list[str | dict]:
    found = None if isinstance(texts, str | bytes) else list(texts)
    if found is None or not all(isinstance(text, str | bytes) for text in found):
        raise ValueError(f"Expected a list of strings. Received: {str(texts)[:80]}")
    return [{"b64": base64.b64encode(text).decode()} if isinstance(text, bytes) else text for text in found]
