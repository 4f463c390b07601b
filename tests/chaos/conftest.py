"""What the chaos tests share: a harness for real processes, and what they all expect of the ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.lab.processes.process_harness import ProcessHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ProcessHarness]:
    """A harness; every process that a test starts with it ends with the test."""
    with ProcessHarness(tmp_path) as made:
        yield made
