"""Attacks on the REST interface: every answer is a documented status and a sentence."""

import concurrent.futures
import gzip
import http.client
import itertools
import json
import random
import re
import socket
import time
import zlib

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("honest", "little")]

TEXTS = ["zwei Hunde spielen", "ein Mann"]
VALID = json.dumps({"signature_name": "serving_default", "inputs": {"text": TEXTS}}).encode()
OPTIONS = ("length_penalty", "max_length", "max_length_ratio", "min_length", "min_length_ratio")


def check(found: tuple[int, dict], *statuses: int, sentence: str = "") -> None:
    status, content = found
    assert status in statuses, found
    if status != 200:
        assert list(content) == ["error"]
        assert 0 < len(content["error"]) < 1100
        assert re.search(sentence, content["error"]), content["error"]


def mutated(data: bytes, number: int) -> bytes:
    """A copy with 1 to 4 random changes."""
    choose, changed = random.Random(number), bytearray(data)
    for _ in range(choose.randint(1, 4)):
        at = choose.randrange(len(changed))
        change = choose.randrange(5)
        if change == 0:
            changed[at] ^= 1 << choose.randrange(8)
        elif change == 1:
            changed.insert(at, choose.choice(b'{}[]",:\\\x00\xff0eE-+.u'))
        elif change == 2:
            del changed[at : at + choose.randint(1, 8)]
        elif change == 3:
            changed[at:at] = changed[: choose.randrange(len(changed))]
        else:
            del changed[max(1, at) :]
        if not changed:
            changed[:] = b"{"
    return bytes(changed)


@pytest.mark.parametrize("number", range(150))
def test_a_damaged_body(target, number):
    check(target.post(mutated(VALID, number)), 200, 400)


KINDS = (
    None,
    True,
    0,
    -1,
    1.5,
    10**400,
    float("nan"),
    "",
    "x",
    "\ud800",
    [],
    {},
    [[]],
    [["x"]],
    [{}],
    [None],
    {"b64": 1},
)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@pytest.mark.parametrize("where", ["all", "inputs", "instances", "text", "row", "element", "signature_name"])
def test_a_value_of_another_kind(target, where, kind):
    content = {
        "all": kind,
        "inputs": {"inputs": kind},
        "instances": {"instances": kind},
        "text": {"inputs": {"text": kind}},
        "row": {"instances": [{"text": "ein"}, kind]},
        "element": {"inputs": {"text": ["ein", kind]}},
        "signature_name": {"signature_name": kind, "inputs": TEXTS},
    }[where]
    fine = (where in ("inputs", "text") and kind == []) or (where == "signature_name" and kind == "")
    fine |= where == "element" and kind in ("", "x")
    check(target.predict(content), 200 if fine else 400)


BAD_NUMBERS = (-1, -(2**31), 2**31, -(10**400), float("nan"), float("inf"), float("-inf"), True, None, "1", [1], {})


@pytest.mark.parametrize("value", BAD_NUMBERS, ids=repr)
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_out_of_range(target, option, value):
    content = {"signature_name": "translate_with_options", "inputs": {"text": TEXTS, option: value}}
    if value == 2**31 and not option.endswith("th"):
        check(target.predict(content), 200)  # a large number is one
        return
    check(target.predict(content), 400, sentence=f"Expected {option} to ")


PATHS = (
    *("/v1", "/v1/", "/v1/models", "/v1/models/", "/v1/models//", "/v1/models/:predict", "/v1/models/small:", "/v2"),
    *("/v1/models/small:classify", "/v1/models/small:predict/", "/v1/models/small/versions/:predict", "/favicon.ico"),
    *("/v1/models/small/versions/-1:predict", "/v1/models/small/versions/1e3:predict", "/../../etc/passwd", "//"),
    *(f"/v1/models/small/versions/{'9' * n}:predict" for n in (2, 18, 19, 20, 400)),
    *("/v1/models/small/versions/%31%30:predict", "/v1/models/sm%61ll2:predict", "/v1/models/%ff%fe:predict"),
    *(
        "/v1/models/%00:predict",
        "/v1/models/..%2f..%2fetc:predict",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/../page.html",
    ),
    *("/v1/models/<script>:predict", "/v1/models/" + "x" * 7000 + ":predict", "/monitoring", "/metrics", "/healthz/x"),
    "/v1/models/small/versions/\u0663:predict".encode().decode("latin1"),
)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ascii(path)[:50])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_another_path(target, path, method):
    request = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(VALID)}\r\nConnection: close\r\n\r\n"
    )
    answer = target.raw(request.encode("latin1") + VALID)
    status = int(answer.split()[1])
    assert status in (400, 404, 405), answer[:200]
    if b"application/json" in answer:
        assert list(json.loads(answer.partition(b"\r\n\r\n")[2])) == ["error"]


HEAD = b"POST /v1/models/small:predict HTTP/1.1\r\nHost: localhost\r\n"
BROKEN = {
    "nothing": b"",
    "newlines": b"\r\n" * 1000,
    "garbage": random.Random(1).randbytes(5000),
    "TLS": bytes.fromhex("16030100a5010000a10303") + bytes(160),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(40),
    "HTTP/9": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.0\r\n",
    "no path": b"POST HTTP/1.1\r\n\r\n",
    "a letter in the length": HEAD + b"Content-Length: 1O\r\n\r\n{}",
    "a negative length": HEAD + b"Content-Length: -5\r\n\r\n{}",
    "a plus in the length": HEAD + b"Content-Length: +2\r\n\r\n{}",
    "a long length": HEAD + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n{}",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}",
    "a length and chunks": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a negative chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "a huge chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n{}\r\n0\r\n\r\n",
    "a chunk without end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
    "an unknown transfer": HEAD + b"Transfer-Encoding: gzip, zip\r\n\r\n{}",
    "less than its length": HEAD + b"Content-Length: 500\r\n\r\n{}",
    "a header without a colon": HEAD + b"X\r\n\r\n",
    "a header with a NUL": HEAD + b"X: a\x00b\r\n\r\n",
    "a header of two lines": HEAD + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    "a bare newline": HEAD + b"X: a\nContent-Length: 2\r\n\r\n{}",
    "a long header": HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": HEAD + b"".join(b"X%d: a\r\n" % n for n in range(20_000)) + b"\r\n",
    "a long path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a long method": b"A" * 100_000 + b" / HTTP/1.1\r\n\r\n",
    "a space in the name": HEAD + b"Content-Length : 2\r\n\r\n{}",
    "an upgrade": HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\n{}",
    "an expectation": HEAD + b"Expect: 200-maybe\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_request(target, name):
    answer = target.raw(BROKEN[name], timeout=20)
    assert re.fullmatch(rb"(HTTP/1\.[01] 4\d\d .*)?", answer.partition(b"\r\n")[0]), answer[:200]


def bomb() -> bytes:
    """1 GiB of zeros, compressed."""
    press = zlib.compressobj(wbits=31)
    return b"".join(press.compress(bytes(2**20)) for _ in range(2**10)) + press.flush()


ENCODED = {
    "plain": ("gzip", VALID, 400),
    "empty": ("gzip", b"", 400),
    "cut": ("gzip", gzip.compress(VALID)[:-20], 400),
    "damaged": ("gzip", gzip.compress(VALID)[:20] + b"xxxx" + gzip.compress(VALID)[24:], 400),
    "whole": ("gzip", gzip.compress(VALID), 200),
    "deflate": ("deflate", zlib.compress(VALID), 200),
    "plain deflate": ("deflate", VALID, 400),
    "plain br": ("br", VALID, 400),
    "plain zstd": ("zstd", VALID, 400),
    "bomb": ("gzip", None, 413),
    "two": ("gzip, gzip", gzip.compress(gzip.compress(VALID)), 400),
    "unknown": ("rot13", VALID, 200),
}


@pytest.mark.parametrize("name", ENCODED)
def test_a_body_that_is_not_as_its_headers_say(target, name):
    encoding, body, status = ENCODED[name]
    check(target.post(bomb() if body is None else body, headers={"Content-Encoding": encoding}), status)


OWN = ("localhost", "127.0.0.1", "[::1]", "LOCALHOST", "my.example", "My.Example")
OTHERS = (
    *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example#localhost", "0.0.0.0", "x@y"),
    *("127.0.0.2", "2130706433", "[::]", "localhost@evil.example", "my.example.", "xn--lcalhost-54a", "evil.example "),
    *("", "[", "[::1", ":", "@", "localhost, evil.example", "\xa0localhost", "notmy.example", "my.example.org"),
)


def named(host: str) -> str:
    """The name of a case: pytest-xdist takes all that is before the last "::" for the file of the test."""
    return ascii(host).replace("::", ": :")


@pytest.mark.parametrize("host", OWN, ids=named)
@pytest.mark.parametrize("port", ["", ":1", ":8501"])
def test_a_name_of_its_own(target, host, port):
    assert (
        target.raw(f"GET /healthz HTTP/1.1\r\nHost: {host}{port}\r\nConnection: close\r\n\r\n".encode(), closes=True)[
            9:12
        ]
        == b"200"
    )


@pytest.mark.parametrize("host", OTHERS, ids=named)
@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/models/small"])
def test_a_name_of_another(target, host, path):
    answer = target.raw(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin1"))
    assert answer[9:12] in (b"403", b"400"), answer
    assert b"text/html" not in answer


@pytest.mark.parametrize("hosts", [*itertools.permutations(("localhost", "evil.example"))])
def test_two_names(target, hosts):
    headers = "".join(f"Host: {host}\r\n" for host in hosts)
    assert target.raw(f"GET / HTTP/1.1\r\n{headers}Connection: close\r\n\r\n".encode())[9:12] in (b"403", b"400")


STRANGE = (
    *(chr(n) for n in (0, 7, 27, 127, 0x85, 0xA0, 0x2028, 0x202E, 0x200D, 0xFEFF, 0xFFFF, 0x10FFFF)),
    *("\u0301" * 100, "a\u0301" * 50, "👩‍👩‍👧" * 10, "\ufdfa" * 50, "▁" * 100, " " * 400, "\t\n" * 100, "</s>" * 20),
    *("<script>alert(1)</script>", "'; DROP TABLE x; --", "${jndi:ldap://x}", "%s%n%x" * 20, "../" * 50, "a" * 200),
)


@pytest.mark.parametrize("text", STRANGE, ids=lambda text: ascii(text)[:20])
@pytest.mark.parametrize("signature", ["serving_default", "translate_n_best"])
def test_a_strange_text_is_translated(target, text, signature):
    found = target.predict({"signature_name": signature, "inputs": {"text": [text, "ein Mann"]}})
    check(found, 200)


# Requests that want much. Each is refused before the model runs, after it, or stopped.
LONG = "Mann " * 420
MUCH = {
    "an alignment that may be huge": ("translate_n_best", [LONG * 2] + ["ein"] * 63, 413),
    "an alignment that is huge": ("translate_n_best", ["m" * 200] * 64, 413),
    "many rows": ("translate_n_best", [""] * 240_000, 413),
    "too many bytes": ("serving_default", ["x" * 2**22], 413),
}


@pytest.mark.parametrize("name", MUCH)
def test_much_is_refused(target, name):
    signature, texts, status = MUCH[name]
    begin = time.perf_counter()
    found = target.predict({"signature_name": signature, "inputs": {"text": texts}})
    check(
        found, status, 504, sentence="Expected a request (of at most|whose answer has at most|that is answered within)"
    )
    assert time.perf_counter() - begin < 30


def test_a_deep_and_a_wide_body(target):
    for body in (b"[" * 10**6, b'{"inputs":' * 10**5, b'{"inputs":' + b"[" * 31 + b"]" * 31 + b"}", b"[[],[]," * 10**5):
        check(target.post(body), 400)
    check(target.predict({"inputs": {f"name {n}": ["x"] for n in range(100_000)}}), 400, sentence="Expected the inputs")
    check(target.predict({"inputs": TEXTS, "signature_name": "x" * 10**6}), 400, sentence="a signature_name among")
    check(target.post(b'{"inputs": [' + b"9" * 10**6 + b"]}"), 400)


def connect(target) -> socket.socket:
    return socket.create_connection(target.address, timeout=20)


def test_clients_that_send_slowly_take_no_room(target, honest):
    """200 bodies of a byte a second, and 200 headers; the honest clients go on, and the slow ones are sent away."""
    body = HEAD + b"Content-Length: 500\r\n\r\n"
    slow = [(connect(target), body) for _ in range(200)] + [(connect(target), HEAD[:40]) for _ in range(200)]
    begin, errors = time.perf_counter(), len(honest.errors)
    for connection, data in slow:
        connection.sendall(data)
    answers = {}
    while len(answers) < len(slow) and time.perf_counter() - begin < 20:
        check(target.predict({"inputs": TEXTS}), 200)
        for connection, _ in slow:
            if connection in answers:
                continue
            try:
                connection.setblocking(False)
                answers[connection] = connection.recv(2**16)
            except BlockingIOError:
                try:
                    connection.send(b" ")
                except OSError:
                    answers[connection] = b""
            except OSError:
                answers[connection] = b""
        time.sleep(0.5)
    for connection, _ in slow:
        connection.close()
    assert len(answers) == len(slow), "the server waits for slow clients without a limit"
    assert sum(answer.startswith(b"HTTP/1.1 408") for answer in answers.values()) == 200
    assert len(honest.errors) == errors


def test_clients_that_do_not_read_their_answers(target):
    """Each asks for megabytes, and takes none: the server gives up on them."""
    body = json.dumps({"signature_name": "translate_n_best", "inputs": {"text": ["ein Mann " * 60] * 60}}).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    before = target.megabytes()
    clients = [connect(target) for _ in range(12)]
    for client in clients:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(request)
    check(target.predict({"inputs": TEXTS}), 200)
    time.sleep(8)
    assert target.megabytes() - before < 600
    for client in clients:
        client.close()


def test_clients_that_go_leave_no_work_behind(target):
    """What they asked for takes many seconds; the next one that asks for as much does not wait for it."""
    much = json.dumps({"inputs": ["m n o p " * 750] * 4}).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(much) + much
    for _ in range(10):
        with connect(target) as connection:
            connection.sendall(request)
            time.sleep(0.2)
    begin = time.perf_counter()
    check(target.predict({"inputs": ["ein Mann " * 70]}), 200)
    assert time.perf_counter() - begin < 5


def test_a_request_that_takes_too_long_is_stopped(target):
    begin = time.perf_counter()
    found = target.predict({"inputs": ["m n o p " * 2000] * 60})
    check(found, 504, sentence="within 20 s. It took longer and was stopped")
    assert time.perf_counter() - begin < 30


def test_many_requests_at_once(target):
    """More than the server takes: some are refused in a sentence, none is lost."""
    with concurrent.futures.ThreadPoolExecutor(60) as pool:
        found = list(pool.map(target.predict, [{"inputs": TEXTS * 32}] * 120))
    for answer in found:
        check(answer, 200, 429)


def test_one_connection_for_many_requests(target):
    connection = http.client.HTTPConnection(*target.address, timeout=20)
    for number in range(100):
        connection.request("POST", "/v1/models/small:predict", VALID if number % 2 else b"{")
        answer = connection.getresponse()
        assert answer.status == (200 if number % 2 else 400)
        answer.read()
    connection.close()
    pipelined = [HEAD + b"Content-Length: %d\r\n\r\n" % len(VALID) + VALID] * 100
    pipelined[-1] = pipelined[-1].replace(b"Host", b"Connection: close\r\nHost")
    assert target.raw(b"".join(pipelined), timeout=30, closes=True).count(b"HTTP/1.1 200") == 100
