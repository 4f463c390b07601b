"""InFlight: what publishers have on the way to the disk, in shares that depend on how many publish."""

from __future__ import annotations

import pytest

from tidemark.node.disk.backlog import BATCH_WEIGHT, CROWD_PART, RECENT_SYNCS, SHARE_MIN, InFlight

MOST = 4 << 20


def test_one_alone_has_all_of_it_and_two_have_a_part_each() -> None:
    alone = InFlight(MOST)
    alone.add(1, 1, 0, MOST - BATCH_WEIGHT)
    assert not alone.is_over(1)
    both = InFlight(MOST)
    both.add(2, 1, 0, 100)
    share = MOST // CROWD_PART // 2
    both.add(1, 1, 100, 100 + share - BATCH_WEIGHT)
    assert not both.is_over(1)
    both.add(1, 1, 100 + share, 101 + share)
    assert both.is_over(1)
    assert not both.is_over(2)
    both.done(100 + share - BATCH_WEIGHT)
    assert both.has_room(1)
    assert not both.has(2)


def test_one_that_has_published_lately_still_counts_and_not_for_ever() -> None:
    flights = InFlight(MOST)
    flights.add(2, 1, 0, 100)
    flights.done(100)
    flights.add(1, 1, 100, MOST // 2)
    assert flights.is_over(1)
    for _ in range(RECENT_SYNCS + 1):
        flights.done(100)
    assert not flights.is_over(1)


def test_one_that_is_gone_does_not_count() -> None:
    flights = InFlight(MOST)
    flights.add(2, 1, 0, 100)
    flights.add(1, 1, 100, MOST // 2)
    flights.forget(2)
    assert not flights.is_over(1)


def test_many_have_the_least_share_each() -> None:
    flights = InFlight(MOST)
    for client in range(1_000):
        flights.add(client, 1, client, client + 1)
    assert not flights.is_over(7)
    flights.add(7, 1, 1_000, 1_000 + SHARE_MIN)
    assert flights.is_over(7)


def test_what_is_done_with_events_counts_by_their_bytes_and_little_by_their_batches() -> None:
    in_flight = InFlight(1 << 20)
    in_flight.add(1, 1, 0, 1_000)
    in_flight.add(2, 1, 1_000, 301_000)
    parts = dict(in_flight.parts())
    assert sum(parts.values()) == pytest.approx(1.0)
    assert parts[1] < 0.02
    in_flight.done(301_000)
    assert in_flight.parts() == []
