"""What all tests share: one Spark session for those that need a JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

#: A JVM that a test starts lives for seconds: without the optimising compiler and with the plain collector it
#: takes about half the CPU. Every process that a test starts inherits the variable.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file run in one process, one after the other, and all that need a JVM share one."""
    for item in items:
        needs_jvm = "spark" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("spark" if needs_jvm else str(item.path)))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local Spark session; starting it takes seconds, so there is one for the whole run."""
    from tidemark.spark.engine.session import session

    scratch = tmp_path_factory.mktemp("spark")
    running = session(
        "tests", **{"spark.sql.warehouse.dir": str(scratch / "warehouse"), "spark.local.dir": str(scratch)}
    )
    yield running
    running.stop()
