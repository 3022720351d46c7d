"""The metrics of a server, for Prometheus."""

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram

from keras_attn.serving.dev_server.errors import RequestError

if TYPE_CHECKING:
    from keras_attn.serving.dev_server.batching import Batcher
    from keras_attn.serving.dev_server.versions import Versions

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Metrics in a registry of their own, so that one process can run several servers."""

    def __init__(self):
        self._registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self._registry)

        def made(kind, name, text, labels=(), **more):
            return kind(f"keras_attn_serve_{name}", text, labels, registry=self._registry, **more)

        self._requests = made(Counter, "requests", "Predict requests answered or refused.", ("api", "code"))
        self._seconds = made(Histogram, "request_seconds", "From arrival to answer.", ("api",), buckets=_SECONDS)
        sizes = [2**n for n in range(11)]
        self._rows = made(Histogram, "batch_rows", "Rows that the model ran at once.", buckets=sizes)
        self._present = made(Gauge, "requests_present", "Requests that wait, run or are written now.")
        self._version = made(Gauge, "model_version", "The version that is served.", ("model",))

    def watch(self, versions: "Versions", batcher: "Batcher") -> None:
        self._present.set_function(lambda: batcher.present)
        self._version.labels(versions.name).set_function(lambda: versions.current.version)

    def batch(self, rows: int) -> None:
        self._rows.observe(rows)

    @contextlib.contextmanager
    def request(self, api: str) -> Iterator[None]:
        """Counts and times a request, by interface and status code."""
        begin, code = time.perf_counter(), "CANCELLED"  # if the client disconnects, no except clause runs
        try:
            yield
            code = "OK"
        except RequestError as error:
            code = error.code
            raise
        except Exception:
            code = "INTERNAL"
            raise
        finally:
            self._requests.labels(api, code).inc()
            self._seconds.labels(api).observe(time.perf_counter() - begin)

    def page(self) -> bytes:
        return prometheus_client.generate_latest(self._registry)
