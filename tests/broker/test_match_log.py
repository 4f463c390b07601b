"""MatchLog: which durable subscribers the PFS is told of, under which numbers, and what counts as synced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.desk import batch
from tests.broker.parts import AtStream, ticks_of
from tidemark.broker.effects import AppendPfs, SyncPfs
from tidemark.broker.hosting import match_log
from tidemark.broker.hosting.catchup import Catchup
from tidemark.broker.hosting.constream import Constream, MatchedPiece
from tidemark.broker.hosting.match_log import MatchLog, RecentMatches
from tidemark.matching.audience import Members, Rows
from tidemark.message.batches.batch import EventBatch


def rows(*numbers: int) -> Rows:
    return np.array(numbers, np.int64)


def members(*numbers: int) -> Members:
    return np.array(numbers, np.uint32)


class Writer:
    """A match log and a constream: member 10n stands for subscriber n, durable up to 5."""

    def __init__(self) -> None:
        at = AtStream(is_hosted=True)
        self.turn = at.turn
        self.log = MatchLog(at.turn)
        self.went = 0
        self.constream = Constream(at.stream)
        self.constream.begin(0)
        for number in range(1, 8):
            self.constream.active.set(10 * number, number, durable=number <= 5)

    def write(
        self, upto: int, events: EventBatch | None, *matches: tuple[Rows, Members], pubend: str = "p"
    ) -> tuple[int, int, list[tuple[int, int]], dict[int, list[int]]]:
        """Base, upto, (tick, set) and the definitions that the PFS is given for a piece."""
        piece = MatchedPiece(0, upto, events, list(matches))
        self.log.write(pubend, self.constream, piece)
        (effect,) = self.turn.out.take()
        assert isinstance(effect, AppendPfs)
        assert effect.pubend == pubend
        pairs = list(zip(effect.ticks.tolist(), effect.sets.tolist(), strict=True))
        return effect.base, effect.upto, pairs, {n: each.tolist() for n, each in effect.members.items()}

    def go_on(self, upto: int, *matches: tuple[int, Members], base: int | None = None) -> None:
        """Write the piece that follows the last one, or begins at `base`: (tick, members) of each event."""
        events = batch(*(tick for tick, _ in matches)) if matches else None
        begin = self.went if base is None else base
        groups = [(rows(row), who) for row, (_, who) in enumerate(matches)]
        self.log.write("p", self.constream, MatchedPiece(begin, upto, events, groups))
        self.went = upto

    def recent(self, subscriber: int, base: int) -> tuple[int, list[int]] | None:
        found = self.log.recent("p", subscriber, base)
        return None if found is None else (found[0], found[1].tolist())

    def sync(self) -> None:
        self.turn.pfs.flush()
        (sync,) = self.turn.out.take()
        assert isinstance(sync, SyncPfs)
        self.turn.pfs.synced(sync.ticket)


def test_a_piece_without_matches_tells_the_pfs_that_nothing_matched() -> None:
    at = Writer()
    assert at.write(20, batch(12, 15)) == (0, 20, [], {})
    assert at.write(30, None) == (0, 30, [], {})


def test_every_matched_row_gets_the_number_of_its_set_of_subscribers() -> None:
    at = Writer()
    written = at.write(20, batch(11, 12, 13), (rows(0, 2), members(10, 20)))
    assert written == (0, 20, [(11, 1), (13, 1)], {1: [1, 2]})


def test_matches_of_several_sets_are_written_in_the_order_of_their_ticks() -> None:
    at = Writer()
    written = at.write(20, batch(11, 12, 13), (rows(1), members(10)), (rows(0, 2), members(20)))
    assert written == (0, 20, [(11, 2), (12, 1), (13, 2)], {1: [1], 2: [2]})


def test_the_members_of_a_set_are_sorted_whatever_their_order() -> None:
    at = Writer()
    assert at.write(20, batch(11), (rows(0), members(50, 10, 30)))[3] == {1: [1, 3, 5]}


def test_subscribers_that_are_not_durable_are_not_written() -> None:
    at = Writer()
    assert at.write(20, batch(11), (rows(0), members(20, 60, 70)))[2:] == ([(11, 1)], {1: [2]})
    assert at.write(20, batch(11), (rows(0), members(60, 70)))[2:] == ([], {})


def test_a_member_that_is_not_in_force_counts_for_nothing() -> None:
    at = Writer()
    at.constream.active.clear(20)
    assert at.write(20, batch(11), (rows(0), members(10, 20)))[3] == {1: [1]}


def test_a_set_has_the_same_number_in_every_piece_and_at_every_pubend() -> None:
    at = Writer()
    at.write(20, batch(11), (rows(0), members(10)))
    assert at.write(30, batch(21), (rows(0), members(20)))[3] == {2: [2]}
    assert at.write(40, batch(31), (rows(0), members(10)), pubend="q")[2:] == ([(31, 1)], {1: [1]})


def test_sets_that_differ_only_by_subscribers_that_are_not_durable_are_one() -> None:
    at = Writer()
    at.write(20, batch(11), (rows(0), members(10, 60)))
    assert at.write(30, batch(21), (rows(0), members(10, 70)))[3] == {1: [1]}


def test_a_set_that_was_forgotten_gets_a_number_that_no_other_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_log, "MATCH_SETS_MAX", 2)
    at = Writer()
    for number in (10, 20, 30):
        at.write(20, batch(11), (rows(0), members(number)))
    assert at.write(30, batch(21), (rows(0), members(10)))[3] == {4: [1]}


def test_delivery_counts_as_synced_only_once_the_pfs_has_it_on_disk() -> None:
    at = Writer()
    at.write(20, None)
    assert at.constream.synced == 0
    at.sync()
    assert at.constream.synced == 20


def test_what_is_synced_never_goes_back() -> None:
    at = Writer()
    at.write(30, None)
    at.write(20, None)
    at.sync()
    assert at.constream.synced == 30


def test_a_sync_says_nothing_of_a_constream_whose_subscribers_have_gone_meanwhile() -> None:
    at = Writer()
    at.write(20, None)
    at.constream.end()
    at.sync()
    assert at.constream.synced is None


def test_the_ticks_are_those_of_the_events_that_the_piece_still_has() -> None:
    at = Writer()
    events = batch(11, 12, 13).slice(1, 3)
    assert ticks_of(events) == [12, 13]
    assert at.write(20, events, (rows(0), members(10)))[2] == [(12, 1)]


# What is remembered.


def test_while_somebody_catches_up_memory_has_what_was_written_since() -> None:
    at = Writer()
    at.constream.catchups[1] = Catchup(0)
    at.go_on(20, (11, members(10)), (12, members(10, 20)), (13, members(30)))
    at.go_on(30)
    at.go_on(40, (31, members(10)))
    assert at.recent(1, 0) == (40, [11, 12, 31])
    assert at.recent(1, 11) == (40, [12, 31])
    assert at.recent(2, 0) == (40, [12])
    assert at.recent(2, 25) == (40, [])
    assert at.recent(5, 0) == (40, [])
    assert at.recent(1, 40) is None  # there is nothing later


def test_while_nobody_catches_up_nothing_is_remembered() -> None:
    at = Writer()
    at.constream.catchups[1] = Catchup(0)
    at.go_on(20, (11, members(10)))
    del at.constream.catchups[1]
    at.go_on(30, (21, members(10)))
    assert at.recent(1, 0) is None
    at.constream.catchups[1] = Catchup(0)
    at.go_on(40, (31, members(10)))
    assert at.recent(1, 20) is None
    assert at.recent(1, 30) == (40, [31])


def test_memory_does_not_reach_over_what_was_lost() -> None:
    at = Writer()
    at.constream.catchups[1] = Catchup(0)
    at.go_on(20, (11, members(10)))
    at.go_on(50, (41, members(10)), base=35)
    assert at.recent(1, 0) is None
    assert at.recent(1, 20) is None
    assert at.recent(1, 35) == (50, [41])


def test_memory_is_bounded_and_lets_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_log, "RECENT_BYTES_MAX", 3_000)
    at = Writer()
    at.constream.catchups[1] = Catchup(0)
    for upto in range(10, 110, 10):
        at.go_on(upto, (upto - 5, members(10)))
    assert at.recent(1, 0) is None
    assert at.recent(1, 70) == (100, [75, 85, 95])


def test_a_piece_that_is_larger_than_memory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_log, "RECENT_BYTES_MAX", 100)
    at = Writer()
    at.constream.catchups[1] = Catchup(0)
    at.go_on(10, (5, members(10)))
    assert at.recent(1, 0) is None


Piece = list[frozenset[int]]


@given(st.lists(st.lists(st.frozensets(st.integers(1, 6)), max_size=4), max_size=12), st.integers(0, 60))
def test_memory_answers_as_a_list_of_all_matches_would(pieces: list[Piece], base: int) -> None:
    recent, plain, upto, numbers = RecentMatches(0), list[tuple[int, frozenset[int]]](), 0, dict[Any, int]()
    for piece in pieces:
        first, matched = upto + 1, [(upto + 1 + at, who) for at, who in enumerate(piece) if who]
        sets = [numbers.setdefault(who, len(numbers) + 1) for _, who in matched]
        known = {numbers[who]: np.array(sorted(who), np.uint32) for _, who in matched}
        ticks = np.array([tick for tick, _ in matched], np.int64)
        upto = first + 4
        numbered = np.array(sets, np.uint32)
        recent.add(AppendPfs("p", first - 1, upto, ticks, numbered, numbered, known))
        plain += matched
    for subscriber in range(8):
        found = recent.beyond(base, subscriber)
        if base > upto:
            assert found is None
        else:
            assert found is not None
            assert found.tolist() == [tick for tick, who in plain if tick > base and subscriber in who]
