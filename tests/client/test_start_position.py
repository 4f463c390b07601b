"""Where a new durable subscription starts."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tidemark.client.subscribing.start_position import check_start, starting_token, tick_before
from tidemark.errors import ClientError, RefusedError
from tidemark.ticks import CheckpointToken
from tidemark.wire.answers import StreamStatus

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


class Broker:
    """One that knows some subscriptions, and has two pubends."""

    def __init__(self, *names: str, code: str = "unknown") -> None:
        self._names = names
        self._code = code

    async def ask(self, what: str, **arguments: Any) -> Any:
        if what == "streams":
            return [StreamStatus(name, 1, 1, 1, 0, 0, None, (), 0).to_json() for name in ("a", "b")]
        assert what == "subscription"
        if arguments["name"] not in self._names:
            raise RefusedError("there is none", what="ask", name="1", code=self._code)
        return {}


def token(broker: Broker, start: Any) -> CheckpointToken | None:
    return asyncio.run(starting_token(broker.ask, "mine", start))


def test_the_earliest_start_is_before_any_event_of_any_pubend() -> None:
    assert token(Broker("yours"), "earliest") == CheckpointToken({"a": 0, "b": 0})


def test_a_time_is_a_tick_whose_own_event_is_included() -> None:
    moment = datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC)
    assert token(Broker(), moment) == CheckpointToken({"a": 1_000_004, "b": 1_000_004})


def test_a_token_is_taken_as_it_is() -> None:
    assert token(Broker(), CheckpointToken({"b": 7})) == CheckpointToken({"b": 7})


def test_a_subscription_that_is_there_has_its_own_place() -> None:
    assert token(Broker("mine"), "earliest") is None


def test_another_refusal_is_not_taken_for_absence() -> None:
    with pytest.raises(RefusedError):
        token(Broker(code="limit"), "earliest")


def test_a_time_without_a_zone_is_utc_and_microseconds_are_exact() -> None:
    assert tick_before(datetime(2026, 11, 16, 12, 0, 0, 123457)) == 1_794_830_400_123_456
    elsewhere = timezone(timedelta(hours=2))
    assert tick_before(datetime(2026, 11, 16, 14, tzinfo=elsewhere)) == tick_before(NOW)


@pytest.mark.parametrize(
    ("start", "reason"),
    [("latest", "earliest"), (17, "earliest"), (NOW + timedelta(seconds=1), "past")],
)
def test_what_cannot_be_meant_is_refused(start: Any, reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        check_start(start, NOW)


def test_what_can_be_meant_is_not() -> None:
    for start in (None, "earliest", NOW, CheckpointToken({"a": 1})):
        check_start(start, NOW)


def test_a_subscription_without_a_name_is_at_no_broker() -> None:
    found = asyncio.run(starting_token(Broker("mine").ask, None, "earliest"))
    assert found == CheckpointToken({"a": 0, "b": 0})
