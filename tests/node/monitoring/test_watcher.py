"""What a watcher measures on a running broker: each event that somebody wants once, each batch once."""

from __future__ import annotations

import re
from pathlib import Path

from tests.live_node import live_node
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync


def count(page: str, metric: str) -> int:
    found = re.search(rf"^tidemark_{metric}_count (\d+)", page, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_the_latency_of_every_wanted_event_is_counted_once_and_what_nobody_wants_is_not(
    tmp_path: Path,
) -> None:
    with live_node(tmp_path) as node, sync.connect(node.url) as tm:
        tm.create_topic("t", "[n: int]")
        with tm.subscribe("t", where="n < 5") as small, tm.subscribe("t", where="n < 3 OR n = 8") as few:
            eventually(lambda: small.checkpoint and few.checkpoint)
            tm.publish_many("t", [{"n": n} for n in range(10)])
            assert [small.next(PATIENCE_SECONDS)["n"] for _ in range(5)] == [0, 1, 2, 3, 4]  # type: ignore[index]
            page = node.metrics()
        assert count(page, "delivery_latency_seconds") == 6
        assert count(page, "matching_seconds") == 1
        tm.publish_many("t", [{"n": n} for n in range(10)])
        assert count(node.metrics(), "delivery_latency_seconds") == 6
