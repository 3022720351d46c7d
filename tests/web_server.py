"""A web server on this machine, whose files and faults a test chooses."""

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def listening(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answers on a free port until the end of the block; yields the address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class WebServer:
    """The files, the faults and the requests of a server.

    Args:
        files: The content of each path, without a slash at its beginning.
    """

    def __init__(self, files: dict[str, bytes]):
        self.files = dict(files)
        self.cuts: list[int] = []  # bytes after which the next answers break off
        self.requests: list[str] = []  # paths
        self.before_answer: Callable[[], None] = lambda: None
        self.address = ""


@contextlib.contextmanager
def serving(files: dict[str, bytes]) -> Iterator[WebServer]:
    """Serves files on a free port until the end of the block."""
    web = WebServer(files)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.lstrip("/")
            web.requests.append(path)
            web.before_answer()
            content = web.files.get(path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # a client that has read enough
                self.wfile.write(content[: web.cuts.pop(0) if web.cuts else None])

        def log_message(self, *_):
            pass

    with listening(Handler) as web.address:
        yield web
