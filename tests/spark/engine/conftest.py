"""A broker with the events that the jobs of `engine_jobs.py` read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_node import LiveNode, live_node
from tests.spark.engine.engine_jobs import EVENTS, SCHEMA
from tidemark import sync


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[LiveNode]:
    """The topic `numbers` has EVENTS events, and `copies` has none."""
    with live_node(tmp_path, **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        for topic in ("numbers", "copies"):
            tm.create_topic(topic, SCHEMA)
        tm.subscribe("numbers", durable="keeper").close()
        tm.publish_many("numbers", [{"n": n, "text": f"t{n}"} for n in range(EVENTS)])
        yield node
