"""A server for the playground's own files: on this machine only, GET only, nothing but a fixed list of files."""

from __future__ import annotations

import errno
import io
import socket
import sys
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cautious.errors import Argument, InvalidInputError, MissingFileError

STATIC = Path(__file__).parent / "static"
HOST = "127.0.0.1"
DEFAULT_PORT = 8420
HTTP_PORT = 80
SECONDS_PER_REQUEST = 30.0
"""In which a request must have come as a whole, and an answer gone; the same for the wait before the next request."""
MOST_CONNECTIONS = 64
"""At a time; further ones are closed at once. A browser opens six."""
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Why a connection cannot be accepted that goes on waiting."""
SENTENCES = {
    HTTPStatus.NOT_IMPLEMENTED: "This server answers GET requests only.",
    HTTPStatus.REQUEST_URI_TOO_LONG: "The address is too long: there is no such file here.",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "The request's headers are too long.",
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED: "This server speaks HTTP 1.0 and 1.1.",
}
"""What is said of requests that http.server refuses; of others, that they cannot be read."""
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".bin": "application/octet-stream",
    ".svg": "image/svg+xml",
}
"""What the page is made of; other files in its folder are not handed out."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class PlayServer(ThreadingHTTPServer):
    """Hands out the playground until it is closed."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int | None = None, folder: Path = STATIC) -> None:
        """Listen on a port of this machine; without one, on the usual port or else on any that is free."""
        self.files = files_of(folder)
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        if port is not None and not 0 <= port <= 65535:
            raise InvalidInputError(Argument("port", port), " must lie between 0 and 65535 (0: any that is free).")
        try:
            super().__init__((HOST, DEFAULT_PORT if port is None else port), _Handler)
        except OSError as error:
            if port is None:
                super().__init__((HOST, 0), _Handler)
            elif error.errno in (errno.EADDRINUSE, errno.EACCES):
                why = "is in use" if error.errno == errno.EADDRINUSE else "is reserved for the system"
                raise InvalidInputError(
                    Argument("port", port),
                    f" {why}; name another with --port, or leave it out and a free one is taken.",
                ) from None
            else:
                raise

    def get_request(self) -> Any:
        """The next connection; where the system has none to give, a pause, since it would be asked for again at once."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in SCARCE:
                time.sleep(0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, if there are not too many of them."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection's requests."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is nothing to report."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/"


def files_of(folder: Path) -> Mapping[str, Path]:
    """Every file of the page by its path in an address."""
    index = folder / "index.html"
    if not index.is_file():
        raise MissingFileError(f"{index}: the playground's page is not there; install the package again.")
    files = {f"/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*") if path.suffix in KINDS}
    return {"/": index, **files}


def own_hosts(port: int) -> set[str]:
    """What a browser of this machine calls this server; without the port where that is HTTP's own."""
    names = {HOST, "localhost"}
    return {f"{name}:{port}" for name in names} | (names if port == HTTP_PORT else set())


class _UntilDeadline(io.RawIOBase):
    """What a socket receives, until a moment; `TimeoutError` from then on."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline = time.monotonic() + SECONDS_PER_REQUEST

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(SECONDS_PER_REQUEST)  # for what is sent: all of it, since it goes in one call


class _Handler(BaseHTTPRequestHandler):
    server: PlayServer
    server_version = "cautious"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = SECONDS_PER_REQUEST

    def setup(self) -> None:
        """Read through a deadline: the library's limit is for each read, which one byte now and then keeps to for ever."""
        super().setup()
        self._incoming = _UntilDeadline(self.connection)
        self.rfile = io.BufferedReader(self._incoming)

    def handle_one_request(self) -> None:
        """One request, which must be there as a whole in time."""
        self._incoming.deadline = time.monotonic() + SECONDS_PER_REQUEST
        super().handle_one_request()

    def do_GET(self) -> None:
        """One of the page's files, to a browser that asks this machine for it."""
        # Another host name that leads here would be another site reading the page through the user's browser.
        if self.headers.get("Host") not in own_hosts(self.server.server_port):
            self._refuse(HTTPStatus.FORBIDDEN, "This server answers requests for 127.0.0.1 only.")
            return
        path = self.server.files.get(self.path.partition("?")[0])
        try:
            body = None if path is None else path.read_bytes()
        except OSError:
            body = None
        if path is None or body is None:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such file here.")
        else:
            self._send(HTTPStatus.OK, KINDS[path.suffix], body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Plain text where the library would send a page: for other methods, and for input that is no HTTP request."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self._refuse(status, SENTENCES.get(HTTPStatus(code), "This is not a request that can be read."))

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self.close_connection = True
        self._send(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **HEADERS}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing about each request."""
