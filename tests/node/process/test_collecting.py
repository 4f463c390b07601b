"""Collecting: what survives is left alone, and circles are found all the same when there is time for it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from tidemark.node.process.collecting import GROWN_BUSY, GROWN_IDLE, ROUND_OBJECTS, Collecting


class Circle:
    """An object that its reference count does not free."""

    def __init__(self) -> None:
        self.myself = self


@pytest.fixture
def collecting() -> Iterator[Collecting]:
    loop = asyncio.new_event_loop()
    found = Collecting(loop)
    found.begin()
    yield found
    found.end()
    loop.close()


@pytest.mark.usefixtures("collecting")
def test_what_survives_young_is_left_alone() -> None:
    before = gc.get_freeze_count()
    kept = [[number] for number in range(2 * ROUND_OBJECTS)]
    assert gc.get_freeze_count() > before + ROUND_OBJECTS
    assert len(kept) == 2 * ROUND_OBJECTS


def test_a_young_circle_is_found_soon_and_an_old_one_when_the_process_is_idle(
    collecting: Collecting,
) -> None:
    circle = Circle()
    young, old = weakref.ref(Circle()), weakref.ref(circle)
    kept = [[number] for number in range(4 * ROUND_OBJECTS)]
    assert young() is None
    del circle
    gc.collect()
    assert old() is not None, "it was left alone"
    assert not collecting._is_due(is_idle=False)
    assert collecting._is_due(is_idle=True)
    collecting._collect_all()
    assert old() is None
    assert not collecting._is_due(is_idle=True)
    assert kept


def test_an_idle_process_does_not_look_at_all_objects_for_those_that_are_gone(collecting: Collecting) -> None:
    # As connections that come and go: many objects live while the young are looked at, and few of them last.
    for _ in range(8):
        assert len([[number] for number in range(ROUND_OBJECTS)]) == ROUND_OBJECTS
    assert collecting._grown > GROWN_IDLE
    assert not collecting._is_due(is_idle=True), "clients would wait for a collection that finds nothing"
    assert collecting._grown < GROWN_IDLE, "it has counted"


def test_a_busy_process_looks_at_all_objects_once_there_are_many_more(collecting: Collecting) -> None:
    collecting._grown = 2 * GROWN_BUSY + collecting._objects
    assert not collecting._is_due(is_idle=False), "it has counted: most of them are gone"
    collecting._objects = -2 * GROWN_BUSY
    collecting._grown = 2 * GROWN_BUSY
    assert collecting._is_due(is_idle=False)


def test_afterwards_the_collector_works_by_itself() -> None:
    before = gc.get_threshold()
    loop = asyncio.new_event_loop()
    collecting = Collecting(loop)
    collecting.begin()
    collecting.end()
    loop.close()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
