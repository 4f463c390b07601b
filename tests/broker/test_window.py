"""The window: bounded, in order, each event once, and honest about what a disk lost."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.desk import batch
from tidemark.broker.streams import window as module
from tidemark.broker.streams.window import Window

MUCH = 1 << 20


def events(window: Window, base: int, upto: int) -> list[int]:
    found = window.events(base, upto)
    return [] if found is None else found.ticks.tolist()


def test_it_forgets_its_oldest_but_not_what_is_needed() -> None:
    window = Window(bytes_max=batch(5).held_bytes + 100, floor=0)
    window.learn(0, 10, batch(5))
    window.learn(10, 20, batch(15))
    assert window.is_full
    assert window.shrink(keep_beyond=7)
    assert window.floor == 5
    assert window.knowledge.text(4, 16) == "Q" * 2 + "S" * 9 + "DS"
    assert events(window, 0, 20) == [15]
    assert not window.shrink(keep_beyond=7)
    window.shrink(keep_beyond=None)
    assert window.floor == 5  # within its bound again


def test_events_learnt_out_of_order_are_read_in_order_and_once() -> None:
    window = Window(bytes_max=MUCH, floor=0)
    window.learn(10, 20, batch(15))
    window.learn(0, 10, batch(3, 5))
    window.learn(0, 20, batch(3, 5, 15))
    assert events(window, 0, 20) == [3, 5, 15]
    assert events(window, 3, 14) == [5]
    assert events(window, 15, 20) == []


def test_what_lies_below_the_floor_is_not_learnt() -> None:
    window = Window(bytes_max=MUCH, floor=10)
    window.learn(0, 20, batch(5, 15))
    assert events(window, 10, 20) == [15]
    assert window.knowledge.text(10, 12) == "QSS"
    window.learn(0, 10, batch(5))
    assert window.knowledge.state(5) == "Q"


def test_an_event_replaces_silence_and_silence_never_an_event() -> None:
    window = Window(bytes_max=MUCH, floor=0)
    window.learn(0, 10, None)
    window.learn(0, 10, batch(4))
    window.learn(0, 10, None)
    assert events(window, 0, 10) == [4]


def test_what_is_lost_is_gone_and_its_damage_with_it() -> None:
    window = Window(bytes_max=MUCH, floor=0)
    window.learn(0, 10, batch(4), [(5, 6)])
    window.learn(10, 20, batch(14), [(17, 18)])
    window.lose(10)
    assert window.knowledge.text(9, 12) == "LLSS"
    assert list(window.damaged) == [(17, 18)]
    assert window.bytes == batch(14).held_bytes
    assert events(window, 10, 20) == [14]


def test_damage_below_the_floor_is_dropped() -> None:
    window = Window(bytes_max=MUCH, floor=5)
    window.learn(0, 10, None, [(2, 4), (4, 7)])
    assert list(window.damaged) == [(5, 7)]
    window.raise_floor(6)
    assert list(window.damaged) == [(6, 7)]


def test_a_piece_begins_with_a_batch_so_that_all_who_want_some_of_it_share_it() -> None:
    window = Window(bytes_max=MUCH, floor=0)
    window.learn(0, 10, batch(3, 5, 8))
    window.learn(10, 20, batch(12, 15))
    late = window.piece(7, 8)
    assert late is not None
    assert late.base == 2
    assert window.piece(4, 5) is late
    assert window.piece(14, 15) is late
    assert window.piece(0, 3) is not late  # which has something before the first batch


def test_a_piece_begins_where_all_is_known_from() -> None:
    window = Window(bytes_max=MUCH, floor=0)
    window.learn(0, 6, batch(3, 5))
    window.learn(7, 10, batch(8, 9))
    window.knowledge.forget(2, 4)
    piece = window.piece(4, 5)
    assert piece is not None
    assert (piece.base, piece.upto) == (4, 6)


def test_pieces_are_remembered_up_to_a_bound_and_while_somebody_wants_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SHARED_PIECE_BYTES", 1)
    monkeypatch.setattr(module, "PIECES_BYTES_MAX", 3 * batch(1).held_bytes)
    window = Window(bytes_max=MUCH, floor=0)
    for tick in range(1, 9):
        window.learn(tick - 1, tick, batch(tick))
    pieces = [window.piece(tick - 1, tick) for tick in range(1, 9)]
    assert window.piece(0, 1) is not pieces[0]
    assert window.piece(7, 8) is pieces[7]
    window.forget_pieces()
    assert window.piece(7, 8) is not pieces[7]


def test_a_piece_ends_where_enough_has_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 2 * len(batch(1).data))
    window = Window(bytes_max=MUCH, floor=0)
    for tick in range(1, 8):
        window.learn(tick * 10 - 10, tick * 10, batch(tick * 10 - 5))
    assert window.reach(0, 70) == 15
    assert window.reach(15, 70) == 35
    assert window.reach(55, 70) == 70
    assert window.reach(0, 12) == 12
    assert window.reach(70, 90) == 90


@pytest.mark.parametrize("merged", [2, 3, module.MERGED_BATCHES])
def test_it_knows_what_it_was_told_in_whatever_order(merged: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MERGED_BATCHES", merged)
    it_knows_what_it_was_told()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.sets(st.integers(1, 40)), st.randoms(use_true_random=False))
def it_knows_what_it_was_told(truth: set[int], chance: Random) -> None:
    window, known, floor, lost = Window(bytes_max=MUCH, floor=0), set[int](), 0, 0
    for _ in range(12):
        base = chance.randint(0, 39) if chance.random() < 0.5 else max(0, min(39, window.end))
        upto = chance.randint(base + 1, 40)
        there = sorted(tick for tick in truth if base < tick <= upto)
        window.learn(base, upto, batch(*there) if there else None)
        known |= set(range(max(base, floor, lost) + 1, upto + 1))
        if chance.random() < 0.1:
            floor = max(floor, chance.randint(0, 10))
            window.raise_floor(floor)
            known = {tick for tick in known if tick > floor}
        if chance.random() < 0.1:
            lost = max(lost, chance.randint(0, 10))
            window.lose(lost)
    known = {tick for tick in known if tick > max(floor, lost)}
    assert events(window, max(floor, lost), 40) == sorted(truth & known)
    for tick in range(max(floor, lost) + 1, 41):
        expected = "Q" if tick not in known else "D" if tick in truth else "S"
        assert window.knowledge.state(tick) == expected
    assert window.bytes == sum(each.held_bytes for _, _, each in window._batches)
    base = max(floor, lost)
    piece = window.piece(base, window.knowledge.horizon(base))
    assert piece is not None
    there = piece.cuts.ticks.tolist() if piece.cuts is not None else []
    assert there == events(window, piece.base, piece.upto)


def test_a_piece_of_many_batches_is_not_joined_before_somebody_wants_all_of_it() -> None:
    window = Window(bytes_max=MUCH, floor=0)
    for first in range(10, 50, 10):
        window.learn(first - 10, first, batch(first - 5, first - 1, first))
    piece = window.piece(4, 12)
    assert piece is not None
    assert (piece.base, piece.upto) == (4, 40)
    assert piece.cuts is not None
    assert piece.cuts.ticks.tolist() == [5, 9, 10, 15, 19, 20, 25, 29, 30, 35, 39, 40]
    wanted = np.array([9, 15, 40])
    part = piece.cuts.at(wanted, 0, 3)
    assert part is not None
    whole = window.events(4, 40)
    assert whole is not None
    assert bytes(part.data) == bytes(whole.take(np.array([1, 3, 11])).data)
    assert piece.cuts.at(wanted, 0, 3) is part
    assert bytes(piece.cuts.take(np.arange(12)).data) == bytes(whole.data)


def test_a_piece_of_tangled_batches_is_in_order() -> None:
    window = Window(bytes_max=MUCH, floor=0)
    window.learn(0, 10, batch(1, 9))
    window.learn(0, 10, batch(4, 5))
    piece = window.piece(0, 10)
    assert piece is not None
    assert piece.cuts is not None
    assert piece.cuts.ticks.tolist() == [1, 4, 5, 9]
    assert piece.cuts.take(np.array([0, 2, 3])).ticks.tolist() == [1, 5, 9]
