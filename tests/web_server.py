"""A web server on this machine, whose files and faults a test chooses."""

import contextlib
import http.server
import re
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
    """What the server has, does wrong and was asked.

    Args:
        files: The content of each path, without a slash at its beginning.
    """

    def __init__(self, files: dict[str, bytes]):
        self.files = dict(files)
        self.knows_ranges = True
        self.cuts: list[int] = []  # bytes after which the next answers break off
        self.requests: list[tuple[str, str | None]] = []  # paths, with their ranges
        self.before_answer: Callable[[], None] = lambda: None
        self.address = ""


@contextlib.contextmanager
def serving(files: dict[str, bytes]) -> Iterator[WebServer]:
    """Serves files on a free port until the end of the block."""
    web = WebServer(files)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path, asked = self.path.lstrip("/"), self.headers.get("Range")
            web.requests.append((path, asked))
            web.before_answer()
            content = web.files.get(path)
            if content is None:
                self.send_error(404)
                return
            begin = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and web.knows_ranges else 0
            if begin and begin >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if begin else 200)
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - begin))
            self.end_headers()
            self.wfile.write(content[begin:][: web.cuts.pop(0) if web.cuts else None])

        def log_message(self, *_):
            pass

    with listening(Handler) as web.address:
        yield web
