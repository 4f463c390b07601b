"""Azurite, Microsoft's own server of Azure's blobs, as a process: `npm install -g azurite` installs it.

It does not know one thing that Azure does and that delta-rs relies on, the parameter `startFrom` of a list:
it lists everything. A small server before it leaves out what comes before, and passes on all else as it is.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, eventually

COMMAND = "azurite-blob"
CONTAINER = "container"
#: The account that every Azurite has, and its key, which is no secret.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"
_ENTRY = re.compile(rb"<Blob><Name>([^<]*)</Name>.*?</Blob>", re.DOTALL)


def is_installed() -> bool:
    return shutil.which(COMMAND) is not None


@contextmanager
def azurite() -> Iterator[dict[str, str]]:
    """Yields the storage options with which a server that keeps everything in memory is reached."""
    (port,) = free_ports(1)
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
    command = [COMMAND, "--blobHost", "127.0.0.1", "--blobPort", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: process.poll() is not None or _put_container(port))
        assert process.poll() is None, "the server has ended"
        with _listing_as_azure_does(port) as before:
            yield {
                "azure_storage_account_name": ACCOUNT,
                "azure_storage_account_key": KEY,
                "azure_storage_endpoint": f"http://127.0.0.1:{before}/{ACCOUNT}",
                "azure_allow_http": "true",
            }
    finally:
        process.kill()
        process.wait()


def _put_container(port: int) -> bool:
    """Make the container, which neither obstore nor delta-rs can do."""
    about = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
    lines = [f"{name}:{value}" for name, value in sorted(about.items())]
    path = f"/{ACCOUNT}/{CONTAINER}"
    signed = "\n".join(["PUT", *[""] * 11, *lines, f"/{ACCOUNT}{path}", "restype:container"])
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    about["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("PUT", f"{path}?restype=container", headers={**about, "Content-Length": "0"})
        return connection.getresponse().status in (201, 409)
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def _listing_as_azure_does(port: int) -> Iterator[int]:
    """Yields the port of a server before the one at `port`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
            try:
                connection.request(self.command, self.path, body or None, dict(self.headers.items()))
                answer = connection.getresponse()
                data, about = answer.read(), answer.getheaders()
            finally:
                connection.close()
            start = parse_qs(urlsplit(self.path).query).get("startFrom", [""])[0].encode()
            listed = _ENTRY.sub(lambda entry: entry[0] if entry[1] >= start else b"", data) if start else data
            self.send_response_only(answer.status)
            for name, value in about:
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            size = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(listed))
            self.send_header("Content-Length", size)
            self.end_headers()
            self.wfile.write(listed)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
