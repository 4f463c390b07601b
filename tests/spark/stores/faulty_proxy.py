"""A proxy before an S3 server that fails as networks and servers do, when a test asks for it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

#: pass: as if it were not there. slow: an answer that takes a while. error: the server cannot. cut before:
#: the connection ends before the server has heard of it; cut after: when it has, and before the answer.
Fault = Literal["pass", "slow", "error", "cut before", "cut after"]
SLOW_SECONDS = 0.3
_NOT_PASSED_ON = ("host", "connection", "content-length", "transfer-encoding")


class FaultyProxy:
    """Passes requests on to a server at a port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        #: what happens to a request: of its method and its path
        self.fault: Callable[[str, str], Fault] = lambda *_: "pass"
        #: conditions of puts are left out, as some stores do
        self.ignores_conditions = False
        self.faults = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def once(self, fault: Fault, method: str, part: str) -> None:
        """Let the next request of this method, with `part` in its path, fail."""
        left = [fault]

        def choose(asked: str, path: str) -> Fault:
            is_meant = asked == method and part in path
            return left.pop() if left and is_meant else "pass"

        self.fault = choose

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body leave in two packets, of which the second would wait 40 ms for news of the first.
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fault = proxy.fault(self.command, self.path)
                proxy.faults += fault != "pass"
                if fault == "cut before":
                    self.close_connection = True
                    return
                if fault == "error":
                    self._answer(500, {}, b"<Error><Code>InternalError</Code></Error>")
                    return
                if fault == "slow":
                    time.sleep(SLOW_SECONDS)
                status, headers, data = self._passed_on(body)
                if fault == "cut after":
                    self.close_connection = True
                    return
                self._answer(status, headers, data)

            def _passed_on(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
                conditions = ("if-match", "if-none-match") if proxy.ignores_conditions else ()
                headers = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in (*_NOT_PASSED_ON, *conditions)
                }
                connection = http.client.HTTPConnection("127.0.0.1", proxy._port)
                try:
                    connection.request(self.command, self.path, body, headers)
                    answer = connection.getresponse()
                    return answer.status, dict(answer.getheaders()), answer.read()
                except OSError:
                    return 503, {}, b"<Error><Code>ServiceUnavailable</Code></Error>"
                finally:
                    connection.close()

            def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("connection", "transfer-encoding", "date", "server") and (
                        name.lower() != "content-length" or self.command == "HEAD"
                    ):
                        self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(data)))
                # Whoever asked may have gone.
                with suppress(OSError):
                    self.end_headers()
                    self.wfile.write(data)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        return Handler


@contextmanager
def faulty_proxy(port: int) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
