"""A server for exported models, for development: `keras-attn serve`.

    GET  /v1/models/NAME[/versions/N]            the state of the version that is served
    GET  /v1/models/NAME[/versions/N]/metadata   its signatures
    POST /v1/models/NAME[/versions/N]:predict    tensors in, tensors out
    GET  /                                       a page: enter a sentence, see its translation and alignment

An error is `{"error": "sentence"}`, with TensorFlow Serving's status. It is no replacement for TensorFlow Serving: it
has one model, its newest version, and one worker; it has neither gRPC, TLS, authentication nor a limit on connections.
SECURITY.md says what its limits protect from.
"""

import asyncio
import base64
import hashlib
import html
import logging
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

from aiohttp import web
from google.protobuf import json_format

from keras_attn.serving.saved_model import SavedModel, Versions

_MOST_REQUEST_BYTES = 2**22


def log_seldom() -> None:
    """Logs each message once a minute: without a free descriptor, asyncio logs the same one 128 times a second."""
    passed: dict[str, float] = {}

    def is_new(record: logging.LogRecord) -> bool:
        text, now = record.getMessage(), time.monotonic()
        for old in [message for message, then in passed.items() if now > then + 60]:
            del passed[old]
        return passed.setdefault(text, now) == now

    handler = logging.StreamHandler()
    handler.addFilter(is_new)
    logging.basicConfig(handlers=[handler], format="%(message)s", force=True)


async def serve(
    versions: Versions,
    *,
    host: str,
    port: int,
    max_requests: int,
    request_seconds: float,
    poll_seconds: float,
) -> None:
    """Serves until SIGTERM or SIGINT, then answers the requests that it has. Prints the address when a version loads.

    Args:
        versions: The model.
        host, port: Where to listen; port 0 stands for any free one.
        max_requests: Predict requests at once, from their headers to their answers; more are refused.
        request_seconds: The time for a request to be answered, and again for its client to take the answer.
        poll_seconds: The time between two looks for versions.

    Raises:
        ValueError: if no version loads, or the port is in use.
    """
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    app = _application(versions, host, max_requests, request_seconds)
    # The time that a connection may be idle is also that in which the headers of its first request must arrive.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, keepalive_timeout=30.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()  # before a version is loaded, which takes seconds
        except OSError as error:
            reason = os.strerror(error.errno) if (error.errno or 0) > 0 else error
            raise ValueError(f"Expected a host and a port to listen at. Received: {host}:{port}, {reason}") from error
        address = f"http://{f'[{host}]' if ':' in host else host}:{runner.addresses[0][1]}"
        watching = asyncio.create_task(_watch(versions, poll_seconds, address))
        await asyncio.wait([watching, asyncio.create_task(stopped.wait())], return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        logging.warning("Shutting down: the requests that are here are answered first.")
    finally:
        await runner.cleanup()


async def _watch(versions: Versions, seconds: float, address: str) -> None:
    loop, loads = asyncio.get_running_loop(), ThreadPoolExecutor(1)
    await loop.run_in_executor(loads, versions.look)
    if versions.current is None:
        raise ValueError(max(versions.failures.items())[1][0])
    print(f"{versions.name} is served on {address} (REST, and a page to try it). Ctrl+C ends it.", flush=True)
    while True:
        await asyncio.sleep(seconds)
        try:
            await loop.run_in_executor(loads, versions.look)
        except OSError as error:
            logging.warning("The folder of %s cannot be read: %s", versions.name, error)


def _application(versions: Versions, host: str, max_requests: int, request_seconds: float) -> web.Application:
    # On loopback, a page of another site could otherwise read what is served, by a name of its own that leads there.
    is_local = host in ("localhost", "::1") or host.startswith("127.")
    hosts = {"localhost", "127.0.0.1", "[::1]", host} if is_local else None
    worker = ThreadPoolExecutor(1)
    content, policy = page(versions.name)
    room = asyncio.Semaphore(max_requests)

    def model_of(request: web.Request) -> SavedModel:
        version = request.match_info.get("version")
        return versions.get(request.match_info["name"], None if version is None else int(version))

    async def predict(request: web.Request) -> web.Response:
        if room.locked():
            raise web.HTTPTooManyRequests(text=f"The server has {max_requests} requests. Send this one again later.")
        async with room:
            end = time.monotonic() + request_seconds
            model, body = model_of(request), await request.read()
            answer = await asyncio.get_running_loop().run_in_executor(worker, model.predict, body, end)
            return web.Response(body=answer, content_type="application/json")

    async def status(request: web.Request) -> web.Response:
        ok = {"error_code": "OK", "error_message": ""}
        state = {"version": str(model_of(request).version), "state": "AVAILABLE", "status": ok}
        return web.json_response({"model_version_status": [state]})

    async def metadata(request: web.Request) -> web.Response:
        model = model_of(request)
        options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
        signatures = {key: json_format.MessageToDict(value, **options) for key, value in model.signatures.items()}
        spec = {"name": versions.name, "signature_name": "", "version": str(model.version)}
        return web.json_response({"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}})

    async def index(_) -> web.Response:
        headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
        return web.Response(text=content, content_type="text/html", headers=headers)

    async def malformed(request: web.Request) -> web.Response:
        raise web.HTTPBadRequest(text=f"Malformed request: {request.method} {request.path}")

    @web.middleware
    async def answer(request: web.Request, handler) -> web.StreamResponse:
        """Turns errors into answers, and bounds the time of every answer."""
        try:
            async with asyncio.timeout(request_seconds):
                if hosts and re.sub(r":\d*$", "", request.host.lower()) not in hosts:
                    known = ", ".join(sorted(hosts))
                    raise web.HTTPForbidden(text=f"Expected a Host among: {known}. Received: {request.host!r}")
                response = await handler(request)
        except TimeoutError:
            sentence = f"Expected a request that arrives and is answered within {request_seconds:g} s. It took longer."
            response = web.json_response({"error": f"{sentence} Send fewer or shorter texts at once."}, status=504)
        except web.HTTPException as error:
            response = web.json_response({"error": error.text}, status=error.status)
        except web.RequestPayloadError as error:
            response = web.json_response({"error": f"Expected a body as its headers say: {error}"}, status=400)
        try:
            async with asyncio.timeout(request_seconds):
                await response.prepare(request)
                await response.write_eof()
        except (TimeoutError, ConnectionError):
            if request.transport:
                request.transport.abort()
        return response

    app = web.Application(middlewares=[answer], client_max_size=_MOST_REQUEST_BYTES)
    for path in ("/v1/models/{name:[^/:]+}", "/v1/models/{name:[^/:]+}/versions/{version:[0-9]{1,18}}"):
        app.router.add_post(path + ":predict", predict)
        app.router.add_get(path, status)
        app.router.add_get(path + "/metadata", metadata)
    app.router.add_get("/", index)
    app.router.add_route("*", "/{path:.*}", malformed)
    return app


def page(model_name: str) -> tuple[str, str]:
    """Returns the page for a model, a single HTML file, and its content security policy.

    Alignments look as on the page of `keras_attn.plots.html_page`, whose style and script are inserted.
    The policy lets the page connect to its own server alone, load nothing, and run no other script.
    """
    shown = files("keras_attn.plots").joinpath("word_alignment.html").read_text(encoding="utf-8")
    text = files("keras_attn.serving").joinpath("page.html").read_text(encoding="utf-8")
    policy = ["default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'"]
    for name in ("style", "script"):
        text = text.replace(f"/*{name} of word_alignment.html*/", re.search(f"<{name}>(.*?)</{name}>", shown, re.S)[1])
        digests = [hashlib.sha256(part.encode()).digest() for part in re.findall(f"<{name}>(.*?)</{name}>", text, re.S)]
        policy.append(" ".join([f"{name}-src", *(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests)]))
    return text.replace("<!--model-->", html.escape(model_name)), "; ".join(policy)
