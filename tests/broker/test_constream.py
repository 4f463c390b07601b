"""A constream by itself: how far it moves, where it stops, and which rows it says matched which member."""

from __future__ import annotations

import numpy as np

from tests.broker.desk import batch
from tests.broker.parts import AtStream, registry, ticks_of
from tidemark.broker.hosting.constream import FEW_MEMBERS, FOUND_MAX, ActiveSelectors, Constream, MatchedPiece
from tidemark.broker.turn import Turn
from tidemark.matching.audience import Audience, Members
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.ticks import TICK_MIN, Range


def members(*numbers: int) -> Members:
    return np.array(numbers, np.uint32)


class At:
    """A constream that has delivered up to 10, over a window that is filled by hand."""

    def __init__(self) -> None:
        self.stream = AtStream(is_hosted=True).stream
        self.constream = Constream(self.stream)
        self.constream.begin(10)
        self.audience = Audience(registry())

    def learn(self, base: int, upto: int, events: EventBatch | None = None, *damaged: Range) -> None:
        self.stream.window.learn(base, upto, events, damaged)

    def piece(self, upto: int, wall: int = 0) -> MatchedPiece | None:
        turn = Turn()
        turn.wall = wall
        return self.constream.piece(upto, self.audience, turn)


# How far it moves.


def test_without_subscribers_it_does_not_move() -> None:
    constream = Constream(AtStream(is_hosted=True).stream)
    constream.stream.window.learn(0, 20, None)
    assert constream.next_stop() is None


def test_it_begins_at_a_tick_and_lets_the_window_forget_what_was_before() -> None:
    at = At()
    assert (at.constream.delivered, at.constream.synced) == (10, 10)
    assert (at.stream.position, at.stream.window.floor) == (10, 10)


def test_it_holds_delivery_while_a_tick_is_unknown() -> None:
    at = At()
    at.learn(12, 30, batch(20))
    assert at.constream.next_stop() is None
    at.learn(10, 12)
    assert at.constream.next_stop() == 30


def test_it_stops_where_a_member_starts() -> None:
    at = At()
    at.learn(10, 30)
    at.constream.starting = {1: 25, 2: 17, 3: 10}  # the last one starts right here
    assert at.constream.next_stop() == 17


def test_it_does_not_move_while_a_changed_selector_is_not_on_disk() -> None:
    at = At()
    at.learn(10, 30)
    at.constream.changing = 1
    assert at.constream.next_stop() is None
    at.constream.changing = 0
    assert at.constream.next_stop() == 30


def test_after_the_last_subscriber_has_gone_it_does_not_move() -> None:
    at = At()
    at.learn(10, 30)
    at.constream.end()
    assert at.constream.next_stop() is None
    assert at.constream.synced is None


# Who starts.


def test_a_member_starts_where_knowledge_is_complete_for_it() -> None:
    at = At()
    at.constream.waiting = {1: TICK_MIN, 2: TICK_MIN}
    at.constream.expected(7, 20, 30, {1: 7, 2: 8})
    assert at.constream.starting == {1: 20}
    assert at.constream.waiting == {2: 30}


def test_a_member_does_not_start_before_the_end_of_knowledge_that_left_its_events_out() -> None:
    at = At()
    at.constream.waiting = {1: TICK_MIN}
    at.constream.expected(6, 40, 50, {1: 7})  # of later ticks, and sent first
    at.constream.expected(7, 30, 40, {1: 7})
    assert at.constream.starting == {1: 50}


def test_knowledge_of_nothing_keeps_no_member_from_starting() -> None:
    at = At()
    at.constream.waiting = {1: TICK_MIN}
    at.constream.expected(6, 40, 40, {1: 7})
    assert at.constream.waiting == {1: TICK_MIN}


def test_a_member_that_is_forgotten_neither_waits_nor_starts_nor_is_in_force() -> None:
    at = At()
    at.constream.waiting, at.constream.starting = {1: 0}, {2: 20}
    at.constream.active.set(3, 9, durable=True)
    for member in (1, 2, 3):
        at.constream.forget(member)
    assert (at.constream.waiting, at.constream.starting) == ({}, {})
    assert at.constream.active.chosen(members(3)).tolist() == []


# Gaps.


def test_a_gap_begins_where_delivery_stands_and_ends_with_what_is_lost() -> None:
    at = At()
    at.learn(10, 40)
    assert at.constream.gap(40) is None
    at.stream.window.lose(25)
    assert at.constream.gap(40) == 25
    assert at.constream.gap(20) == 20


def test_damage_is_a_gap_only_where_delivery_stands_and_ends_the_piece_before_it() -> None:
    at = At()
    at.learn(10, 40, batch(12, 30), (20, 25))
    assert at.constream.gap(40) is None
    piece = at.piece(40)
    assert piece is not None
    assert (piece.base, piece.upto, ticks_of(piece.batch)) == (10, 20, [12])
    at.constream.delivered = 20
    assert at.constream.gap(40) == 25


# Pieces.


def test_a_piece_says_which_rows_matched_which_members() -> None:
    at = At()
    at.audience.add(1, "t", "n > 5")
    at.audience.add(2, "t", "n > 5")
    at.audience.add(3, "t", "n = 1")
    at.learn(10, 40, batch(12, 14, 16, values=(9, 1, 7)))
    piece = at.piece(40)
    assert piece is not None
    found = {tuple(rows.tolist()): sorted(who.tolist()) for rows, who in piece.matches}
    assert found == {(0, 2): [1, 2], (1,): [3]}
    assert at.constream.last_event == 16


def test_a_piece_without_events_is_silence_up_to_its_end() -> None:
    at = At()
    at.learn(10, 40)
    assert at.piece(40) == MatchedPiece(10, 40, None, [])
    assert at.constream.last_event == TICK_MIN


def test_it_never_passes_an_event_whose_schema_is_not_known() -> None:
    at = At()
    at.learn(10, 40, concatenate([batch(12), batch(20, topic="strange")]))
    piece = at.piece(40)
    assert piece is not None
    assert (piece.upto, ticks_of(piece.batch)) == (19, [12])
    at.constream.delivered = 19
    assert at.piece(40) is None


def test_an_event_past_its_validity_is_counted_and_left_out() -> None:
    at = At()
    at.audience.add(1, "t", "")
    at.learn(10, 40, concatenate([batch(12, validity_ms=1), batch(14)]))
    piece = at.piece(40, wall=1_012)
    assert piece is not None
    assert (ticks_of(piece.batch), piece.expired) == ([14], 1)
    assert at.constream.last_event == 14


# Selectors in force.


def test_members_stand_for_subscribers_until_they_are_cleared() -> None:
    active = ActiveSelectors()
    active.set(7, 70, durable=True)
    active.set(300, 30, durable=False)  # beyond what there was room for
    assert active.chosen(members(300, 7, 8, 9_000)).tolist() == [30, 70]
    assert active.chosen(members(300, 7), durable=True).tolist() == [70]
    active.clear(7)
    active.clear(9_000)
    assert active.chosen(members(300, 7)).tolist() == [30]


def test_the_durable_ones_of_many_members_are_sorted() -> None:
    active = ActiveSelectors()
    for member in range(1, 2 * FEW_MEMBERS):
        active.set(member, 1_000 - member, durable=bool(member % 2))
    everyone = members(*range(1, 2 * FEW_MEMBERS))
    assert active.chosen(everyone).tolist() == [1_000 - n for n in range(1, 2 * FEW_MEMBERS)]
    assert active.chosen(everyone, durable=True).tolist() == sorted(
        1_000 - n for n in range(1, 2 * FEW_MEMBERS, 2)
    )


def test_no_more_results_are_remembered_than_allowed() -> None:
    active = ActiveSelectors()
    active.set(1, 5, durable=True)
    for n in range(FOUND_MAX + 10):
        active.chosen(members(1, n + 2))
    assert len(active._found) <= FOUND_MAX
    assert active.chosen(members(1, 2)).tolist() == [5]
