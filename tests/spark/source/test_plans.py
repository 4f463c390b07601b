"""Where reading starts, how far it goes and who reads what: tokens and ranges, without a broker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import ConfigError, EventsLostError
from tidemark.spark.options import ReadPoint
from tidemark.spark.source.archived import NoArchive
from tidemark.spark.source.offsets import ceiling, check_gaps, initial, latest, pubend_extents
from tidemark.spark.source.partitions import PARTITION_BYTES, TickRange, split
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.ticks.tick import Range
from tidemark.wire.answers import PubendStatus

Token = CheckpointToken
NOTHING_ARCHIVED = NoArchive().gaps


def pubend(
    name: str = "p", position: int = 100, last: int | None = 90, lost: int | None = None
) -> PubendStatus:
    return PubendStatus(name, position, last, lost, None, None, 0, 0)


def archived(upto: int) -> Any:
    def gaps(_: str, base: int, to: int) -> list[Range]:
        return [(max(base, upto), to)] if max(base, upto) < to else []

    return gaps


def test_silence_moves_no_token() -> None:
    start = Token({"p": 90})
    assert latest(start, pubend_extents([pubend(position=500)])) == start
    assert latest(Token(), pubend_extents([pubend(last=None)])) == Token()


def test_an_event_that_is_not_on_disk_yet_is_not_there() -> None:
    assert latest(Token(), pubend_extents([pubend(position=80, last=90)])) == Token({"p": 80})


def test_a_token_that_is_ahead_of_the_broker_stays() -> None:
    ahead = Token({"p": 200, "elsewhere": 7})
    assert latest(ahead, pubend_extents([pubend()])) == ahead


def test_nothing_is_read_beyond_a_ceiling_and_no_pubend_that_came_later() -> None:
    there = pubend_extents([pubend(), pubend("new")])
    assert latest(Token(), there, Token({"p": 60})) == Token({"p": 60})


def test_the_earliest_is_what_is_there() -> None:
    there = pubend_extents([pubend(lost=40), pubend("q")])
    start = ReadPoint("earliest")
    assert initial(start, there, NOTHING_ARCHIVED) == Token({"p": 40, "q": TICK_MIN})
    assert initial(start, there, archived(40)) == Token({"p": TICK_MIN, "q": TICK_MIN})


def test_the_latest_is_where_the_stream_stands() -> None:
    assert initial(ReadPoint("latest"), pubend_extents([pubend()]), NOTHING_ARCHIVED) == Token({"p": 100})


def test_a_time_is_a_tick_of_every_pubend() -> None:
    there = pubend_extents([pubend(), pubend("q")])
    assert initial(ReadPoint(tick=50), there, NOTHING_ARCHIVED) == Token({"p": 50, "q": 50})


def test_a_token_of_another_broker_is_refused() -> None:
    with pytest.raises(ConfigError, match="'other', which this broker does not host; it hosts p"):
        initial(ReadPoint(after=Token({"other": 1})), pubend_extents([pubend()]), NOTHING_ARCHIVED)


def test_a_gap_is_told_with_its_exact_range() -> None:
    there = pubend_extents([pubend(lost=70)])
    with pytest.raises(EventsLostError, match=r"\(50, 70\] of the pubend 'p' are gone") as caught:
        check_gaps(Token({"p": 50}), Token({"p": 90}), there, NOTHING_ARCHIVED, TICK_MIN)
    assert "\n" not in str(caught.value)
    assert "the broker has let go what it had up to 70." in str(caught.value)
    with pytest.raises(EventsLostError) as caught:
        check_gaps(Token({"p": 50}), Token({"p": 90}), there, archived(60), TICK_MIN)
    assert (caught.value.base, caught.value.upto) == (60, 70)


def test_what_the_archive_has_is_no_gap() -> None:
    there = pubend_extents([pubend(lost=70)])
    check_gaps(Token({"p": 50}), Token({"p": 90}), there, archived(70), TICK_MIN)
    check_gaps(Token({"p": 70}), Token({"p": 90}), there, NOTHING_ARCHIVED, TICK_MIN)


class Records:
    """A log that answers probes: events at these ticks, each a record of its own."""

    def __init__(self, ticks: list[int]) -> None:
        self._ticks = np.array(sorted(ticks), np.int64)

    def probe(self, at: int, upto: int) -> int:
        inside = self._ticks[(self._ticks > at) & (self._ticks <= upto)]
        return int(inside[0]) if len(inside) > 1 else upto

    def within(self, part: TickRange) -> int:
        return int(((self._ticks > part.base) & (self._ticks <= part.upto)).sum())


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=60, unique=True),
    st.integers(0, 40),
    st.sampled_from([TICK_MIN, 0, 500]),
)
def test_ranges_tile_the_whole(ticks: list[int], share: int, base: int) -> None:
    log, whole = Records(ticks), TickRange("p", base, max(501, *ticks))
    per_tick = share * PARTITION_BYTES / (whole.upto - min(ticks) + 1)
    parts = split(whole, lambda _: per_tick, log.probe)
    assert [part.base for part in parts] == [whole.base, *[part.upto for part in parts[:-1]]]
    assert parts[-1].upto == whole.upto
    assert all(part.base < part.upto for part in parts)


def test_little_is_read_by_one_task() -> None:
    whole = TickRange("p", TICK_MIN, 1_000)
    assert split(whole, lambda _: 1.0, Records([5, 900]).probe) == [whole]


def test_two_bursts_with_a_long_silence_between_are_cut_where_events_are() -> None:
    hour = 3_600_000_000
    ticks = [*range(0, 10_000_000, 10_000), *range(hour, hour + 10_000_000, 10_000)]
    log, whole = Records(ticks), TickRange("p", TICK_MIN, ticks[-1])
    parts = split(whole, lambda first: 8 * PARTITION_BYTES / (ticks[-1] - first), log.probe)
    assert len(parts) == 8
    assert max(log.within(part) for part in parts) < len(ticks) / 2 + 1
    assert sum(log.within(part) > 0 for part in parts) >= 4


def test_a_batch_read_ends_where_it_was_asked_to() -> None:
    there = pubend_extents([pubend(), pubend("q")])
    assert latest(Token(), there, ceiling(ReadPoint("latest"), there)) == Token({"p": 90, "q": 90})
    assert latest(Token(), there, ceiling(ReadPoint(tick=40), there)) == Token({"p": 40, "q": 40})
    assert latest(Token(), there, ceiling(ReadPoint(after=Token({"p": 30})), there)) == Token({"p": 30})
    start = Token({"p": 50})
    assert latest(start, there, ceiling(ReadPoint(after=Token({"p": 30})), there)) == start
