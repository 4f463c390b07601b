"""One server of each kind for a module, and folders in it that no other test uses."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.spark.stores import azurite
from tests.spark.stores.faulty_proxy import FaultyProxy, faulty_proxy
from tests.spark.stores.s3_servers import (
    BUCKET,
    S3Server,
    disk_server,
    gcs_options_at,
    moto_server,
    options_at,
)
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


@pytest.fixture(scope="module")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server of our own with the conditions of GCS: no other speaks the interface that obstore uses."""
    with disk_server(tmp_path_factory.mktemp("gcs")) as started:
        yield started


@pytest.fixture(scope="module")
def azure_options() -> Iterator[dict[str, str]]:
    if not azurite.is_installed():
        pytest.skip("azurite is not installed")
    with azurite.azurite() as options:
        yield options


@pytest.fixture
def gcs(gcs_server: S3Server) -> Folder:
    return folder_at(f"gs://{BUCKET}/{uuid4().hex}", gcs_options_at(gcs_server.url))


@pytest.fixture
def azure(azure_options: dict[str, str]) -> Folder:
    host = f"{azurite.CONTAINER}@{azurite.ACCOUNT}.dfs.core.windows.net"
    return folder_at(f"abfss://{host}/{uuid4().hex}", azure_options)


@pytest.fixture(params=["s3", "gcs", "azure"])
def store(request: pytest.FixtureRequest) -> Folder:
    """A folder in each kind of object store."""
    found: Folder = request.getfixturevalue(request.param)
    return found
