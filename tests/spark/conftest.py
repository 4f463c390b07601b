"""What tests of the pipeline share: a broker that keeps its events for the archive, and two topics of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_node import LiveNode, live_node
from tidemark import sync


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LiveNode]:
    with live_node(tmp_path, **{"retention.archive": "true"}) as running:
        yield running


@pytest.fixture
def tm(node: LiveNode) -> Iterator[sync.Client]:
    with sync.connect(node.url) as client:
        client.create_topic("trades.us", "[symbol: string, price: double, qty: int?]")
        client.create_topic("news", "[text: string, price: string]")
        yield client
