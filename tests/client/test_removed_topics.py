"""Topics that are removed and created again, through the client and a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_node import LiveNode, live_node
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.errors import RefusedError


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LiveNode]:
    with live_node(tmp_path) as made:
        yield made


def test_what_is_owed_is_delivered_and_nothing_more_is_published(node: LiveNode) -> None:
    with sync.connect(node.url) as tm, sync.connect(node.url) as other:
        tm.create_topic("t", "[n: int]")
        with tm.subscribe("t", where="n > 1", durable="late"):
            pass
        tm.publish_many("t", [{"n": n} for n in range(5)])
        other.publish("t", {"n": 5})
        tm.remove_topic("t")
        for publisher in (tm, other):  # one knows of the removal, the other one does not
            for _ in range(2):
                with pytest.raises(RefusedError, match="'t' was removed: create it again") as caught:
                    publisher.publish("t", {"n": 6})
                assert caught.value.code == "removed"
        assert tm.schemas("t") == []
        with pytest.raises(RefusedError, match="there is no topic 't'"):
            tm.remove_topic("t")
        with pytest.raises(RefusedError, match="there is no topic 'never'"):
            tm.remove_topic("never")
        tm.publish("u", {"n": 1})
    with sync.connect(node.url) as tm, tm.subscribe("t", where="n > 1", durable="late") as sub:
        assert [event["n"] for _, event in zip(range(4), sub, strict=False)] == [2, 3, 4, 5]
        assert sub.next(0.2) is None


@pytest.mark.parametrize("is_open", [False, True])
def test_events_keep_the_schema_of_their_time_when_the_name_comes_back(node: LiveNode, is_open: bool) -> None:
    with sync.connect(node.url) as tm, sync.connect(node.url) as other:
        with tm.subscribe("t", durable="late"):
            pass
        if is_open:
            tm.publish("t", {"n": 1, "old": True})
            tm.publish("t", {"n": 2})
        else:
            tm.create_topic("t", "[n: int, old: boolean?]")
            tm.publish_many("t", [{"n": 1, "old": True}, {"n": 2}])
        other.publish("t", {"n": 3})
        tm.remove_topic("t")
        tm.create_topic("t", "[n: string, new: int]")
        tm.publish("t", {"n": "four", "new": 4})
        # It wrote to the earlier creation, and is told once; then it knows.
        with pytest.raises(RefusedError, match="created again"):
            other.publish("t", {"n": 5})
        other.publish("t", {"n": "five", "new": 5})
    with sync.connect(node.url) as tm, tm.subscribe("t", durable="late") as sub:
        found = [event for _, event in zip(range(5), sub, strict=False)]
        assert [event["n"] for event in found] == [1, 2, 3, "four", "five"]
        assert found[0]["old"] is True
        assert dict(found[4]) == {"n": "five", "new": 5}
        with pytest.raises(KeyError):
            _ = found[4]["old"]
        assert [str(schema) for schema in tm.schemas("t")] == [str(tm.schemas("t")[0])]


def test_a_topic_that_was_removed_can_be_open_and_declared_in_turn(node: LiveNode) -> None:
    with sync.connect(node.url) as tm:
        for _ in range(3):
            tm.create_topic("t", "[n: int]")
            tm.publish("t", {"n": 1})
            tm.remove_topic("t")
            tm.create_topic("t")
            tm.publish("t", {"anything": [1, 2]})
            tm.remove_topic("t")
        assert tm.schemas("t") == []


def test_removals_survive_the_broker(tmp_path: Path) -> None:
    with live_node(tmp_path) as node, sync.connect(node.url) as tm:
        tm.create_topic("t", "[n: int]")
        with tm.subscribe("t", durable="late"):
            pass
        tm.publish("t", {"n": 1})
        tm.remove_topic("t")
        tm.create_topic("u", "[n: int]")
        tm.remove_topic("u")
        tm.create_topic("u", "[n: string]")
    with live_node(tmp_path) as node, sync.connect(node.url) as tm:
        with pytest.raises(RefusedError, match="was removed"):
            tm.publish("t", {"n": 2})
        tm.publish("u", {"n": "two"})
        with tm.subscribe("t", durable="late") as sub:
            found = sub.next(PATIENCE_SECONDS)
            assert found is not None
            assert found["n"] == 1
