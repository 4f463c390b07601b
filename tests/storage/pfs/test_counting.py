"""What subscribers are owed: the counts that the PFS keeps, against a sum over all events."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.pfs.pfs_world import Truth, World, length_of, small_blocks
from tidemark.storage.pfs import counting
from tidemark.storage.pfs.counting import CountedMatches as Owed

LAST = 300
SUBSCRIBERS = range(1, 5)


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with small_blocks():
        yield


def truth_of(seed: int) -> Truth:
    """Events at half of the ticks; subscriber 4 matches none of them."""
    random = Random(seed)
    events = random.sample(range(1, LAST + 1), LAST // 2)
    return {tick: frozenset(random.sample(SUBSCRIBERS[:-1], random.randint(0, 3))) for tick in events}


def owed(world: World, subscriber: int, base: int, upto: int) -> Owed:
    """The sum over all events."""
    ticks = world.matched(subscriber, base, upto)
    return Owed(len(ticks), sum(map(length_of, ticks)), ticks[0] if ticks else None)


def counted(world: World, bases: dict[int, int]) -> dict[int, Owed]:
    """What the PFS says, in as many calls as it takes."""
    for _ in range(LAST):
        found = world.pfs.count("p1", bases)
        if found is not None:
            return found
    raise AssertionError("it never ends")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 40)),
        st.tuples(st.just("ack"), st.sampled_from(SUBSCRIBERS), st.integers(1, 60)),
        st.tuples(st.just("ack"), st.sampled_from(SUBSCRIBERS), st.integers(1, 60)),
        st.tuples(st.just("count"), st.just(0)),
        st.tuples(st.just("count"), st.just(0)),
        st.tuples(st.just("chop"), st.just(0)),
        st.tuples(st.just("sync"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    min_size=8,
    max_size=40,
)


@settings(derandomize=True, deadline=None)
@given(st.builds(truth_of, st.integers(0, 999)), STEPS, st.integers(1, 3))
def test_what_is_owed_is_what_matched_and_is_not_acknowledged(
    truth: Truth, steps: list[tuple[str, int] | tuple[str, int, int]], reads_max: int
) -> None:
    world = World(truth, reads_max=reads_max)
    last, acked = 0, dict.fromkeys(SUBSCRIBERS, 0)
    for step in steps:
        match step:
            case ("append", length):
                world.append(last, min(last + length, LAST))
                last = min(last + length, LAST)
            case ("ack", subscriber, length):
                acked[subscriber] = min(acked[subscriber] + length, last)
            case ("chop", _):
                world.pfs.chop("p1", min(acked.values()))
            case ("sync", _):
                world.pfs.sync()
            case ("restart", _):
                world.pfs.sync()
                world.restart()
            case _:
                expected = {each: owed(world, each, base, last) for each, base in acked.items()}
                assert counted(world, acked) == expected


def test_who_is_owed_nothing_is_owed_nothing_whatever_others_are_sent() -> None:
    world = World({tick: frozenset({1}) for tick in range(1, 100)})
    world.append(0, 99)
    assert counted(world, {1: 0, 4: 0}) == {1: owed(world, 1, 0, 99), 4: Owed()}


def test_a_count_goes_on_from_the_one_before_and_reads_no_block_twice() -> None:
    world = World({tick: frozenset({1, 2}) for tick in range(1, LAST + 1)}, cache_bytes=0)
    world.append(0, LAST - 20)
    world.pfs.sync()
    assert counted(world, {1: 0}) == {1: owed(world, 1, 0, LAST - 20)}
    world.append(LAST - 20, LAST)
    world.pfs.sync()
    with patch.object(world.volume, "read_some", wraps=world.volume.read_some) as reads:
        assert counted(world, {1: 10}) == {1: owed(world, 1, 10, LAST)}
    few = reads.call_count
    with patch.object(world.volume, "read_some", wraps=world.volume.read_some) as reads:
        counted(world, {2: 10})
    assert few < reads.call_count / 3


def test_blocks_that_are_chopped_are_taken_off_first() -> None:
    world = World({tick: frozenset({1}) for tick in range(1, LAST + 1)})
    world.append(0, LAST)
    counted(world, {1: 0})
    world.pfs.chop("p1", 100)
    with patch.object(counting, "_Count", side_effect=AssertionError("counted anew")):
        assert counted(world, {1: 120}) == {1: owed(world, 1, 120, LAST)}


def test_too_many_chopped_blocks_are_counted_anew() -> None:
    world = World({tick: frozenset({1, 2}) for tick in range(1, LAST + 1)})
    world.append(0, LAST)
    counted(world, {1: 0})
    with patch.object(counting, "PASSED_BLOCKS_MAX", 1):
        world.pfs.chop("p1", 200)
    assert counted(world, {1: 220}) == {1: owed(world, 1, 220, LAST)}


def test_what_the_pfs_does_not_know_makes_a_count_inexact_until_it_is_acknowledged() -> None:
    world = World({tick: frozenset({1}) for tick in range(1, 41)})
    world.append(0, 10)
    world.append(20, 40)
    assert counted(world, {1: 0}) == {
        1: Owed(30, sum(map(length_of, [*range(1, 11), *range(21, 41)])), 1, False)
    }
    assert counted(world, {1: 20}) == {1: owed(world, 1, 20, 40)}


def test_only_so_many_counts_are_remembered() -> None:
    world = World({tick: frozenset({1, 2}) for tick in range(1, 41)})
    world.append(0, 40)
    with patch.object(counting, "COUNTS_MAX", 1):
        for subscriber in (1, 2, 1):
            assert counted(world, {subscriber: 3}) == {subscriber: owed(world, subscriber, 3, 40)}
