"""The development server under versions that come and go, odd and slow requests, at its limits and for long."""

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import uuid
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from keras_attn.requirements import is_installed
from tests import hostile
from tests.serving import served

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not (is_installed("aiohttp") and is_installed("tensorflow")), reason="keras_attn[serving]"),
]

ROOT = Path(__file__).parents[2]
LIMIT = 2**22  # bytes of a request
ANSWER_LIMIT = 2**25  # bytes of values
SLOW_LOAD = """
import sys, time
import tensorflow as tf
load = tf.compat.v1.saved_model.load
def slow(session, tags, folder):
    if folder.endswith(sys.argv[1]):
        print("loading", flush=True)
        time.sleep(600)
    return load(session, tags, folder)
tf.compat.v1.saved_model.load = slow
from keras_attn.cli.serve import main
sys.exit(main([sys.argv[2], "--port", "0", "--poll-seconds", "0.05"]))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return served.save(tmp_path_factory.mktemp("saved") / "1")


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    shutil.copytree(saved, tmp_path / "m" / "1")
    return tmp_path / "m"


def ask(server, body: bytes | None, path: str = ":predict") -> tuple[int, dict]:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.rest).netloc, timeout=300)
    connection.request("GET" if body is None else "POST", f"/v1/models/m{path}", body)
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    return answer.status, content


def is_well(server) -> bool:
    return ask(server, b'{"inputs": ["x"]}') == (200, {"outputs": {"translation": ["X"], "score": [-1.0]}})


def begin(server, content: bytes) -> socket.socket:
    """A connection on which these bytes have been sent."""
    parts = urllib.parse.urlsplit(server.rest)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=60)
    connection.sendall(content)
    return connection


# --- versions


class VersionFolder(RuleBasedStateMachine):
    """Good and damaged versions come and go; the newest good one is served, or none."""

    saved: Path
    root: Path

    def __init__(self):
        super().__init__()
        self.folder, self.good, self.used = self.root / uuid.uuid4().hex / "m", {1}, {1}
        shutil.copytree(self.saved, self.folder / "1")
        self.open = contextlib.ExitStack()
        self.server = self.open.enter_context(served.serving(self.folder, "--poll-seconds", "0.02"))

    @rule(
        number=st.integers(1, 30),
        kind=st.sampled_from(["good", "good", "empty", "truncated", "noise", "page", "FIFO", "missing"]),
    )
    def add(self, number, kind):
        if number in self.used:
            return
        staged = Path(shutil.copytree(self.saved, self.folder.parent / "staged"))
        graph, content = staged / "saved_model.pb", (staged / "saved_model.pb").read_bytes()
        graph.unlink()
        if kind == "FIFO":
            os.mkfifo(graph)
        elif kind == "good":
            graph.write_bytes(content)
            self.good.add(number)
        elif kind != "missing":
            graph.write_bytes(hostile.damaged(content, kind, random.Random(number)))
        self.used.add(number)
        staged.rename(self.folder / str(number))

    @precondition(lambda self: self.good)
    @rule(data=st.data())
    def remove(self, data):
        number = data.draw(st.sampled_from(sorted(self.good)))
        (self.folder / str(number)).rename(self.folder.parent / f"removed-{number}")
        self.good.discard(number)

    @rule()
    def look(self):
        """Waits, for a version that was passed over while a newer one was served may be loaded only now."""
        end, expected = time.monotonic() + 30, str(max(self.good)) if self.good else None
        while True:
            status, answer = ask(self.server, None, "")
            if (answer["model_version_status"][0]["version"] if status == 200 else None) == expected:
                break
            assert time.monotonic() < end, (answer, expected)
        assert not self.good or is_well(self.server)

    def teardown(self):
        self.look()
        self.open.close()


def test_versions_come_and_go_in_any_order(saved, tmp_path):
    machine = type("Machine", (VersionFolder,), {"saved": saved, "root": tmp_path})
    run_state_machine_as_test(machine, settings=settings(max_examples=6, stateful_step_count=15, **hostile.HYPOTHESIS))


@pytest.mark.parametrize("slow", ["1", "2"], ids=["the first", "another"])
def test_sigterm_ends_it_while_a_version_loads(folder, saved, slow):
    line = [sys.executable, "-c", SLOW_LOAD, f"/{slow}", str(folder)]
    environment = os.environ | {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(line, cwd=ROOT, env=environment, **pipes) as process:
        if slow == "2":
            assert " is served on " in process.stdout.readline()
            shutil.copytree(saved, folder / "2")
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


# --- requests


POST = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("first", [b"", b"GET / HT", POST])
def test_headers_have_thirty_seconds_also_on_the_first_connection(folder, first):
    with served.serving(folder) as server, begin(server, first) as connection:
        started = time.monotonic()
        assert connection.recv(100) == b""
        assert 25 < time.monotonic() - started < 40
        assert is_well(server)


@pytest.mark.parametrize("first", ["SIGTERM", "too large", "gone"])
def test_a_server_without_any_earlier_request(folder, first):
    with served.serving(folder) as server:
        if first == "too large":
            assert ask(server, bytes(LIMIT + 1))[0] == 413
        if first == "gone":
            begin(server, POST + b"Content-Length: 9\r\n\r\n{").close()
        assert first == "SIGTERM" or is_well(server)
        server.process.terminate()
        assert server.process.wait(10) == 0
        assert "Traceback" not in server.process.stdout.read()


def test_sizes_at_their_limits(folder):
    def body(size: int) -> bytes:
        return b'{"inputs": ["x"], "other": "%s"}' % (b"x" * (size - len(b'{"inputs": ["x"], "other": ""}')))

    def values(extra: int) -> tuple[bytes, int]:
        """A text of 2,046 words and more letters, and the bytes of `translate_n_best`'s answer."""
        words, tokens = 2046, 2047
        text = " ".join(["x" * (1 + extra), *["x"] * (words - 1)])
        strings = 2 * len(text) + 3 * (words + extra + len("</s>"))
        return text.encode(), strings + 2 * 4 + 4 + 2 * 4 + 2 * 4 * tokens * tokens

    extra = (ANSWER_LIMIT - values(0)[1]) // 5
    assert values(extra)[1] <= ANSWER_LIMIT < values(extra + 1)[1]
    with served.serving(folder, "--request-seconds", "300") as server:
        for size, status in ((LIMIT - 1, 200), (LIMIT + 1, 413)):
            assert ask(server, body(size))[0] == status
        for more, status in ((extra, 200), (extra + 1, 400)):
            request = b'{"signature_name": "translate_n_best", "inputs": ["%s"]}' % values(more)[0]
            found, answer = ask(server, request)
            assert found == status, str(answer)[:200]
        assert f"at most {ANSWER_LIMIT:,} bytes" in answer["error"]
        assert is_well(server)


def test_memory_and_descriptors_do_not_grow(folder):
    """A soak: good and bad requests, whole and cut off, with the slopes of what the process holds."""
    draw, taken = random.Random(0), []
    with served.serving(folder) as server:
        process = Path("/proc") / str(server.process.pid)
        for number in range(8000):
            content = draw.choice(hostile.REQUESTS)
            if number % 3 == 0:
                content = hostile.damaged(content, draw.choice(hostile.DAMAGES), draw)
            if number % 50 == 0:  # its client goes before the answer
                begin(server, POST + b"Content-Length: %d\r\n\r\n%b" % (len(content), content)).close()
            else:
                status, answer = ask(server, content)
                assert status == 200 or (status == 400 and answer["error"]), (status, content)
            if number % 200 == 199:
                memory = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                taken.append((memory, len(list((process / "fd").iterdir()))))
    memory, descriptors = np.array(taken[len(taken) // 4 :]).T
    numbers = 200 * np.arange(len(memory))
    assert np.polyfit(numbers, memory, 1)[0] < 1000, f"bytes a request: {memory}"
    assert abs(np.polyfit(numbers, descriptors, 1)[0]) < 0.001, descriptors
