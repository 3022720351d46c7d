"""The stock server's REST interface, with a page to try it: an aiohttp application.

    GET  /v1/models/NAME[/versions/N]            the states of its versions
    GET  /v1/models/NAME[/versions/N]/metadata   its signatures
    POST /v1/models/NAME[/versions/N]:predict    tensors in, tensors out
    GET  /monitoring/prometheus/metrics          the stock server's path, with metrics of this server
    GET  /healthz                                200 while requests are accepted, else 503
    GET  /                                       a page: enter a sentence, see its translation

An error is `{"error": "sentence"}` with the stock server's status. The stock server's paths for `:classify`, `:regress`
and version labels do not exist.
"""

import asyncio
import json
import logging
import urllib.parse
from collections.abc import Collection

from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2

from keras_attn.serving.dev_server import json_tensors, metrics
from keras_attn.serving.dev_server.errors import RequestError, invalid, too_large
from keras_attn.serving.dev_server.memory import Share
from keras_attn.serving.dev_server.messages import model_spec, status_response
from keras_attn.serving.dev_server.page import page
from keras_attn.serving.dev_server.service import Service
from keras_attn.serving.dev_server.tensors import least_bytes

_MODEL = r"/v1/models/{name:[^/:]+}"
_VERSION = r"/versions/{version:[0-9]{1,18}}"


def application(service: Service, hosts: Collection[str] | None) -> web.Application:
    """Returns the application.

    Args:
        service: What it serves.
        hosts: The names of this server that a Host header may have, in lower case; None: any. A page of another site
            could otherwise read what is served on loopback, by a name of its own that leads there.
    """
    rest = _Rest(service)
    app = web.Application(middlewares=[_errors, _only_for(hosts)] if hosts else [_errors])
    for model in (_MODEL, _MODEL + _VERSION):
        app.router.add_post(model + ":predict", rest.predict)
        app.router.add_get(model, rest.status)
        app.router.add_get(model + "/metadata", rest.metadata)
    app.router.add_get("/monitoring/prometheus/metrics", rest.metrics)
    app.router.add_get("/healthz", rest.health)
    app.router.add_get("/", rest.page)
    return app


class _Rest:
    def __init__(self, service: Service):
        self._service = service
        self._page, self._policy = page(service.versions.name)

    async def predict(self, request: web.Request) -> web.Response:
        service = self._service
        with service.request("REST") as share:
            model = service.versions.get(*_name_and_version(request))
            body = await self._body(request, share)
            with service.batcher.admit():  # now, so that clients that send slowly take no room
                content = await service.aside(len(body), json_tensors.read_request, body, model.signature)
                outputs = await service.run(model, content.signature_name, content.inputs)
                size, most = least_bytes(outputs), service.settings.max_answer_bytes
                share.hold(len(body) + size)
                answer = await service.aside(size, json_tensors.write_answer, outputs, content.in_rows, most)
                share.hold(len(body) + len(answer))
            return await self._send(request, _json(answer))

    async def _body(self, request: web.Request, share: Share) -> bytes:
        limit, parts, size = self._service.settings.max_request_bytes, [], request.content_length or 0
        try:
            async with self._service.transfer():
                if size <= limit:
                    size = 0
                    async for part in request.content.iter_any():
                        parts.append(part)
                        size += len(part)
                        if size > limit:
                            break
                        share.hold(size)
        except web.RequestPayloadError as error:
            raise invalid(f"Expected a body as its headers say. Received a damaged one: {error}") from None
        if size > limit:
            raise too_large(f"Expected a request of at most {limit:,} bytes. This one is larger.")
        return b"".join(parts)

    async def _send(self, request: web.Request, answer: web.Response) -> web.Response:
        """Sends an answer, or closes the connection if the client does not take it in time."""
        try:
            async with asyncio.timeout(self._service.settings.transfer_seconds):
                await answer.prepare(request)
                await answer.write_eof()
        except (TimeoutError, ConnectionError):
            if request.transport:
                request.transport.abort()
        return answer

    async def status(self, request: web.Request) -> web.Response:
        return _json(_proto(status_response(self._service.versions.states(*_name_and_version(request)))))

    async def metadata(self, request: web.Request) -> web.Response:
        model = self._service.versions.get(*_name_and_version(request))
        definitions = get_model_metadata_pb2.SignatureDefMap(signature_def=model.definitions)
        spec = _proto(model_spec(self._service.versions.name, model.version))
        return _json({"model_spec": spec, "metadata": {"signature_def": _proto(definitions)}})

    async def metrics(self, _) -> web.Response:
        return web.Response(body=self._service.metrics.page(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def health(self, _) -> web.Response:
        if self._service.batcher.closed:
            raise RequestError("UNAVAILABLE", "The server is shutting down.")
        return web.Response(text="ok\n")

    async def page(self, _) -> web.Response:
        headers = {"Content-Security-Policy": self._policy, "X-Content-Type-Options": "nosniff"}
        return web.Response(text=self._page, content_type="text/html", headers=headers)


@web.middleware
async def _errors(request: web.Request, handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as error:
        return _json({"error": error.sentence}, error.status)
    except web.HTTPException as error:
        # The stock server answers 400 to a malformed path below /v1/.
        status = 400 if request.path.startswith("/v1/") and error.status in (404, 405) else error.status
        return _json({"error": f"Malformed request: {request.method} {request.path}"}, status)
    except Exception:
        logging.exception("A request failed.")
        return _json({"error": "The server failed at this request; its log says why."}, 500)


def _only_for(hosts: Collection[str]):
    """Refuses requests whose Host header has another name, whatever the port."""

    @web.middleware
    async def check(request: web.Request, handler) -> web.StreamResponse:
        for host in request.headers.getall("Host", ()):
            if _host_name(host) not in hosts:
                sentence = f"Expected a Host among: {', '.join(sorted(hosts))}. Received: {host!r}"
                raise RequestError("PERMISSION_DENIED", f"{sentence}. Start the server with --allow-host to add one.")
        return await handler(request)

    return check


def _host_name(host: str) -> str | None:
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _name_and_version(request: web.Request) -> tuple[str, int | None]:
    version = request.match_info.get("version")
    return request.match_info["name"], None if version is None else int(version)


def _proto(message) -> dict:
    options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
    return json_format.MessageToDict(message, **options)


def _json(content: dict | bytes, status: int = 200) -> web.Response:
    if not isinstance(content, bytes):
        content = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode(errors="replace")
    return web.Response(body=content, status=status, content_type="application/json")
