"""What a new user does first: replay, topics that come late, selectors that do not fit, open topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemark
from tests.live_node import LiveNode, live_node
from tests.waiting import PATIENCE_SECONDS, bounded
from tidemark import sync


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LiveNode]:
    with live_node(tmp_path) as made:
        yield made


def published(node: LiveNode, first: int, last: int) -> None:
    with sync.connect(node.url) as tm:
        tm.create_topic("t", "[n: int]")
        tm.publish_many("t", [{"n": n} for n in range(first, last)])


def kept(node: LiveNode) -> None:
    """Somebody is away, so that nothing is released."""
    with sync.connect(node.url) as tm:
        tm.create_topic("t", "[n: int]")
        with tm.subscribe("t", durable="keeper"):
            pass


def test_the_past_is_replayed_without_a_name_and_what_comes_follows_without_a_seam(node: LiveNode) -> None:
    kept(node)
    published(node, 0, 500)
    with sync.connect(node.url) as tm:
        with tm.subscribe("t", where="n >= 100", start="earliest", window_bytes_max=2_000) as sub:
            found = [event["n"] for _, event in zip(range(300), sub, strict=False)]
            published(node, 500, 700)
            found += [event["n"] for _, event in zip(range(300), sub, strict=False)]
            assert found == list(range(100, 700))
        with tm.subscribe("t", where="n >= 100", start="earliest") as sub:
            first = sub.next(PATIENCE_SECONDS)
            assert first is not None
            assert first["n"] == 100, "each time anew"
        names = [each["name"] for each in tm.ask("subscriptions")]
    assert names == ["keeper"], "nothing is left behind"


@bounded
async def test_a_replay_goes_on_after_a_break_without_loss_or_repetition(tmp_path: Path) -> None:
    with live_node(tmp_path) as node:
        kept(node)
        published(node, 0, 300)
        async with (
            tidemark.connect(node.url) as tm,
            tm.subscribe("t", start="earliest", window_bytes_max=1_000) as sub,
        ):
            found = [event["n"] for event in [await sub.next(PATIENCE_SECONDS) for _ in range(150)] if event]
            assert tm._link._connection is not None
            tm._link._connection.close(tidemark.NotConnectedError("cut"))
            found += [event["n"] for event in [await sub.next(PATIENCE_SECONDS) for _ in range(150)] if event]
        assert found == list(range(300))


def test_a_selector_that_does_not_fit_the_topic_when_that_comes_is_told(node: LiveNode) -> None:
    with (
        sync.connect(node.url) as tm,
        sync.connect(node.url) as other,
        tm.subscribe("late", where="prize > 5") as sub,
        tm.subscribe("late", where="price > 5") as right,
    ):
        other.create_topic("late", "[price: double]")
        other.publish("late", {"price": 7.0})
        found = right.next(PATIENCE_SECONDS)
        assert found is not None
        assert found["price"] == 7.0
        with pytest.raises(tidemark.RefusedError, match="did you mean `price`"):
            sub.next(PATIENCE_SECONDS)


def test_an_open_topic_is_declared_once_its_shapes_fit_and_stays_so(tmp_path: Path) -> None:
    with live_node(tmp_path) as node:
        with sync.connect(node.url) as tm:
            tm.publish("notes", {"text": "a", "n": 1})
            tm.publish("notes", {"text": "b"})
            with pytest.raises(tidemark.RefusedError, match="events that do not fit this schema"):
                tm.create_topic("notes", "[text: string, n: string]")
            tm.create_topic("notes", "[text: string, n: long, more: string?]")
        node.stop()
        node.start()
        with sync.connect(node.url) as tm:
            (found,) = [each for each in tm.ask("topics") if each["topic"] == "notes"]
            assert (found["open"], len(found["schemas"])) == (False, 3)
            assert found["schemas"][-1].startswith("[text: string, n: long, more")
            tm.publish("notes", {"text": "c", "n": 2, "more": "m"})
            with pytest.raises(tidemark.EncodeError):
                tm.publish("notes", {"unheard": 1})


def test_an_open_topic_is_declared_with_one_of_its_shapes(tmp_path: Path) -> None:
    with live_node(tmp_path) as node:
        with sync.connect(node.url) as tm:
            tm.publish("notes", {"text": "a", "n": 1})
            tm.publish("notes", {"text": "b"})
            tm.create_topic("notes", "[text: string, n: long]")
        node.stop()
        node.start()
        with sync.connect(node.url) as tm:
            (found,) = [each for each in tm.ask("topics") if each["topic"] == "notes"]
            assert found == {
                "topic": "notes",
                "open": False,
                "schemas": ["[text: string]", "[text: string, n: long]"],
                "generation": 0,
            }
