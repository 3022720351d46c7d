"""`keras-attn serve` in processes of their own, over REST, without our client."""

import concurrent.futures
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import time
import urllib.error
import urllib.parse
import urllib.request

import keras
import pytest

from keras_attn.cli.serve import main
from tests.serving import served

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the server is TensorFlow's alone; it is tested on that backend"
)


def rest(server, path: str, content=None, **headers) -> tuple[int, dict]:
    """Status and JSON of a path below /v1/models."""
    body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
    request = urllib.request.Request(f"{server.rest}/v1/models/{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def connect(server) -> socket.socket:
    parts = urllib.parse.urlsplit(server.rest)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def until(condition, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def ended(server, number=signal.SIGTERM) -> str:
    """Sends the signal; returns the log."""
    server.process.send_signal(number)
    assert server.process.wait(20) == 0
    return server.process.stdout.read()


# Requests that are answered.

TEXTS = {"text": ["ein Hund", {"b64": "/2E="}, ""]}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"inputs": TEXTS}, {"outputs": {"translation": ["EIN HUND", "\ufffdA", ""], "score": [-8.0, -2.0, 0.0]}}),
        ({"inputs": ["é"], "signature_name": ""}, {"outputs": {"translation": ["é"], "score": [-2.0]}}),
        ({"instances": ["a", "b"]}, {"predictions": [{"translation": t, "score": -1.0} for t in "AB"]}),
        ({"instances": [{"text": "a"}]}, {"predictions": [{"translation": "A", "score": -1.0}]}),
        (b'\xef\xbb\xbf{"inputs": ["\xff\\u0000"]}', {"outputs": {"translation": ["\ufffd\0"], "score": [-2.0]}}),
        ({"inputs": []}, {"outputs": {"translation": [], "score": []}}),
        ({"signature_name": "translate_with_options", "inputs": ["four"]}, {"outputs": [2.0]}),  # the default of 0.5
        (
            {"signature_name": "translate_with_options", "inputs": {"text": ["four"], "length_penalty": 0.1}},
            {"outputs": [0.4]},
        ),
        (
            {"signature_name": "translate_token_ids", "inputs": {"token_ids": [[5, 7], [11, 13]], "lengths": [1, 2]}},
            {"outputs": {"token_ids": [[7, 5], [13, 11]], "lengths": [1, 2]}},
        ),
        (
            {"signature_name": "score", "instances": [{"source": "ein", "target": "a"}]},
            {"predictions": [{"log_prob": -5.0, "lengths": 1}]},
        ),
    ],
)
def test_rows_and_columns_are_answered(live, content, expected):
    assert rest(live, "mirror:predict", content) == (200, expected)
    assert rest(live, "mirror/versions/1:predict", content) == (200, expected)


def test_status_and_metadata(live):
    state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert rest(live, "mirror") == rest(live, "mirror/versions/1") == (200, {"model_version_status": [state]})
    status, answer = rest(live, "mirror/metadata")
    assert (status, answer["model_spec"]) == (200, {"name": "mirror", "signature_name": "", "version": "1"})
    source = answer["metadata"]["signature_def"]["signature_def"]["score"]["inputs"]["source"]
    assert source["dtype"] == "DT_STRING"
    assert source["tensor_shape"]["dim"] == [{"size": "-1", "name": ""}]


def test_clients_at_once_get_their_own_answers(live):
    def ask(client: int) -> None:
        texts = [f"client {client} row {row}" for row in range(1 + client % 4)]
        status, answer = rest(live, "mirror:predict", {"inputs": texts})
        assert (status, answer["outputs"]["translation"]) == (200, [text.upper() for text in texts])

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        list(pool.map(ask, range(60)))


# Requests that are refused.

IDS = {"signature_name": "translate_token_ids"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "a body of JSON"),
        (b"[" * 90_000, "a body of JSON"),
        ([1], '"instances" or "inputs". Received: [1]'),
        ({"instances": ["x"], "inputs": ["x"]}, '"instances" or "inputs"'),
        ({"inputs": ["x"], "signature_name": "none"}, "among: score, serving_default"),
        ({"inputs": ["x"], "signature_name": ["score"]}, "among: score, serving_default"),
        ({"instances": []}, "a list with rows. Received: []"),
        ({"instances": [{"text": "x"}, {"other": "y"}]}, "rows with the same names"),
        ({"inputs": {"other": ["x"]}}, "the inputs by name: text. Received: other"),
        ({"inputs": ["x"], "signature_name": "score"}, "the inputs by name: source, target. Received: no names"),
        ({"inputs": [["x"]]}, "text to be string of shape (None,). Received: [['x']]"),
        ({"inputs": "x"}, "text to be string"),
        ({"inputs": [3]}, "text to be string"),
        ({"inputs": ["\ud800"]}, "text to be string"),
        ({"inputs": [{"b64": "a!"}]}, "text to be string"),
        ({"inputs": [["x"], ["y", "z"]]}, "text to be string"),
        ({"inputs": json.loads("[" * 200 + "]" * 200)}, "text to be string"),
        ({"inputs": {"token_ids": [[2**31]], "lengths": [1]}} | IDS, "token_ids to be int32 of shape (None, None)"),
        ({"inputs": {"token_ids": [[1]], "lengths": [1.0]}} | IDS, "lengths to be int32"),
        ({"inputs": {"token_ids": [[1]], "lengths": [True]}} | IDS, "lengths to be int32"),
        ({"inputs": {"token_ids": [[1]], "lengths": [1, 2]}} | IDS, "as many rows of each input"),
        ({"inputs": {"text": ["x"], "length_penalty": 1e39}, "signature_name": "translate_with_options"}, "float32"),
        ({"instances": [{"text": "five"}], "signature_name": "slow"}, "The model cannot run this: "),
    ],
)
def test_a_wrong_request_is_refused_in_a_sentence(live, content, sentence):
    status, answer = rest(live, "mirror:predict", content)
    assert (status, list(answer)) == (400, ["error"])
    assert sentence in answer["error"]


@pytest.mark.parametrize(
    ("path", "content", "status", "sentence"),
    [
        ("other:predict", {"inputs": ["x"]}, 404, "Servable not found for request: Latest(other)"),
        ("mirror/versions/7:predict", {"inputs": ["x"]}, 404, "Specific(mirror, 7)"),
        ("mirror/versions/7", None, 404, "Specific(mirror, 7)"),
        ("other/metadata", None, 404, "Latest(other)"),
        ("mirror:classify", {}, 400, "Malformed request: POST /v1/models/mirror:classify"),
        ("mirror:predict", None, 400, "Malformed request: GET"),
        ("mirror:predict", {"inputs": ["x" * 5_000_000]}, 413, "Maximum request body size 4194304 exceeded"),
    ],
)
def test_a_wrong_path_or_size_is_refused_in_a_sentence(live, path, content, status, sentence):
    found, answer = rest(live, path, content)
    assert found == status
    assert sentence in answer["error"]
    assert rest(live, "mirror:predict", {"inputs": ["x"]})[0] == 200


def test_another_host_is_refused(live):
    """A page of another site may know a name that leads to this machine."""
    for host, expected in (("evil.example:8501", 403), ("[::1]:1", 200), ("LOCALHOST", 200), ("[::1", 403), ("", 403)):
        status, answer = rest(live, "mirror", Host=host)
        assert status == expected, (host, answer)


def test_what_cannot_be_served_is_a_sentence(live, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")  # the command sets both
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    version = served.save(tmp_path / "models" / "1")
    damaged = tmp_path / "damaged" / "1"
    damaged.mkdir(parents=True)
    (damaged / "saved_model.pb").write_bytes(b"damaged")
    for arguments, status, sentence in (
        ([tmp_path / "none"], 2, "Expected a folder with versions of a model, such as 1/. Received: "),
        ([version], 2, "Of a version, give the folder above it."),
        ([damaged.parent, "--port", "0"], 2, "It does not load: "),
        ([version.parent, "--port", live.rest.rpartition(":")[2]], 1, "address already in use"),
        ([version.parent, "--name", "a/b"], 2, "a --name without / and :"),
    ):
        assert main([str(argument) for argument in arguments]) == status
        said = capsys.readouterr().err.splitlines()
        assert said[-1].startswith("keras-attn serve: ")
        assert sentence in said[-1]


# Servers of their own.


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return served.save(tmp_path_factory.mktemp("saved") / "1")


@pytest.fixture
def folder(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "m" / "1")
    return tmp_path / "m"


def translation(server, path: str = "m:predict") -> str | int:
    status, answer = rest(server, path, {"inputs": ["x"]})
    return answer["outputs"]["translation"][0] if status == 200 else status


@pytest.mark.slow
def test_versions_come_and_go(folder, tmp_path):
    """A FIFO, whose opening would never end, and a damaged version are left out."""
    (folder / "3").mkdir()
    (folder / "3" / "saved_model.pb").write_bytes(b"damaged")
    for name in ("-1", "x", "٣"):
        (folder / name).mkdir()
    with served.serving(folder, "--poll-seconds", "0.05") as server:
        assert translation(server, "m/versions/1:predict") == "X"
        served.save(tmp_path / "4", prefix="4 ")
        (tmp_path / "4").rename(folder / "4")
        until(lambda: translation(server) == "4 X")
        assert translation(server, "m/versions/1:predict") == 404
        shutil.copytree(folder / "1", tmp_path / "5", ignore=lambda *_: ["saved_model.pb"])
        os.mkfifo(tmp_path / "5" / "saved_model.pb")
        (tmp_path / "5").rename(folder / "5")
        (folder / "4").rename(tmp_path / "4")
        until(lambda: translation(server) == "X")
        (folder / "1").rename(tmp_path / "1")
        until(lambda: translation(server) == 404)
        (tmp_path / "1").rename(folder / "1")
        until(lambda: translation(server) == "X")
        log = ended(server)
    assert log.count("Version 5 of m is left out") == 1
    assert "is a FIFO or a device" in log
    assert "Version 1 of m has gone, and no other loads." in log


@pytest.mark.slow
def test_a_full_queue_and_the_end(folder):
    slow = {"signature_name": "slow", "inputs": [served.SECOND]}
    with (
        served.serving(folder, "--max-requests", "3") as server,
        concurrent.futures.ThreadPoolExecutor(9) as pool,
    ):
        found = list(pool.map(lambda _: rest(server, "m:predict", slow), range(9)))
        assert sorted(status for status, _ in found) == [200] * 3 + [429] * 6
        sentence = "The server has 3 requests. Send this one again later."
        assert {answer["error"] for status, answer in found if status == 429} == {sentence}
        answers = [pool.submit(rest, server, "m:predict", slow) for _ in range(2)]
        time.sleep(0.5)
        log = ended(server)
        assert [answer.result()[0] for answer in answers] == [200, 200]
    assert "Shutting down" in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_every_answer_has_a_time_limit(folder):
    with served.serving(folder, "--request-seconds", "2", "--name", "other") as server:
        begin = time.monotonic()
        status, answer = rest(server, "other:predict", {"signature_name": "slow", "inputs": ["100000000"]})
        assert (status, time.monotonic() - begin < 6) == (504, True)
        assert "within 2 s. It took longer." in answer["error"]
        assert translation(server, "other:predict") == "X"  # the run was stopped
        with connect(server) as silent:  # its body never comes
            silent.sendall(b"POST /v1/models/other:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            assert silent.recv(100).startswith(b"HTTP/1.1 504 ")
        with connect(server) as deaf:  # it takes no answer
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
            deaf.setblocking(False)
            request = b"GET /v1/models/other/metadata HTTP/1.1\r\nHost: localhost\r\n\r\n"
            deaf.send(request * 2000)
            time.sleep(5)
            deaf.setblocking(True)
            received = []
            with contextlib.suppress(ConnectionResetError):
                while part := deaf.recv(2**20):
                    received.append(part)
            assert b"".join(received).count(b"HTTP/1.1 200") < 2000
        assert "Traceback" not in ended(server, signal.SIGINT)


@pytest.mark.slow
def test_out_of_descriptors_it_logs_once_and_goes_on(folder):
    with served.serving(folder) as server:
        used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 4, used + 4))
        connections = [connect(server) for _ in range(20)]
        time.sleep(3)
        for connection in connections:
            connection.close()
        until(lambda: translation(server) == "X")
        log = ended(server)
    assert log.count("out of system resource") == 1
    assert log.count("Traceback") == 1
