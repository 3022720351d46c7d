"""What both interfaces of a server share: the model, the request queue and the metrics."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from keras_attn.serving.dev_server.batching import Batcher
from keras_attn.serving.dev_server.metrics import Metrics
from keras_attn.serving.dev_server.versions import Versions


@dataclass(frozen=True)
class Service:
    versions: Versions
    batcher: Batcher
    metrics: Metrics

    @contextlib.contextmanager
    def request(self, api: str) -> Iterator[None]:
        """A context for a Predict request, which is counted, and admitted or refused."""
        with self.metrics.request(api), self.batcher.admit():
            yield
