"""`keras-attn serve` in processes of their own, over REST, by requests as others send them and by our client."""

import concurrent.futures
import contextlib
import json
import os
import resource
import shutil
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn.cli.serve import main
from keras_attn.serving.client import Client
from tests.serving import served

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the server runs on TensorFlow")


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
        (b'{"inputs": {"\xff": ["x"]}}', "the inputs by name: text. Received: "),
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
        ([version.parent, "--port", live.rest.rpartition(":")[2]], 2, ", Address already in use"),
        ([version.parent, "--host", "192.0.2.1"], 2, "a host and a port to listen at. Received: 192.0.2.1:8501, "),
        ([version.parent, "--name", "a/b"], 2, "a --name without / and :"),
    ):
        assert main([str(argument) for argument in arguments]) == status
        said = capsys.readouterr().err.splitlines()
        assert said[-1].startswith("keras-attn serve: ")
        assert sentence in said[-1]


# Our client.


@pytest.fixture
def client(live):
    return Client(live.rest, live.name, batch_size=3)


def test_the_client_gets_translations_and_scores_in_order(client):
    texts = ["ein Hund läuft", b"zwei \xff Hunde", "", "😀"] + [f"Satz {n}" for n in range(7)]
    found = client.translate(texts)
    # The model's upper case is ASCII's, and it counts bytes.
    raw = [text if isinstance(text, bytes) else text.encode() for text in texts]
    assert [translation.text for translation in found] == [text.upper().decode(errors="replace") for text in raw]
    assert [translation.score for translation in found] == [-len(text) for text in raw]
    sources, targets = ["a", "bb", "ccc", "dddd"], ["ee", "", "f", "ggggg"]
    assert client.score(sources, targets) == [(-5.0, 2), (-2.0, 0), (-5.0, 1), (-14.0, 5)]


def test_the_client_gets_tokens_and_alignments_without_padding(client):
    long, blank, short = client.translate_n_best(["ein Hund läuft", " ", "zwei"])
    best, second = long.n_best
    assert (best.text, second.text, best.score, second.score) == ("läuft Hund ein", "ein Hund läuft", -0.5, -1.5)
    assert (long.text, long.tokens, long.score) == (best.text, best.tokens, best.score)
    assert long.source_tokens == ("ein", "Hund", "läuft", "</s>")
    assert long.tokens == ("läuft", "Hund", "ein", "</s>")
    backwards = [[0, 0, 0.75, 0.25], [0, 0.75, 0, 0.25], [0.75, 0, 0, 0.25], [0, 0, 0, 1]]
    np.testing.assert_array_equal(long.alignment, backwards)
    forwards = [[0.75, 0, 0, 0.25], [0, 0.75, 0, 0.25], [0, 0, 0.75, 0.25], [0, 0, 0, 1]]
    np.testing.assert_array_equal(second.alignment, forwards)
    assert short.tokens == ("zwei", "</s>")
    np.testing.assert_array_equal(short.alignment, [[0.75, 0.25], [0, 1]])
    assert blank.text == ""


# A server of their own, in this order; the last test ends it and reads its log.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a damaged version, and folders that are no versions."""
    folder = tmp_path_factory.mktemp("own") / "m"
    served.save(folder / "1")
    for name in ("3", "-1", "x", "٣"):
        (folder / name).mkdir()
    (folder / "3" / "saved_model.pb").write_bytes(b"damaged")
    return folder


@pytest.fixture(scope="module")
def own(folder):
    flags = ("--name", "other", "--max-requests", "3", "--request-seconds", "5", "--poll-seconds", "0.05")
    with served.serving(folder, *flags) as server:
        yield server


def translation(server, path: str = "other:predict") -> str | int:
    status, answer = rest(server, path, {"inputs": ["x"]})
    return answer["outputs"]["translation"][0] if status == 200 else status


SLOW = {"signature_name": "slow", "inputs": [served.HALF_A_SECOND]}


def test_requests_beyond_the_limit_are_refused(own):
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        found = list(pool.map(lambda _: rest(own, "other:predict", SLOW), range(9)))
    assert sorted(status for status, _ in found) == [200] * 3 + [429] * 6
    sentence = "The server has 3 requests. Send this one again later."
    assert {answer["error"] for status, answer in found if status == 429} == {sentence}


def sockets(server) -> set[str]:
    found = set()
    for descriptor in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            found.add(os.readlink(descriptor))
    return {name for name in found if name.startswith("socket:")}


def test_every_answer_has_a_time_limit(own):
    """A run that does not end, a client whose body never comes, and one that takes no answers."""
    before = sockets(own)
    with connect(own) as silent, connect(own) as deaf:
        until(lambda: len(sockets(own) - before) == 2)
        accepted = sockets(own) - before
        silent.sendall(b"POST /v1/models/other:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        deaf.setblocking(False)
        deaf.send(b"GET /v1/models/other/metadata HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)
        begin = time.monotonic()
        status, answer = rest(own, "other:predict", {"signature_name": "slow", "inputs": ["100000000"]})
        assert (status, time.monotonic() - begin < 9) == (504, True)
        assert "within 5 s. It took longer." in answer["error"]
        assert translation(own) == "X", "the run was stopped"
        assert silent.recv(100).startswith(b"HTTP/1.1 504 ")
        silent.close()  # for whose body aiohttp would wait 10 s longer
        until(lambda: not sockets(own) & accepted)
        deaf.setblocking(True)
        received = []
        with contextlib.suppress(ConnectionResetError):
            while part := deaf.recv(2**20):
                received.append(part)
        assert b"".join(received).count(b"HTTP/1.1 200") < 2000


def test_without_descriptors_it_goes_on(own):
    pid, number = own.process.pid, resource.RLIMIT_NOFILE
    before, used = resource.prlimit(pid, number), len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, number, (used + 4, before[1]))
    connections = [connect(own) for _ in range(20)]
    time.sleep(1.5)  # asyncio tries again after a second
    resource.prlimit(pid, number, before)
    for connection in connections:
        connection.close()
    until(lambda: translation(own) == "X")


def test_versions_come_and_go(own, folder, tmp_path):
    """A FIFO, whose opening would never end, is left out."""
    assert translation(own, "other/versions/1:predict") == "X"
    served.save(tmp_path / "4", prefix="4 ")
    (tmp_path / "4").rename(folder / "4")
    until(lambda: translation(own) == "4 X")
    assert translation(own, "other/versions/1:predict") == 404
    shutil.copytree(folder / "1", tmp_path / "5", ignore=lambda *_: ["saved_model.pb"])
    os.mkfifo(tmp_path / "5" / "saved_model.pb")
    (tmp_path / "5").rename(folder / "5")
    (folder / "4").rename(tmp_path / "4")
    until(lambda: translation(own) == "X")
    (folder / "1").rename(tmp_path / "1")
    until(lambda: translation(own) == 404)
    (tmp_path / "1").rename(folder / "1")
    until(lambda: translation(own) == "X")


def test_requests_that_are_here_are_answered_at_the_end(own):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(rest, own, "other:predict", SLOW) for _ in range(2)]
        time.sleep(0.3)
        own.process.terminate()
        assert own.process.wait(20) == 0
        assert [answer.result()[0] for answer in answers] == [200, 200]
    log = own.process.stdout.read()
    assert log.count("Version 5 of other is left out") == 1
    assert "is a FIFO or a device" in log
    assert "Version 1 of other has gone, and no other loads." in log
    assert "Shutting down" in log
    assert log.count("out of system resource") == log.count("Traceback") == 1
