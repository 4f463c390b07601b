"""The inbox of a subscription: tiling, duplicates, holes, positions, credit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.client.subscribing.inbox import DAMAGED, NOT_KEPT, RECONNECTED, RELEASED, Inbox
from tidemark.errors import WireError
from tidemark.message import BatchBuilder, EventBatch, Schema, Shape
from tidemark.wire.frames import Deliver, Gap

SCHEMA = Schema.parse("[n: int]")
WINDOW = 1_000


def batch(*ticks: int) -> EventBatch:
    builder = BatchBuilder()
    for tick in ticks:
        builder.add(Shape("t", SCHEMA.fingerprint), SCHEMA.encode({"n": tick % 1_000}))
    built = builder.build()
    built.fill_ticks(np.array(ticks, np.int64))
    return built


def deliver(base: int, upto: int, *ticks: int, pubend: str = "p") -> Deliver:
    return Deliver("s", pubend, base, upto, batch(*ticks) if ticks else None)


def hand_out_all(inbox: Inbox) -> list[int]:
    """Every tick that waits, taken as an application does; the last is not consumed yet."""
    found: list[int] = []
    cursor = inbox.cursor
    while True:
        if cursor is None or cursor.is_finished:
            cursor = inbox.take()
            if cursor is None:
                return found
        row = cursor.done = cursor.out
        cursor.out += 1
        if cursor.entry.batch is not None:
            found.append(int(cursor.entry.batch.ticks[row]))


def test_an_event_is_handed_out_before_it_is_consumed() -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({"p": 0}, repeats=False, missed=NOT_KEPT)
    assert inbox.delivered(deliver(0, 10, 3, 7), missed=NOT_KEPT)
    cursor = inbox.take()
    assert cursor is not None
    cursor.out = 1
    assert (inbox.consumed(), inbox.handed()) == ({"p": 0}, {"p": 3})
    cursor.done, cursor.out = 1, 2
    # Behind the last event nothing is left in the piece: the position is its end.
    assert (inbox.consumed(), inbox.handed()) == ({"p": 3}, {"p": 10})
    assert inbox.take() is None
    assert inbox.consumed() == inbox.handed() == {"p": 10}


@given(st.sets(st.integers(0, 7)), st.booleans())
@settings(derandomize=True, deadline=None, max_examples=60)
def test_events_that_cannot_be_decoded_become_gaps_in_their_places(damaged: set[int], more: bool) -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({"p": 0}, repeats=False, missed=NOT_KEPT)
    frame = deliver(0, 100, *range(10, 90, 10))
    inbox.delivered(frame, missed=NOT_KEPT)
    if more:
        inbox.delivered(deliver(100, 120, 110), missed=NOT_KEPT)
    assert frame.batch is not None
    rows = np.array([row not in damaged for row in range(8)])
    kept = frame.batch.take(rows) if rows.any() else None
    if damaged:
        inbox.leave_out(kept, [(10 * row + 9, 10 * row + 10) for row in sorted(damaged)])
    found: list[tuple[int, str]] = []
    at = 0
    while (cursor := inbox.take()) is not None:
        cursor.out = cursor.done = len(cursor.positions)
        assert cursor.entry.base >= at
        at = cursor.entry.upto
        if cursor.entry.batch is None:
            found.append((cursor.entry.upto, cursor.entry.reason))
        else:
            found += [(tick, "") for tick in cursor.entry.batch.ticks.tolist()]
    expected = [(10 * row + 10, DAMAGED if row in damaged else "") for row in range(8)]
    assert found == expected + ([(110, "")] if more else [])
    assert inbox.handed() == {"p": 120 if more else 100}
    assert inbox.credit == WINDOW


def test_silence_moves_the_position_when_nothing_waits_before_it() -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({"p": 0}, repeats=False, missed=NOT_KEPT)
    assert not inbox.delivered(deliver(0, 5), missed=NOT_KEPT)
    assert inbox.handed() == {"p": 5}


def test_silence_behind_events_waits_for_them_and_stays_one_piece() -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({"p": 0}, repeats=False, missed=NOT_KEPT)
    inbox.delivered(deliver(0, 5, 5), missed=NOT_KEPT)
    for upto in range(6, 1_000):
        inbox.delivered(deliver(upto - 1, upto), missed=NOT_KEPT)
    assert inbox.handed() == {"p": 0}
    assert len(inbox._entries) == 2
    assert hand_out_all(inbox) == [5]
    assert inbox.handed() == {"p": 999}


def test_a_start_notice_tells_where_a_new_pubend_begins() -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({}, repeats=False, missed=NOT_KEPT)
    assert not inbox.delivered(deliver(40, 40), missed=NOT_KEPT)
    assert inbox.handed() == {"p": 40}


def test_a_hole_in_a_session_is_an_error() -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({"p": 0}, repeats=False, missed=NOT_KEPT)
    inbox.delivered(deliver(0, 5), missed=NOT_KEPT)
    with pytest.raises(WireError, match="a frame is missing"):
        inbox.delivered(deliver(6, 9), missed=NOT_KEPT)


def test_a_start_beyond_the_token_is_a_gap() -> None:
    inbox = Inbox(WINDOW, {"p": 10})
    inbox.connected({"p": 10}, repeats=False, missed=NOT_KEPT)
    assert inbox.delivered(deliver(30, 30), missed=NOT_KEPT)
    cursor = inbox.take()
    assert cursor is not None
    assert (cursor.entry.base, cursor.entry.upto, cursor.entry.reason) == (10, 30, NOT_KEPT)


def test_what_was_missed_while_away_is_a_gap_before_anything_is_delivered() -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({"p": 0}, repeats=False, missed=RECONNECTED)
    inbox.delivered(deliver(0, 10, 2), missed=RECONNECTED)
    assert inbox.connected({"p": 30}, repeats=False, missed=RECONNECTED)
    assert not inbox.connected({"p": 30}, repeats=False, missed=RECONNECTED)
    pieces = [(piece.base, piece.upto, piece.reason) for piece in inbox._entries]
    assert pieces == [(0, 10, ""), (10, 30, RECONNECTED)]
    assert inbox.delivered(deliver(30, 40, 35), missed=RECONNECTED)


def test_a_gap_is_handed_out_and_consumed_like_an_event() -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({"p": 0}, repeats=False, missed=NOT_KEPT)
    assert inbox.let_go(Gap("s", "p", 0, 20), missed=NOT_KEPT)
    cursor = inbox.take()
    assert cursor is not None
    assert cursor.entry.reason == RELEASED
    assert inbox.handed() == {"p": 0}
    cursor.out = 1
    assert inbox.handed() == {"p": 20}
    assert inbox.consumed() == {"p": 0}


def test_what_a_broker_repeats_is_dropped_row_by_row() -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({"p": 0}, repeats=False, missed=NOT_KEPT)
    inbox.delivered(deliver(0, 10, 2, 4, 6), missed=NOT_KEPT)
    cursor = inbox.take()
    assert cursor is not None
    cursor.out = 1
    assert inbox.consumed() == {"p": 0}
    # The connection breaks while the application works on tick 2; the broker starts from the token.
    inbox.connected({"p": 0}, repeats=True, missed=NOT_KEPT)
    assert not inbox.delivered(deliver(0, 10, 2, 4, 6), missed=NOT_KEPT)
    assert inbox.delivered(deliver(10, 12, 11), missed=NOT_KEPT)
    assert hand_out_all(inbox) == [4, 6, 11]


def test_what_waits_is_kept_when_the_broker_does_not_repeat() -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({"p": 0}, repeats=False, missed=NOT_KEPT)
    inbox.delivered(deliver(0, 10, 2), missed=RECONNECTED)
    inbox.connected({}, repeats=False, missed=NOT_KEPT)
    inbox.delivered(deliver(30, 40, 35), missed=RECONNECTED)
    pieces = [(piece.base, piece.upto, piece.reason) for piece in inbox._entries]
    assert pieces == [(0, 10, ""), (10, 30, RECONNECTED), (30, 40, "")]


def test_credit_is_granted_in_large_steps() -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({"p": 0}, repeats=False, missed=NOT_KEPT)
    size = len(batch(1).body)
    ticks = range(1, WINDOW // size)
    for tick in ticks:
        inbox.delivered(deliver(tick - 1, tick, tick), missed=NOT_KEPT)
    assert inbox.credit == WINDOW - len(ticks) * size
    grants: list[int] = []
    for _ in ticks:
        cursor = inbox.take()
        assert cursor is not None
        cursor.out = 1
        grants.append(inbox.grant())
    assert inbox.take() is None
    assert [each for each in grants if each] == [grants[WINDOW // 2 // size + 1]]
    assert sum(grants) + inbox.grant(is_idle=True) == len(ticks) * size


def test_silence_behind_what_was_acknowledged_is_acknowledged_too() -> None:
    inbox = Inbox(WINDOW)
    inbox.connected({"p": 0, "q": 7}, repeats=False, missed=NOT_KEPT)
    inbox.delivered(deliver(0, 10, 3), missed=NOT_KEPT)
    inbox.delivered(deliver(10, 20), missed=NOT_KEPT)
    hand_out_all(inbox)
    assert inbox.quiet({}) == {"q": 7}
    assert inbox.quiet({"p": 10}) == {"p": 20, "q": 7}


@dataclass
class Truth:
    """One pubend as it is: which ticks have events, up to where it was let go."""

    ticks: list[int]
    handed: list[int] = field(default_factory=list)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
def test_every_event_is_handed_out_once_and_in_order_over_any_number_of_reconnects(
    data: st.DataObject,
) -> None:
    end = 60
    truth = {
        name: sorted(data.draw(st.sets(st.integers(1, end), max_size=25), label=name)) for name in ("p", "q")
    }
    inbox = Inbox(WINDOW)
    handed: dict[str, list[int]] = {"p": [], "q": []}
    told: dict[str, int] = {"p": 0, "q": 0}
    inbox.connected(told, repeats=False, missed=NOT_KEPT)
    for _ in range(data.draw(st.integers(0, 40))):
        match data.draw(st.sampled_from(("deliver", "deliver", "take", "take", "reconnect"))):
            case "deliver":
                name = data.draw(st.sampled_from(("p", "q")))
                base = told[name]
                upto = told[name] = data.draw(st.integers(base, min(end, base + 9)))
                rows = [tick for tick in truth[name] if base < tick <= upto]
                inbox.delivered(deliver(base, upto, *rows, pubend=name), missed=NOT_KEPT)
            case "take":
                _take_one(inbox, handed)
            case "reconnect":
                before = inbox.handed()
                told = inbox.consumed()
                assert all(told[name] <= before[name] for name in told)
                inbox.connected(told, repeats=True, missed=NOT_KEPT)
    for name in told:
        rows = [tick for tick in truth[name] if tick > told[name]]
        inbox.delivered(deliver(told[name], end + 1, *rows, pubend=name), missed=NOT_KEPT)
    while _take_one(inbox, handed):
        pass
    assert handed == truth
    assert inbox.consumed() == {"p": end + 1, "q": end + 1}


def _take_one(inbox: Inbox, handed: dict[str, list[int]]) -> bool:
    cursor = inbox.cursor
    if cursor is None or cursor.is_finished:
        cursor = inbox.take()
    if cursor is None:
        return False
    row = cursor.done = cursor.out
    cursor.out += 1
    assert cursor.entry.batch is not None
    handed[cursor.entry.pubend].append(int(cursor.entry.batch.ticks[row]))
    return True


def test_a_subscriber_from_the_oldest_event_on_is_told_of_no_gap_before_it() -> None:
    inbox = Inbox(1_000, {"p": 0}, from_oldest=True)
    assert not inbox.let_go(Gap("s", "p", 0, 20), missed=NOT_KEPT)
    assert not inbox.let_go(Gap("s", "p", 20, 30), missed=NOT_KEPT)
    assert inbox.handed() == {"p": 30}
    assert inbox.delivered(deliver(30, 50, 40), missed=NOT_KEPT)
    assert inbox.let_go(Gap("s", "p", 50, 60), missed=NOT_KEPT)
