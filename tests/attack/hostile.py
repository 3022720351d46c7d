"""A server under attack, honest clients of it, and hostile ones."""

import contextlib
import dataclasses
import http.client
import itertools
import json
import os
import socket
import threading
import time
import urllib.parse
from pathlib import Path

from keras_attn.serving.client import Client
from keras_attn.training.memory import memory_mb


@dataclasses.dataclass(frozen=True)
class Target:
    """A server under attack."""

    name: str
    rest: str
    rpc: str
    pid: int
    folder: Path

    @property
    def address(self) -> tuple[str, int]:
        parts = urllib.parse.urlsplit(self.rest)
        return parts.hostname, parts.port

    def megabytes(self, name: str = "VmRSS") -> float:
        """The memory of the process: VmRSS, now; VmHWM, at most so far."""
        return memory_mb(name, self.pid)

    def raw(self, data: bytes, timeout: float = 10.0, closes: bool = False) -> bytes:
        """Sends bytes over a connection of its own; returns all that comes back until the server closes it.

        Unless the server `closes` it by itself, it learns soon that no more will be sent.
        """
        parts = []
        with contextlib.suppress(ConnectionError), socket.create_connection(self.address, timeout=0.5) as connection:
            connection.sendall(data)
            with contextlib.suppress(TimeoutError):
                parts.append(connection.recv(2**16))
            connection.settimeout(timeout)
            if not closes:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(2**16):
                parts.append(part)
        return b"".join(parts)

    def post(self, body: bytes, path: str | None = None, headers: dict[str, str] | None = None) -> tuple[int, dict]:
        """Sends a body; returns the status and the JSON of the answer."""
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        try:
            connection.request("POST", path or f"/v1/models/{self.name}:predict", body, headers or {})
            answer = connection.getresponse()
            text = answer.read()
            if answer.headers.get_content_type() != "application/json":  # of aiohttp itself
                return answer.status, {"error": text.decode()}
            return answer.status, json.loads(text)
        finally:
            connection.close()

    def predict(self, content: object) -> tuple[int, dict]:
        return self.post(json.dumps(content).encode())


class Honest:
    """Clients that translate short texts, over REST and gRPC in turn, until they are stopped.

    Their seconds are those of an idle machine: on one whose cores are shared, a part of what was measured.
    """

    def __init__(self, target: Target, clients: int = 2):
        self.seconds: list[float] = []
        self.slow: list[str] = []  # the tests that ran during the slow ones
        self.errors: list[str] = []
        self._stop = threading.Event()
        addresses = (target.rest, target.rpc)
        self._threads = [
            threading.Thread(target=self._translate, args=(Client(addresses[n % 2], target.name, retries=0),))
            for n in range(clients)
        ]

    def __enter__(self) -> "Honest":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _translate(self, client: Client) -> None:
        with client:
            while not self._stop.wait(0.1):
                begin = time.perf_counter()
                try:
                    assert len(client.translate(["zwei Hunde spielen", "ein Mann"])) == 2
                except (ValueError, RuntimeError, OSError) as error:
                    self.errors.append(str(error))
                waiting = max(1.0, os.getloadavg()[0] / os.cpu_count())  # processes for each core
                self.seconds.append((time.perf_counter() - begin) / waiting)
                if self.seconds[-1] > 1:
                    self.slow.append(f"{self.seconds[-1]:.2f} s during {os.environ.get('PYTEST_CURRENT_TEST')}")

    def check(self) -> None:
        """Every request was answered, of a hundred at least 99 within a second."""
        assert not self.errors, self.errors[:3]
        assert self.seconds
        assert len(self.slow) <= len(self.seconds) / 100 + 1, self.slow
        assert max(self.seconds) < 5, self.slow


class Hostile:
    """Threads that attack again and again until they are stopped; what they get does not matter."""

    def __init__(self, *attacks):
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(attack,)) for attack in attacks]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, attack) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError, ValueError):
                attack(self._stop)


def http_request(model: str, content: object) -> bytes:
    body = json.dumps(content)
    head = f"POST /v1/models/{model}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def attacks(target) -> list:
    """The attacks of the issue: negative axes, a huge answer, slow bodies, clients that go."""
    import grpc
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    channel = grpc.insecure_channel(target.rpc.removeprefix("grpc://"))
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    shapes = itertools.cycle([(-1024, (2**64 - 300_000_000) // 1024 - 2**63), (-5,), (2**62, 4)])

    def axes(stop):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = target.name
        request.inputs["text"].dtype = 7
        request.inputs["text"].string_val.append(b"x")
        for size in next(shapes):
            request.inputs["text"].tensor_shape.dim.add(size=size)
        with contextlib.suppress(grpc.RpcError):
            stub.Predict(request, timeout=5)
        stop.wait(0.01)

    def huge_answer(stop):
        texts = ["Mann " * 420] + ["ein Mann"] * 63
        target.predict({"signature_name": "translate_n_best", "inputs": {"text": texts}})

    def slow_bodies(stop):
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(socket.create_connection(target.address, timeout=5)) for _ in range(200)]
            for connection in connections:
                connection.sendall(http_request(target.name, {})[:-2] + b"{")
            stop.wait(2)

    def go(stop):
        with socket.create_connection(target.address, timeout=5) as connection:
            connection.sendall(http_request(target.name, {"inputs": ["m n o p " * 750] * 4}))
            stop.wait(0.3)

    return [axes, huge_answer, slow_bodies, go]
