"""One S3 server for a module, and folders in it that no other test uses."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.spark.stores.faulty_proxy import FaultyProxy, faulty_proxy
from tests.spark.stores.s3_servers import BUCKET, S3Server, moto_server, options_at
from tidemark.spark.locations import folder_at
from tidemark.spark.stores.folder import Folder


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with moto_server() as started:
        yield started


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultyProxy]:
    with faulty_proxy(server.port) as started:
        yield started


@pytest.fixture
def s3(proxy: FaultyProxy) -> Folder:
    """A folder in S3, behind the proxy."""
    return folder_at(f"s3://{BUCKET}/{uuid4().hex}", options_at(proxy.url))
