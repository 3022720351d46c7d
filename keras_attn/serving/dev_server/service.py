"""What the two interfaces of a server have in common: its model, its queue and its counts."""

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
        """Around a Predict request: counted, and let in or refused."""
        with self.metrics.request(api), self.batcher.admit():
            yield
