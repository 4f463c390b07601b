"""What the tests of the tables share: both kinds of them, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.tables.kinds import InMemory, OnDisk


@pytest.fixture(params=["sqlite", "memory"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> OnDisk | InMemory:
    return OnDisk(tmp_path / "tables.db") if request.param == "sqlite" else InMemory()
