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
from collections.abc import Callable, Iterable
from typing import NamedTuple

from keras_attn.serving.n_best import N_BEST, from_row
from keras_attn.translation import Translation

_MOST_BYTES = 2**28  # of an answer
_ERRORS = {400: ValueError, 403: ValueError, 404: ValueError, 413: ValueError, 408: TimeoutError, 504: TimeoutError}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A refusal of redirects, which would send a GET without the texts."""

    def redirect_request(self, *_):
        return None


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)  # without proxies


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
        if not _is_address(self.address):
            raise ValueError(f"Expected an address such as http://localhost:8501. Received: {self.address!r}")
        if not (self.retries >= 0 and self.batch_size >= 1 and (self.timeout or 0) > 0):
            received = f"{self.retries}, {self.batch_size}, {self.timeout}"
            raise ValueError(f"Expected retries >= 0, batch_size >= 1, timeout > 0. Received: {received}")
        path = urllib.parse.quote(self.model, safe="") + ("" if self.version is None else f"/versions/{self.version}")
        self._url = f"{self.address.rstrip('/')}/v1/models/{path}:predict"

    def translate(self, texts: Iterable[str | bytes]) -> list[Translation]:
        """Returns the best translation of each text, with its score. A text may be bytes that are not UTF-8."""

        def make(text, score):
            return Translation(_string(text), score=float(score))

        return self._predict("serving_default", {"text": texts}, make, "translation", "score")

    def translate_n_best(self, texts: Iterable[str | bytes]) -> list[Translation]:
        """Returns the best translation of each text with its tokens and alignment, and all hypotheses in `n_best`.

        `n_best` is empty if the model was exported for one hypothesis. The translation of a blank text has neither
        tokens nor an alignment.
        """

        def make(hypotheses, *others):
            return from_row(list(map(_string, hypotheses)), *others)

        return self._predict("translate_n_best", {"text": texts}, make, *N_BEST)

    def score(self, sources: Iterable[str | bytes], targets: Iterable[str | bytes]) -> list[PairScore]:
        """Returns the log-probability of each target as the translation of its source."""

        def make(log_prob, length):
            return PairScore(float(log_prob), int(length))

        return self._predict("score", {"source": sources, "target": targets}, make, "log_prob", "lengths")

    def _predict(self, signature: str, inputs: dict[str, Iterable], make: Callable, *outputs: str) -> list:
        """Returns what `make` returns for the values of the outputs, for each row of the inputs."""
        columns = {name: _column(texts) for name, texts in inputs.items()}
        count, *others = {len(column) for column in columns.values()}
        if others:
            raise ValueError(f"Expected a target for each source. Received: {count} and {others[0]}")
        rows = []
        for n in range(0, count, self.batch_size):
            batch = {name: column[n : n + self.batch_size] for name, column in columns.items()}
            answer = self._send({"signature_name": signature, "inputs": batch})
            try:
                found = [make(*row) for row in zip(*(answer["outputs"][name] for name in outputs), strict=True)]
                if len(found) != min(self.batch_size, count - n):
                    raise ValueError("other texts")
                rows += found
            except (LookupError, TypeError, ValueError):
                sentence = f"Expected a translator of keras_attn, which gives {', '.join(outputs)} of each text"
                raise RuntimeError(f"{sentence}. Received: {str(answer)[:80]}") from None
        return rows

    def _send(self, content: dict) -> dict:
        request = urllib.request.Request(self._url, json.dumps(content).encode(), {"Content-Type": "application/json"})
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(random.uniform(0, min(5.0, 0.05 * 2**attempt)))
            try:
                with _OPENER.open(request, timeout=self.timeout) as answer:
                    content = answer.read(_MOST_BYTES)
                    if answer.length and len(content) < _MOST_BYTES:
                        raise http.client.IncompleteRead(content, answer.length)
                    return json.loads(content)
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


def _is_address(address: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(address)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (AttributeError, ValueError):  # such as a port that is no number
        return False
    return bool(known) and not (parts.username or any(one in "?#" or one.isspace() for one in address))


def _string(text) -> str:
    if not isinstance(text, str):
        raise TypeError("a text that is no string")
    return text


def _column(texts: Iterable[str | bytes]) -> list[str | dict]:
    found = None if isinstance(texts, str | bytes) else list(texts)
    if found is None or not all(isinstance(text, str | bytes) for text in found):
        raise ValueError(f"Expected a list of strings. Received: {str(texts)[:80]}")
    return [{"b64": base64.b64encode(text).decode()} if isinstance(text, bytes) else text for text in found]
