"""The PFS against a set of ticks: what was appended and synced is known and right, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.pfs.pfs_world import Truth, World, small_blocks, ticks_in
from tidemark.storage.disk.memory_disk import by_chance

LAST = 200
SUBSCRIBERS = range(1, 6)


def truth_of(seed: int) -> Truth:
    """Events at half of the ticks, each for some of the subscribers or for none."""
    random = Random(seed)
    events = random.sample(range(1, LAST + 1), LAST // 2)
    return {tick: frozenset(random.sample(SUBSCRIBERS, random.randint(0, 3))) for tick in events}


truths = st.builds(truth_of, st.integers(0, 999))
ticks = st.integers(0, LAST)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("on"), st.integers(1, 30)),
        st.tuples(st.just("on"), st.integers(1, 30)),
        st.tuples(st.just("on"), st.integers(1, 30)),
        st.tuples(st.just("append"), ticks, st.integers(1, 20)),
        st.tuples(st.just("sync")),
        st.tuples(st.just("flush")),
        st.tuples(st.just("chop"), ticks),
        st.tuples(st.just("crash"), st.integers(0, 99)),
        st.tuples(st.just("fill"), ticks, st.integers(1, 20)),
        st.tuples(st.just("read"), st.sampled_from(SUBSCRIBERS), ticks, st.integers(1, 5)),
    ),
    min_size=8,
    max_size=30,
)


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with small_blocks():
        yield


class Model:
    """Which ticks the PFS knows, and which it must still know after a crash."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.known: set[int] = set()
        self.safe: set[int] = set()
        self.chopped = 0

    def step(self, step: tuple[str | int, ...]) -> None:
        world = self.world
        match step:
            case ("on", int(length)):
                base = world.pfs.last("p1") or 0
                self._learn(base, base + length)
            case ("append", int(base), int(length)):
                self._learn(base, base + length)
            case ("fill", int(base), int(length)):
                world.fill(base, base + length)
                self.known |= set(range(base + 1, base + length + 1))
            case ("flush",):
                world.pfs.flush()
                world.volume.flush()
            case ("sync",):
                world.pfs.sync()
                self.safe = set(self.known)
            case ("chop", int(upto)):
                world.pfs.chop("p1", upto)
                self.chopped = max(self.chopped, upto)
            case ("crash", int(seed)):
                world.restart(by_chance(Random(seed)))
                self._look()
            case ("read", int(subscriber), int(base), int(limit)):
                self._compare(subscriber, base, limit)

    def _learn(self, base: int, upto: int) -> None:
        self.world.append(base, upto)
        self.known |= set(range(base + 1, upto + 1))

    def _look(self) -> None:
        """A crash may lose what was not synced, and bring back what was chopped, and nothing else."""
        found = set(range(1, 3 * LAST)) - ticks_in(self.world.pfs.unknown("p1", 0, 3 * LAST))
        assert found <= self.known
        assert found >= {tick for tick in self.safe if tick > self.chopped}
        self.known, self.safe = found, set(found)

    def _compare(self, subscriber: int, base: int, limit: int) -> None:
        unknown = ticks_in(self.world.read_all(subscriber, base, LAST, limit))
        beyond = {tick for tick in range(base + 1, LAST + 1) if tick > self.chopped}
        assert unknown & beyond == beyond - self.known

    def finish(self) -> None:
        for subscriber in SUBSCRIBERS:
            self._compare(subscriber, 0, 1_000)
        bases = dict(zip(SUBSCRIBERS, (0, 7, 7, 90, LAST + 1), strict=True))
        many = self.world.pfs.read_many("p1", bases, 3)
        for subscriber, base in bases.items():
            alone = self.world.pfs.read("p1", subscriber, base, 3)
            together = many[subscriber]
            assert together.ticks.tolist() == alone.ticks.tolist()
            assert (together.upto, together.unknown) == (alone.upto, alone.unknown)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(truth=truths, steps=STEPS, group_bits=st.sampled_from([0, 0, 1]))
def test_the_pfs_knows_what_a_set_of_ticks_would(
    truth: Truth, steps: list[tuple[str | int, ...]], group_bits: int
) -> None:
    model = Model(World(truth, group_bits))
    for step in steps:
        model.step(step)
    model.finish()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    truth=truths,
    syncs=st.lists(st.integers(1, 30), min_size=2, max_size=8),
    hurt=st.lists(st.integers(0, 10_000), min_size=1, max_size=3),
    live=st.booleans(),
    chopped=ticks,
)
def test_damage_is_unknown_until_it_is_filtered_anew(
    truth: Truth, syncs: list[int], hurt: list[int], live: bool, chopped: int
) -> None:
    world = World(truth, cache_bytes=0 if live else 1 << 20)
    upto = 0
    for length in syncs:
        world.append(upto, upto + length)
        world.pfs.sync()
        upto += length
    files = world.disk.contents()
    segments = [name for name in files if name.endswith(".segment")]
    for place in hurt:
        name = segments[place % len(segments)]
        # Headers of files are the volume's own matter.
        world.disk.rot(name, 700 + place % max(1, len(files[name]) - 700))
    if not live:
        world.restart()
    for _ in range(2):
        for subscriber in SUBSCRIBERS:
            world.read_all(subscriber, 0, upto)
        # Damage may come to light while other damage is repaired: what was in memory is read from disk then.
        while world.fill(0, upto):
            pass
        for subscriber in SUBSCRIBERS:
            assert world.read_all(subscriber, 0, upto) == []
        world.pfs.sync()
        world.restart()
    world.pfs.chop("p1", chopped)
    world.pfs.sync()
    world.restart()
    for subscriber in SUBSCRIBERS:
        assert world.read_all(subscriber, min(chopped, upto), upto) == []
