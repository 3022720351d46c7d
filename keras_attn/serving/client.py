"""A client for a served translator, of a stock `tensorflow_model_server` or of `keras-attn serve`.

```python
client = Client("http://localhost:8501", "rnnsearch")  # or "grpc://localhost:8500"
client.translate(["ein Hund läuft ."])[0].text  # 'a dog runs .'
```

It returns what `Translator.generate` returns, as far as the server sends it. It needs neither Keras nor TensorFlow:
REST needs NumPy alone, gRPC the packages of the extra "serving" (of which tensorflow-serving-api brings TensorFlow).
"""

import dataclasses
import json
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_attn.serving.transports import ServerUnavailable, transport
from keras_attn.translation import Translation

_REQUEST_BYTES = 2**20  # as JSON, which has up to 12 for a character; a quarter of the limit of `keras-attn serve`


class PairScore(NamedTuple):
    """The log-probability `log_prob` of a target's tokens, given its source, and their number `length`."""

    log_prob: float
    length: int


class Client:
    """Translates through a server. Several threads may use one client.

    A long list is sent in several requests, one after the other. A request that the server did not accept is sent
    again: the server does not listen yet, shuts down or is overloaded (refused connections, HTTP's 429 and 503, gRPC's
    UNAVAILABLE and RESOURCE_EXHAUSTED). The client waits a random time of up to 0.1, 0.2, 0.4, ... seconds, at most 5,
    between attempts. A request that the server accepted and did not finish in time is not sent again.

    Args:
        address: `http://HOST:PORT` or `https://HOST:PORT` for REST, `grpc://HOST:PORT` for gRPC (which needs
            `pip install "keras_attn[serving]"`). Proxies are not used.
        model: The model's name on the server.
        version: The number of a version; None: the one that the server chooses.
        timeout: Seconds that one request may take.
        retries: How often a request is sent again, at most.
        batch_size: Texts in one request, at most; a request also has at most about 1 MB of text.

    Raises:
        ValueError: if the address is malformed, an option is out of range, or the server refuses a request: because of
            an unknown model, version or signature, or because it is too large.
        ConnectionError: if the server accepted none of the attempts at a request.
        TimeoutError: if a request took too long.
        RuntimeError: if the server failed, or is no model server.
        ImportError: if the packages for gRPC are not installed.

    Example:
        >>> with keras_attn.serving.client.Client("http://localhost:8501", "rnnsearch") as client:
        ...     [translation.text for translation in client.translate(["ein Hund läuft ."])]
        ['a dog runs .']
    """

    def __init__(
        self,
        address: str,
        model: str,
        *,
        version: int | None = None,
        timeout: float = 30.0,
        retries: int = 6,
        batch_size: int = 64,
    ):
        for name, value, least in (("retries", retries, 0), ("batch_size", batch_size, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"Expected {name} to be a whole number of at least {least}. Received: {value!r}")
        if isinstance(version, bool) or not (version is None or isinstance(version, int)):
            raise ValueError(f"Expected version to be a whole number or None. Received: {version!r}")
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
            raise ValueError(f"Expected a timeout above 0 seconds. Received: {timeout!r}")
        self.address = address
        self.model = model
        self.timeout = timeout
        self.retries = retries
        self.batch_size = batch_size
        self._transport = transport(address, model, version, timeout)

    def translate(self, texts: Sequence[str | bytes]) -> list[Translation]:
        """Returns the best translation of each text, with its score. A text may be bytes that are not UTF-8."""
        translations = []
        for batch in self._batches(_string_list(texts)):
            answer = self._predict("serving_default", {"text": batch}, ("translation", "score"))
            pairs = zip(answer["translation"], answer["score"], strict=True)
            translations += [Translation(_text(text), score=float(score)) for text, score in pairs]
        return translations

    def translate_n_best(self, texts: Sequence[str | bytes]) -> list[Translation]:
        """Returns the best translation of each text with its tokens and alignment, and all hypotheses in `n_best`.

        `n_best` is empty if the model was exported for one hypothesis. The translation of a blank text has neither
        tokens nor an alignment.
        """
        outputs = ("translations", "scores", "source_tokens", "source_lengths")
        outputs += ("target_tokens", "target_lengths", "alignments")
        translations = []
        for batch in self._batches(_string_list(texts)):
            answer = self._predict("translate_n_best", {"text": batch}, outputs)
            for row in zip(*(answer[name] for name in outputs), strict=True):
                best, *others = _hypotheses(*row)
                several = (best, *others) if len(row[0]) > 1 and best.source_tokens else ()
                translations.append(dataclasses.replace(best, n_best=several))
        return translations

    def score(self, sources: Sequence[str | bytes], targets: Sequence[str | bytes]) -> list[PairScore]:
        """Returns the log-probability of each target as the translation of its source."""
        sources, targets = _string_list(sources), _string_list(targets)
        if len(sources) != len(targets):
            raise ValueError(f"Expected a target for each source. Received: {len(sources)} and {len(targets)}")
        scores = []
        for batch in self._batches(list(zip(sources, targets, strict=True))):
            source, target = map(list, zip(*batch, strict=True))
            answer = self._predict("score", {"source": source, "target": target}, ("log_prob", "lengths"))
            pairs = zip(answer["log_prob"], answer["lengths"], strict=True)
            scores += [PairScore(float(log_prob), int(length)) for log_prob, length in pairs]
        return scores

    def signatures(self) -> list[str]:
        """Returns the names of the model's signatures."""
        return self._retry(self._transport.signatures)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def _batches(self, items: Sequence) -> Iterator[list]:
        batch, size = [], 0
        for item in items:
            more = sum(map(_json_bytes, item if isinstance(item, tuple) else (item,)))
            if batch and (len(batch) == self.batch_size or size + more > _REQUEST_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(item)
            size += more
        if batch:
            yield batch

    def _predict(self, signature: str, inputs: dict[str, list], outputs: tuple[str, ...]) -> dict[str, np.ndarray]:
        try:
            answer = self._retry(lambda: self._transport.predict(signature, inputs))
        except ValueError:
            if signature == "serving_default" or signature in (known := self.signatures()):
                raise
            raise ValueError(
                f"Expected {self.model!r} at {self.address} to have the signature {signature}. It has: "
                f"{', '.join(known)}. Export the model again to add it."
            ) from None
        if missing := [name for name in outputs if name not in answer]:
            raise RuntimeError(
                f"Expected {self.model!r} at {self.address} to be a translator of keras_attn. Its {signature} gives "
                f"no {', '.join(missing)}."
            )
        return answer

    def _retry(self, call):
        """The result of a call, which is repeated while the server is unavailable."""
        begin = time.monotonic()
        for attempt in range(self.retries + 1):
            try:
                return call()
            except ServerUnavailable as failure:
                if attempt == self.retries:
                    seconds = time.monotonic() - begin
                    raise ConnectionError(
                        f"Expected an answer from {self.address}. There was none to {attempt + 1} requests in "
                        f"{seconds:.1f} s: {failure}. {failure.advice}"
                    ) from None
            time.sleep(random.uniform(0, min(5.0, 0.1 * 2**attempt)))


def _hypotheses(texts, scores, source_tokens, source_length, target_tokens, target_lengths, alignments):
    """The hypotheses of a text, from arrays `K, K, S, 1, (K, T), K, (K, T, S)`, without the padding of the batch.

    A blank text has one. Otherwise there are as many as have tokens: a search may find fewer than K.
    """
    source = tuple(map(_text, source_tokens[:source_length]))
    for number, (text, score, tokens, length, alignment) in enumerate(
        zip(texts, scores, target_tokens, target_lengths, alignments, strict=True)
    ):
        if number and not length:
            continue
        yield Translation(
            _text(text),
            tokens=tuple(map(_text, tokens[:length])),
            score=float(score),
            alignment=np.asarray(alignment, "float32")[:length, :source_length] if source else None,  # (T, S)
            source_tokens=source,
        )


def _string_list(texts: Iterable) -> list:
    found = None if isinstance(texts, str | bytes) else list(texts)
    if found is None or not all(isinstance(text, str | bytes) for text in found):
        raise ValueError(f"Expected a list of strings. Received: {str(texts)[:80]}")
    return found


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _json_bytes(text: str | bytes) -> int:
    return 2 * len(text) if isinstance(text, bytes) else len(json.dumps(text))  # bytes are sent in base 64
