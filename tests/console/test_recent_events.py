"""The newest events of several logs: paged without leaving out or repeating one, within a budget of bytes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.console import recent_events
from tidemark.console.recent_events import HostedPubend, newest_events

EVENT_BYTES = 1_000


class FakeLog:
    """A pubend's log with an event at each tick, read up to what is on disk and so much at a time."""

    def __init__(self, name: str, ticks: list[int], synced: int | None = None) -> None:
        self.name = name
        self.ticks = sorted(ticks)
        self.synced = synced

    def hosted(self) -> HostedPubend:
        last = self.ticks[-1] if self.ticks else None
        status = SimpleNamespace(pubend=self.name, last_event=last, lost=None)
        return HostedPubend(self, status)  # type: ignore[arg-type]

    async def _fetch(self, pubend: str, base: int, upto: int, *_: Any, bytes_max: int) -> Any:
        upto = upto if self.synced is None else max(base, min(upto, self.synced))
        found = [tick for tick in self.ticks if base < tick <= upto]
        few = found[: max(1, bytes_max // EVENT_BYTES)]
        end = upto if len(few) == len(found) else few[-1]
        return SimpleNamespace(
            pubend=pubend, upto=end, batch=SimpleNamespace(ticks=few, data=b"x" * len(few))
        )


@pytest.fixture(autouse=True)
def fake_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async def events_of(client: object, pubend: str, base: int, upto: int, batch: Any) -> list[Any]:
        del client, base, upto
        return [SimpleNamespace(tick=tick, pubend=pubend) for tick in batch.ticks]

    monkeypatch.setattr(recent_events, "events_of", events_of)


def found(logs: list[FakeLog], count: int, budget: int, before: int | None = None) -> Any:
    hosted = [each.hosted() for each in logs]
    return asyncio.run(newest_events(hosted, "t", "", count, budget, before=before))


_TICKS = st.lists(st.integers(1, 60_000_000), max_size=60, unique=True)


@given(st.lists(_TICKS, min_size=1, max_size=3), st.integers(1, 20), st.sampled_from((1 << 17, 1 << 20)))
def test_pages_leave_out_and_repeat_nothing(ticks: list[list[int]], count: int, budget: int) -> None:
    logs = [FakeLog(f"p{at}", each) for at, each in enumerate(ticks)]
    seen: list[tuple[int, str]] = []
    before: int | None = None
    while True:
        page = found(logs, count, budget, before)
        seen += [(event.tick, event.pubend) for event in page.events]
        if page.further is None:
            break
        assert before is None or page.further < before
        before = page.further
    assert seen == sorted(((tick, log.name) for log in logs for tick in log.ticks), reverse=True)


def test_what_is_not_on_disk_yet_hides_nothing_that_is() -> None:
    log = FakeLog("p", [1_000_000 + n for n in range(100)], synced=1_000_049)
    page = found([log], 10, 1 << 20)
    assert [event.tick for event in page.events] == [1_000_049 - n for n in range(10)]
