"""A small S3 server that keeps its objects in a directory: one that may be killed and has everything after.

It knows what the pipeline asks for: objects with conditions and ranges, lists and multiple deletions. It also
knows the conditions of GCS, whose XML interface is otherwise the same: generations in place of tags. Run it
as `python -m tests.spark.stores.disk_s3 PORT DIRECTORY`. It listens on this machine only, and trusts anybody.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

_writing = threading.Lock()


class Objects:
    """The objects of all buckets, a file for each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True)

    def file(self, key: str) -> Path:
        return self._path / quote(key, safe="")

    def tag(self, key: str) -> str | None:
        file = self.file(key)
        return f'"{hashlib.md5(file.read_bytes()).hexdigest()}"' if file.exists() else None

    def generation(self, key: str) -> int:
        """The generation of an object, which grows with every put; 0 if there is none."""
        file = self.file(key)
        return file.stat().st_mtime_ns if file.exists() else 0

    def put(
        self, key: str, data: bytes, match: str | None, none_match: str | None, generation: str | None
    ) -> str | None:
        """The tag of the new object; None if a condition does not hold."""
        with _writing:
            there, before = self.tag(key), self.generation(key)
            if (none_match is not None and there is not None) or (match is not None and match != there):
                return None
            if generation is not None and int(generation) != before:
                return None
            draft = self._path / f".draft-{threading.get_ident()}"
            draft.write_bytes(data)
            now = max(time.time_ns(), before + 1)
            os.utime(draft, ns=(now, now))
            draft.replace(self.file(key))
            return self.tag(key)

    def keys(self, prefix: str) -> list[str]:
        names = sorted(unquote(each.name) for each in self._path.iterdir() if not each.name.startswith("."))
        return [name for name in names if name.startswith(prefix)]


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    # Head and body leave in two packets, of which the second would wait 40 ms for news of the first.
    disable_nagle_algorithm = True
    objects: Objects

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "/" not in self._key:
            self._answer(200)
            return
        asked = self.headers.get
        tag = self.objects.put(
            self._key, body, asked("If-Match"), asked("If-None-Match"), asked("x-goog-if-generation-match")
        )
        self._answer(412 if tag is None else 200, tag=tag)

    def do_HEAD(self) -> None:
        self._get(with_body=False)

    def do_GET(self) -> None:
        if "/" in self._key:
            self._get(with_body=True)
        else:
            self._list()

    def do_DELETE(self) -> None:
        self.objects.file(self._key).unlink(missing_ok=True)
        self._answer(204)

    def do_POST(self) -> None:
        """Remove several objects."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        keys = [each.text or "" for each in ElementTree.fromstring(body).iter() if each.tag.endswith("Key")]
        for key in keys:
            self.objects.file(f"{self._key}/{key}").unlink(missing_ok=True)
        deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _get(self, *, with_body: bool) -> None:
        try:
            data = self.objects.file(self._key).read_bytes()
        except FileNotFoundError:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>" if with_body else b"")
            return
        tag = f'"{hashlib.md5(data).hexdigest()}"'
        modified = formatdate(self.objects.file(self._key).stat().st_mtime, usegmt=True)
        size, span = len(data), self.headers.get("Range")
        if span is None:
            self._answer(200, data if with_body else b"", tag=tag, modified=modified, size=size)
            return
        first, _, last = span.removeprefix("bytes=").partition("-")
        start = int(first) if first else size - int(last)
        end = min(size, int(last) + 1) if first and last else size
        self._answer(206, data[start:end], tag=tag, modified=modified, span=f"bytes {start}-{end - 1}/{size}")

    def _list(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        bucket = f"{self._key}/"
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        after = asked.get("start-after", "")
        found, folders = [], set()
        for key in self.objects.keys(bucket + prefix):
            name = key.removeprefix(bucket)
            if name <= after:
                continue
            rest = name.removeprefix(prefix)
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                found.append(self._entry(key, name))
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders)
        )
        listed = f"<IsTruncated>false</IsTruncated>{''.join(found)}{common}"
        self._answer(200, f"<ListBucketResult>{listed}</ListBucketResult>".encode())

    def _entry(self, key: str, name: str) -> str:
        try:
            stat = self.objects.file(key).stat()
        except FileNotFoundError:
            return ""
        from datetime import UTC, datetime

        modified = datetime.fromtimestamp(stat.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        about = f"<LastModified>{modified}</LastModified><Size>{stat.st_size}</Size>"
        return f"<Contents><Key>{escape(name)}</Key>{about}<ETag>{self.objects.tag(key)}</ETag></Contents>"

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).strip("/")

    def _answer(
        self,
        status: int,
        data: bytes = b"",
        *,
        tag: str | None = None,
        modified: str | None = None,
        size: int | None = None,
        span: str | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (("ETag", tag), ("Last-Modified", modified), ("Content-Range", span)):
            if value is not None:
                self.send_header(name, value)
        if tag is not None:
            self.send_header("x-goog-generation", str(self.objects.generation(self._key)))
        self.send_header("Content-Length", str(len(data) if size is None else size))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def main() -> None:
    """Serve until killed."""
    port, path = int(sys.argv[1]), Path(sys.argv[2])
    Handler.objects = Objects(path)
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    os.umask(0o077)
    server.serve_forever()


if __name__ == "__main__":
    main()
