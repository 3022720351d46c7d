"""The client, with a server whose answers a test chooses; tests/serving/test_server.py has it with a real one."""

import contextlib
import http.server
import json
import random
import time
import types

import pytest

from keras_attn.serving.client import Client
from tests.unit.absent import run_without
from tests.web_server import listening


@contextlib.contextmanager
def scripted(*answers):
    """Answers each request with the next of `answers`: a status and a JSON value, bytes, or seconds to sleep."""
    handler = type("Handler", (_Handler,), {"answers": list(answers), "requests": []})
    with listening(handler) as address:
        yield types.SimpleNamespace(address=address, requests=handler.requests)


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.requests.append((self.path, json.loads(body or b"null")))
        status, content = self.answers.pop(0)
        if status == "sleep":
            time.sleep(content)
            return
        body = content if isinstance(content, bytes) else json.dumps(content or {}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(100 if content is None else len(body)))  # None: of which it sends two
        self.send_header("Location", self.path)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture
def waits(monkeypatch):
    """The upper ends of the waits between attempts, none of them waited for."""
    found = []
    monkeypatch.setattr(random, "uniform", lambda low, high: found.append((low, high)) or 0.0)
    return found


def answer(texts, scores):
    return 200, {"outputs": {"translation": texts, "score": scores}}


GOOD = answer(["x"], [-1.5])


def test_what_the_server_could_not_take_is_sent_again_after_longer_and_longer(waits):
    with scripted((503, {"error": "shutting down."}), (429, {"error": "full."}), (503, b"<html>"), GOOD) as server:
        (found,) = Client(server.address, "m").translate(["a"])
    assert (found.text, found.score) == ("x", -1.5)
    assert waits == [(0, 0.1), (0, 0.2), (0, 0.4)]
    body = {"signature_name": "serving_default", "inputs": {"text": ["a"]}}
    assert server.requests == [("/v1/models/m:predict", body)] * 4


def test_in_the_end_it_says_why(waits):
    with scripted(*[(429, {"error": "It is full."})] * 3) as server:
        sentence = r"none to 3 requests: status 429, .*It is full\."
        with pytest.raises(ConnectionError, match=sentence):
            Client(server.address, "m", retries=2).translate(["a"])
    with pytest.raises(ConnectionError, match=r"none to 8 requests: the connection is refused\. Start the server"):
        Client(server.address, "m", retries=7).translate(["a"])
    assert waits[2:] == [(0, 0.1), (0, 0.2), (0, 0.4), (0, 0.8), (0, 1.6), (0, 3.2), (0, 5.0)]


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        ((400, {"error": "Expected text."}), ValueError, r"status 400, .*Expected text\."),
        ((404, {"error": "Servable not found"}), ValueError, r"status 404, .*Servable"),
        ((413, {"error": "too large"}), ValueError, "status 413"),
        ((504, {"error": "Too long."}), TimeoutError, "status 504, .*Too long"),
        ((500, {"error": "broken"}), RuntimeError, "status 500, .*broken"),
        ((200, b"<html>"), RuntimeError, "JSON of a model server at http://127.0.0.1"),
        ((200, {"outputs": [3]}), RuntimeError, "gives translation, score of each text. Received: "),
        ((200, [3]), RuntimeError, "gives translation, score of each text. Received: "),
        (answer([], []), RuntimeError, "of each text"),
        (answer(["x", "y"], [-1, -2]), RuntimeError, "of each text"),
        (answer([{"b64": "eA=="}], [-1]), RuntimeError, "of each text"),
        (answer(["x"], [None]), RuntimeError, "of each text"),
        (answer(["x"], [[-1]]), RuntimeError, "of each text"),
        ((302, {}), RuntimeError, "status 302"),
        ((200, None), ConnectionError, r"IncompleteRead\(2 bytes read, 98 more expected\)"),
        (("sleep", 1.0), TimeoutError, r"within 0\.3 s"),
        (("sleep", 0.0), ConnectionError, "Remote end closed connection"),
    ],
)
def test_what_it_did_not_do_or_began_is_not_sent_again(answer, error, sentence):
    with scripted(answer) as server, pytest.raises(error, match=sentence):
        Client(server.address, "m", timeout=0.3).translate(["a"])
    assert len(server.requests) == 1


def test_hypotheses_that_were_not_found_are_none():
    """A search with room for one token finds one hypothesis; the answer has room for three. One has to be there."""
    arrays = {
        "translations": [["x", "", ""]],
        "scores": [[-1.5, -1e30, -1e30]],
        "source_tokens": [["a", "</s>"]],
        "source_lengths": [2],
        "target_tokens": [[["x", "</s>"], ["", ""], ["", ""]]],
        "target_lengths": [[2, 0, 0]],
        "alignments": [[[[0.5, 0.5]] * 2] * 3],
    }
    with scripted((200, {"outputs": arrays})) as server:
        (found,) = Client(server.address, "m").translate_n_best(["a"])
    assert [one.text for one in found.n_best] == ["x"]
    for wrong in (
        {"target_lengths": [[0, 0, 0]]},
        {"target_lengths": ["qqq"]},
        {"scores": [-1.5]},
        {"scores": [["x", 0, 0]]},
    ):
        with (
            scripted((200, {"outputs": arrays | wrong})) as server,
            pytest.raises(RuntimeError, match="Expected a translator of keras_attn"),
        ):
            Client(server.address, "m").translate_n_best(["a"])


def test_a_long_list_goes_in_several_requests():
    answers = [(200, {"outputs": {"translation": ["x"] * n, "score": [0.0] * n}}) for n in (2, 2, 1)]
    with scripted(*answers) as server:
        client = Client(server.address + "/prefix/", "a model", version=7, batch_size=2)
        assert len(client.translate("abcde"[n] for n in range(5))) == 5
        assert client.translate([]) == []
    assert [content["inputs"]["text"] for _, content in server.requests] == [["a", "b"], ["c", "d"], ["e"]]
    assert {path for path, _ in server.requests} == {"/prefix/v1/models/a%20model/versions/7:predict"}


def test_an_endless_answer_is_not_read_whole(monkeypatch):
    monkeypatch.setattr("keras_attn.serving.client._MOST_BYTES", 20)
    with scripted(GOOD) as server, pytest.raises(RuntimeError, match="less than 20 bytes"):
        Client(server.address, "m").translate(["a"])


def test_neither_keras_nor_tensorflow_is_needed():
    with scripted(GOOD) as server:
        code = "from keras_attn.serving.client import Client\n"
        code += f'print(Client({server.address!r}, "m").translate(["a"])[0].text)'
        assert run_without(("keras", "tensorflow", "jax", "torch", "sentencepiece"), code) == "x"


def test_arguments_are_checked():
    for address, options in (
        ("localhost:8501", {}),
        ("grpc://localhost:8500", {}),
        (None, {}),
        ("http://", {}),
        ("http://x y", {}),
        ("http://x:99999", {}),
        ("http://user:word@x", {}),
        ("http://x?y=1", {}),
        ("http://x/?", {}),
        ("http://x\n", {}),
        ("http://x", {"timeout": 0}),
        ("http://x", {"timeout": None}),
        ("http://x", {"retries": -1}),
        ("http://x", {"batch_size": 0}),
    ):
        with pytest.raises(ValueError, match="Expected"):
            Client(address, "m", **options)
    client = Client("http://localhost:1", "m", retries=0)
    for texts in ("text", [1], ["a", ["b"]]):
        with pytest.raises(ValueError, match="a list of strings"):
            client.translate(texts)
    with pytest.raises(ValueError, match=r"a target for each source. Received: 1 and 2"):
        client.score(["a"], ["b", "c"])
