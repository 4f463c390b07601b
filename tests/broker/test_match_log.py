"""MatchLog: which durable subscribers the PFS is told of, under which numbers, and what counts as synced."""

from __future__ import annotations

import numpy as np
import pytest

from tests.broker.desk import batch
from tests.broker.parts import AtStream, ticks_of
from tidemark.broker.effects import AppendPfs, SyncPfs
from tidemark.broker.hosting import match_log
from tidemark.broker.hosting.constream import Constream, MatchedPiece
from tidemark.broker.hosting.match_log import MatchLog
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
