"""An archive that does not follow is an alarm, before the disk is full."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemark.node.process.archiving import BEHIND_SECONDS_MAX, ArchiveWatch
from tidemark.wire.answers import PubendStatus

PUBEND = PubendStatus(
    pubend="main",
    position=20,
    last_event=20,
    lost=None,
    released=None,
    archived=10,
    bytes=100,
    publishers=1,
)


class Watched:
    """A watch whose time the test moves on."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self.now = 0.0
        self._watch = ArchiveWatch(max_bytes, lambda: self.now)

    def look(self, **more: Any) -> str | None:
        return self._watch.look(replace(PUBEND, **more))


def test_an_archive_that_gets_no_further_is_an_alarm_until_it_does() -> None:
    watched = Watched()
    assert watched.look() is None
    watched.now += BEHIND_SECONDS_MAX
    said = watched.look()
    assert said is not None
    assert "tidemark pipeline archive" in said
    assert watched.look(last_event=30) == said
    assert watched.look(archived=15) is None
    watched.now += BEHIND_SECONDS_MAX
    assert watched.look(archived=20) is None
    assert watched.look(archived=20, last_event=25) is None


def test_it_is_said_earlier_when_there_is_too_much_already() -> None:
    watched = Watched(max_bytes=50)
    assert watched.look() is None
    watched.now += BEHIND_SECONDS_MAX / 10
    assert watched.look(bytes=50) is None
    assert "more than retention.max_bytes" in (watched.look() or "")


def test_without_an_archive_or_events_there_is_nothing_to_say() -> None:
    watched = Watched()
    for more in ({"archived": None}, {"last_event": None}, {"lost": 20}, {"archived": 20}):
        assert watched.look(**more) is None
        watched.now += 2 * BEHIND_SECONDS_MAX
        assert watched.look(**more) is None
