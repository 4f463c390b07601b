"""S3 servers as processes of their own, for the length of a `with` block."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, eventually

BUCKET = "bucket"
SECRET = "a-secret-that-nobody-may-see"


def options_at(url: str) -> dict[str, str]:
    """The storage options with which a server at this URL is reached."""
    return {
        "aws_access_key_id": "somebody",
        "aws_secret_access_key": SECRET,
        "aws_region": "us-east-1",
        "aws_endpoint": url,
        "aws_allow_http": "true",
    }


def options_file(path: Path, server: S3Server) -> Path:
    """A file in the directory with the storage options of a server, as the command line reads it."""
    file = path / "s3.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in options_at(server.url).items()))
    file.chmod(0o600)
    return file


def gcs_options_at(url: str) -> dict[str, str]:
    """The storage options with which a server at this URL is taken for GCS, without a token."""
    account = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": ""}
    return {
        "google_service_account_key": json.dumps({**account, "private_key_id": SECRET}),
        "google_allow_http": "true",
    }


class S3Server:
    """A server that can be killed and started again at its port."""

    def __init__(self, command: list[str], port: int) -> None:
        self._command = command
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        process = self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[3]
        )
        eventually(lambda: process.poll() is not None or self._put_bucket())
        assert process.poll() is None, "the server has ended"

    def kill(self) -> None:
        """End the server as a power failure would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _put_bucket(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("PUT", f"/{BUCKET}")
            return connection.getresponse().status in (200, 409)
        except OSError:
            return False
        finally:
            connection.close()


@contextmanager
def moto_server() -> Iterator[S3Server]:
    """The server of moto, which keeps everything in memory."""
    (port,) = free_ports(1)
    server = S3Server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port)
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def disk_server(path: Path) -> Iterator[S3Server]:
    """A small server of our own, which keeps objects in a directory and so may be killed."""
    (port,) = free_ports(1)
    server = S3Server([sys.executable, "-m", "tests.spark.stores.disk_s3", str(port), str(path)], port)
    try:
        yield server
    finally:
        server.kill()
