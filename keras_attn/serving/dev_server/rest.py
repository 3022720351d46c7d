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

import json
import logging

from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2

from keras_attn.serving.dev_server import json_tensors, metrics
from keras_attn.serving.dev_server.errors import RequestError, RequestTooLarge
from keras_attn.serving.dev_server.messages import model_spec, status_response
from keras_attn.serving.dev_server.page import page
from keras_attn.serving.dev_server.service import Service

_MODEL = r"/v1/models/{name:[^/:]+}"
_VERSION = r"/versions/{version:\d{1,18}}"


def application(service: Service, max_request_bytes: int) -> web.Application:
    """Returns the application. It answers larger requests with 413."""
    rest = _Rest(service, max_request_bytes)
    # aiohttp's own limit applies to requests without a Content-Length.
    app = web.Application(middlewares=[_errors], client_max_size=max_request_bytes)
    for model in (_MODEL, _MODEL + _VERSION):
        app.router.add_post(model + ":predict", rest.predict)
        app.router.add_get(model, rest.status)
        app.router.add_get(model + "/metadata", rest.metadata)
    app.router.add_get("/monitoring/prometheus/metrics", rest.metrics)
    app.router.add_get("/healthz", rest.health)
    app.router.add_get("/", rest.page)
    return app


class _Rest:
    def __init__(self, service: Service, max_request_bytes: int):
        self._service = service
        self._max_request_bytes = max_request_bytes
        self._page, self._policy = page(service.versions.name)

    async def predict(self, request: web.Request) -> web.Response:
        with self._service.request("REST"):
            model = self._service.versions.get(*_name_and_version(request))
            content = json_tensors.read_request(await self._body(request), model.signature)
            outputs = await self._service.batcher.run(model, content.signature_name, content.inputs)
            return _json(json_tensors.write_answer(outputs, content.in_rows))

    async def _body(self, request: web.Request) -> bytes:
        if (request.content_length or 0) > self._max_request_bytes:
            raise RequestTooLarge(self._max_request_bytes)
        try:
            return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise RequestTooLarge(self._max_request_bytes) from None

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


def _name_and_version(request: web.Request) -> tuple[str, int | None]:
    version = request.match_info.get("version")
    return request.match_info["name"], None if version is None else int(version)


def _proto(message) -> dict:
    options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
    return json_format.MessageToDict(message, **options)


def _json(content: dict | bytes, status: int = 200) -> web.Response:
    if not isinstance(content, bytes):
        content = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
    return web.Response(body=content, status=status, content_type="application/json")
