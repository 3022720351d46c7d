"""A server with honest clients while hostile ones attack at once, and its end by Ctrl+C at any moment."""

import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.attack.conftest import FLAGS
from tests.attack.hostile import Honest, Hostile, attacks, http_request

pytestmark = pytest.mark.slow


def test_the_honest_are_served_while_others_attack(target):
    before = target.megabytes()
    with Honest(target, clients=16) as honest, Hostile(*attacks(target)):
        time.sleep(10)
    assert not honest.errors, honest.errors[:3]
    assert np.percentile(honest.seconds, 99) < 1.0
    assert len(honest.seconds) > 100
    assert target.megabytes() - before < 1500


def start(published) -> subprocess.Popen:
    command = [sys.executable, "-m", "keras_attn", "serve", str(published), "--port", "0", "--grpc-port", "0", *FLAGS]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen, seconds: float) -> tuple[int, str]:
    """The exit status and what was written to stderr."""
    try:
        _, said = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, said


@pytest.mark.parametrize("seconds", [0.0, 1.0, 4.0])
def test_ctrl_c_while_it_starts(published, seconds):
    process = start(published)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    status, said = ended(process, 60)
    assert "Traceback" not in said
    assert status in (0, 130, -signal.SIGINT)  # the last: before Python runs any code of ours


@pytest.mark.parametrize(("busy", "count"), [(True, 1), (False, 2)])
def test_ctrl_c_while_it_serves(published, count, busy):
    """Once: what it has is answered. Twice: it ends at once."""
    process = start(published)
    address = process.stdout.readline().split(" is served on http://")[1].split()[0]
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        if busy:
            connection.sendall(http_request("small", {"inputs": ["m n o p " * 150] * 8}))
            time.sleep(0.5)
        begin = time.perf_counter()
        for _ in range(count):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        answer = connection.recv(2**16) if busy and count == 1 else b""
        status, said = ended(process, 40)
    assert "Traceback" not in said
    assert status in ((0,) if count == 1 else (0, -signal.SIGINT)), said
    if busy and count == 1:
        assert answer.startswith(b"HTTP/1.1 200")
    else:
        assert time.perf_counter() - begin < 10
