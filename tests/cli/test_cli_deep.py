"""The commands on history: a start in the past, who waits for the archive, and who gives it back."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from tests.cli.live_broker import Spoken, Tidemark, running_broker
from tidemark.admin import SubscriptionProgress, SubscriptionStatus, lags_of, recall_of
from tidemark.cli.pubsub.sub import _begin
from tidemark.cli.watching.subs import state_of
from tidemark.ticks import CheckpointToken

TOKEN = CheckpointToken({"main": 7})


def test_a_start_is_the_earliest_a_time_a_while_ago_or_a_token() -> None:
    assert _begin("earliest") == "earliest"
    assert _begin("2026-11-15T20:00:00") == datetime(2026, 11, 15, 20, tzinfo=UTC)
    assert _begin("1794830400000001") == datetime(2026, 11, 16, 12, 0, 0, 1, tzinfo=UTC)
    assert _begin(TOKEN.text()) == TOKEN
    assert _begin("2h") < datetime.now(UTC)
    with pytest.raises(click.BadParameter, match="earliest"):
        _begin("now")


def subscription(**recalls: str | None) -> SubscriptionStatus:
    pubends = {
        name: SubscriptionProgress(1, 2, 2, 5, recall is not None, recall) for name, recall in recalls.items()
    }
    return SubscriptionStatus("one", True, True, "t", "", False, 10, "tm1.x", pubends)


def test_who_waits_for_the_archive_in_one_pubend_is_said_to_wait() -> None:
    assert recall_of(subscription(a=None, b="under way", c="waiting")) == "waiting"
    assert recall_of(subscription(a=None, b="under way")) == "under way"
    assert recall_of(subscription(a=None)) is None
    assert click.unstyle(state_of(subscription(a="waiting"))) == "waiting for the archive"
    assert click.unstyle(state_of(subscription(a="under way"))) == "from the archive"
    assert click.unstyle(state_of(subscription(a=None))) == "live"
    assert lags_of([subscription(a="waiting")])[0].recall == "waiting"


def test_a_new_subscription_starts_with_what_the_broker_still_has(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as ready:
        tidemark = Tidemark(ready["url"])
        tidemark("topic", "create", "t", "--schema", "[n: int]")
        # A durable subscription that is away keeps them at the broker.
        tidemark("sub", "t", "--durable", "keeper", "--wait", "0.1s")
        tidemark("pub", "t", "--file", "-", stdin="".join(f'{{"n": {n}}}\n' for n in range(5)))
        found = tidemark.json("sub", "t", "--durable", "late", "--start", "earliest", "--count", "5")
        assert [each["value"]["n"] for each in found] == [0, 1, 2, 3, 4]
        # It is there now, and has taken everything.
        again = tidemark("sub", "t", "--durable", "late", "--start", "earliest", "--wait", "0.3s")
        assert again == ""
        # A subscription without a name replays too, and leaves nothing behind.
        found = tidemark.json("sub", "t", "--start", "earliest", "--count", "5")
        assert [each["value"]["n"] for each in found] == [0, 1, 2, 3, 4]
        assert "not both" in tidemark(
            "sub", "t", "--durable", "x", "--start", "1h", "--from-checkpoint", TOKEN.text(), code=2
        )


def test_the_process_that_gives_history_back_starts_and_stops(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as ready:
        serving = Spoken(
            "pipeline", "serve", "--json", "--path", str(tmp_path / "archive"), "--broker", ready["url"]
        )
        tidemark = Tidemark(ready["url"])
        while not tidemark.json("top", "--once")[0]["metrics"]["pipelines"]:
            assert serving.process.poll() is None
        code, _ = serving.end(signal.SIGTERM)
        assert code == 0
        assert list((tmp_path / "archive" / "_archive" / "spool").iterdir()) == []
