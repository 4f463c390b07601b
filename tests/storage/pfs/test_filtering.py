"""What the PFS promises, one promise a test; the sequences nobody thinks of are in test_model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

import numpy as np
import pytest

from tests.storage.pfs.pfs_world import World, small_blocks
from tidemark.errors import DiskFailedError, DiskFullError, UnknownFormatError
from tidemark.storage.disk.memory_disk import MemoryDisk, PowerLossError, by_chance, lose_all
from tidemark.storage.log.volume import LogVolume
from tidemark.storage.pfs import Missed, PersistentFiltering
from tidemark.storage.pfs.columns import BlockColumns
from tidemark.storage.pfs.record import decode
from tidemark.ticks import NO_TICKS

EMPTY: frozenset[int] = frozenset()


def who(*subscribers: int) -> frozenset[int]:
    return frozenset(subscribers)


def told(missed: Missed) -> tuple[list[int], int, tuple[int, int] | None]:
    return missed.ticks.tolist(), missed.upto, missed.unknown


@pytest.fixture
def _small() -> Iterator[None]:
    with small_blocks():
        yield


def test_what_is_not_listed_is_silence() -> None:
    world = World({3: who(1), 4: EMPTY, 5: who(1, 2)})
    world.append(0, 10)
    assert told(world.pfs.read("p1", 1, 0, 9)) == ([3, 5], 10, None)
    assert told(world.pfs.read("p1", 2, 3, 9)) == ([5], 10, None)
    assert told(world.pfs.read("p1", 9, 0, 9)) == ([], 10, None)


def test_silence_survives_a_crash_too() -> None:
    world = World({})
    world.append(0, 10)
    assert world.pfs.sync() == {"p1": 10}
    world.append(10, 20)
    world.pfs.sync()
    world.restart(lose_all)
    assert told(world.pfs.read("p1", 1, 0, 9)) == ([], 20, None)


def test_a_limit_ends_the_reading_at_its_last_tick() -> None:
    world = World({tick: who(1) for tick in range(1, 10)})
    world.append(0, 20)
    assert told(world.pfs.read("p1", 1, 2, 3)) == ([3, 4, 5], 5, None)
    assert told(world.pfs.read("p1", 1, 5, 4)) == ([6, 7, 8, 9], 20, None)


def test_a_pubend_nobody_has_heard_of_is_unknown() -> None:
    world = World({})
    assert world.pfs.last("p9") is None
    assert told(world.pfs.read("p9", 1, 5, 9)) == ([], 5, None)
    assert world.pfs.unknown("p9", 5, 8) == [(5, 8)]
    assert world.pfs.sync() == {}


def test_a_token_ahead_of_the_pfs_is_no_error() -> None:
    world = World({3: who(1)})
    world.append(0, 10)
    assert told(world.pfs.read("p1", 1, 50, 9)) == ([], 50, None)


@pytest.mark.usefixtures("_small")
def test_replay_after_a_crash_does_not_double() -> None:
    world = World({tick: who(tick % 3, 7) for tick in range(1, 40)})
    world.append(0, 30)
    world.pfs.sync()
    for base, upto in ((10, 25), (10, 35), (0, 38)):
        world.restart(lose_all)
        world.append(base, upto)
        world.pfs.sync()
        assert world.read_all(7, 0, upto) == []
        records = world.volume.read_range("pfs/p1", *world.volume.bounds("pfs/p1"))
        ticks = np.concatenate([decode(record).ticks for record in records])
        assert ticks.tolist() == list(range(1, max(upto, 30) + 1))


def test_a_hole_behind_the_last_tick_is_unknown_and_can_be_filled() -> None:
    world = World({tick: who(1) for tick in (5, 15, 25)})
    world.append(0, 10)
    world.append(20, 30)
    assert told(world.pfs.read("p1", 1, 0, 9)) == ([5], 10, (10, 20))
    assert world.fill(0, 30) == [(10, 20)]
    assert told(world.pfs.read("p1", 1, 0, 9)) == ([5, 15, 25], 30, None)


def test_numbers_of_two_matchers_are_not_mixed_up() -> None:
    pfs = World({}).pfs
    for base, members in ((0, {1: [5]}), (10, {1: [6]}), (20, {1: [5, 6]})):
        sets = {number: np.array(ids, np.uint32) for number, ids in members.items()}
        one = np.array([1], np.uint32)
        pfs.append("p1", base, base + 10, np.array([base + 3]), one, one, sets.__getitem__)
    assert pfs.read("p1", 5, 0, 9).ticks.tolist() == [3, 23]
    assert pfs.read("p1", 6, 0, 9).ticks.tolist() == [13, 23]


def test_sets_are_asked_for_while_the_matcher_knows_them() -> None:
    pfs = World({}).pfs
    sets = {1: np.array([5], np.uint32)}

    def members(number: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        return sets[number]

    ones = np.array([1, 1], np.uint32)
    pfs.append("p1", 0, 10, np.array([3, 4]), ones, ones, members)
    sets.clear()
    pfs.append("p1", 10, 20, np.array([13]), ones[:1], ones[:1], members)
    assert pfs.read("p1", 5, 0, 9).ticks.tolist() == [3, 4, 13]


def test_a_changed_selector_keeps_its_old_matches_and_a_new_subscriber_has_none() -> None:
    world = World({1: who(1), 2: who(1), 3: who(2), 4: who(1, 2), 5: who(2)})
    world.append(0, 2)
    world.append(2, 5)
    assert world.pfs.read("p1", 1, 0, 9).ticks.tolist() == [1, 2, 4]
    assert world.pfs.read("p1", 2, 0, 9).ticks.tolist() == [3, 4, 5]


def test_groups_report_more_but_never_less() -> None:
    truth = {tick: frozenset(Random(tick).sample(range(64), 5)) for tick in range(1, 200)}
    precise, grouped = World(truth), World(truth, group_bits=3)
    sizes = []
    for world in (precise, grouped):
        before = sum(map(len, world.disk.contents().values()))
        world.append(0, 200)
        world.pfs.sync()
        sizes.append(sum(map(len, world.disk.contents().values())) - before)
        for subscriber in range(64):
            assert world.read_all(subscriber, 0, 200) == []
    assert sizes[1] < sizes[0]
    assert len(grouped.pfs.read("p1", 1, 0, 999).ticks) > len(precise.pfs.read("p1", 1, 0, 999).ticks)


@pytest.mark.usefixtures("_small")
def test_groups_can_be_turned_on_and_off_between_starts() -> None:
    world = World({tick: who(tick % 5, 8) for tick in range(1, 60)})
    world.append(0, 20)
    world.pfs.sync()
    for bits, upto in ((2, 40), (0, 60)):
        world.group_bits = bits
        world.restart()
        world.append(upto - 20, upto)
        world.pfs.sync()
    ticks = world.pfs.read("p1", 1, 0, 999).ticks.tolist()
    assert [tick for tick in ticks if not 20 < tick <= 40] == world.matched(1, 0, 20) + world.matched(
        1, 40, 60
    )
    assert set(ticks) >= set(world.matched(1, 20, 40))


@pytest.mark.usefixtures("_small")
def test_blocks_without_the_subscriber_are_not_read() -> None:
    world = World({tick: who(1 if tick < 50 else 2) for tick in range(1, 100)}, cache_bytes=0)
    world.append(0, 100)
    world.pfs.sync()
    world.restart()
    world.pfs.last("p1")
    read: list[tuple[int, int]] = []
    real = world.volume.read_some

    def read_some(stream: str, first: int, last: int, **options: int | None) -> object:
        read.append((first, last))
        return real(stream, first, last, **options)

    world.volume.read_some = read_some  # type: ignore[method-assign,assignment]  # a spy
    assert world.pfs.read("p1", 3, 0, 999).upto == 100
    assert read == []
    assert len(world.pfs.read("p1", 1, 0, 999).ticks) == 49
    few = len(read)
    assert 0 < few < len(world.pfs._stream("p1")._blocks) - few + 2


@pytest.mark.usefixtures("_small")
def test_one_call_reads_only_so_many_blocks() -> None:
    world = World({tick: who(1) for tick in range(1, 100)})
    pfs = PersistentFiltering(world.volume, read_blocks_max=3)
    pfs.append("p1", 0, 100, *world.filtered(0, 100))
    missed = pfs.read("p1", 1, 0, 999)
    assert 0 < missed.upto < 100
    assert missed.unknown is None
    calls, ticks = 1, missed.ticks.tolist()
    while missed.upto < 100:
        missed = pfs.read("p1", 1, missed.upto, 999)
        calls, ticks = calls + 1, ticks + missed.ticks.tolist()
    assert ticks == world.matched(1, 0, 100)
    assert calls > 3


@pytest.mark.usefixtures("_small")
def test_chopping_frees_the_disk_and_keeps_every_definition_in_use() -> None:
    world = World({tick: who(1, 2, 3) for tick in range(1, 2_000)})
    sizes = []
    for upto in range(100, 2_000, 100):
        world.append(upto - 100, upto)
        world.pfs.sync()
        world.pfs.chop("p1", upto - 100)
        world.pfs.chop("p1", upto - 100)
        world.pfs.sync()
        sizes.append(sum(len(data) for name, data in world.disk.contents().items() if "segment" in name))
        assert world.read_all(2, upto - 100, upto) == []
    assert max(sizes[5:]) <= 2 * max(sizes[:5])
    world.restart(lose_all)
    assert world.read_all(2, 1_800, 1_900) == []
    assert world.pfs.read("p1", 2, 0, 9).unknown is not None


@pytest.mark.usefixtures("_small")
def test_everything_may_be_chopped_and_appending_goes_on() -> None:
    world = World({tick: who(1) for tick in range(1, 60)})
    world.append(0, 30)
    world.pfs.sync()
    world.pfs.chop("p1", 30)
    world.pfs.sync()
    assert world.pfs.last("p1") == 30
    world.append(30, 40)
    world.pfs.sync()
    world.pfs.chop("p1", 40)
    world.pfs.sync()
    world.restart(lose_all)
    world.append(40, 60)
    assert world.read_all(1, 40, 60) == []


@pytest.mark.usefixtures("_small")
def test_a_quiet_pubend_keeps_no_old_segment_alive() -> None:
    world = World({tick: who(1) for tick in range(1, 4)})
    world.append(0, 3)
    world.pfs.sync()
    for tick in range(1, 200):
        none = np.zeros(0, np.uint32)
        world.pfs.append("p2", tick - 1, tick, NO_TICKS, none, none, world.numbering.members)
        world.pfs.sync()
        world.pfs.chop("p1", 3)
        world.pfs.chop("p2", tick)
    world.pfs.sync()
    names = [name for name in world.disk.contents() if name.endswith(".segment")]
    assert len(names) <= 3
    assert world.pfs.last("p1") == 3


def rot(world: World, index: int) -> None:
    """Damage one record of the PFS."""
    payload = world.volume.read("pfs/p1", index)
    for name, data in world.disk.contents().items():
        if payload in data:
            world.disk.rot(name, data.index(payload) + 3)


@pytest.mark.usefixtures("_small")
def test_a_block_without_its_head_is_unknown_and_its_neighbours_are_not() -> None:
    world = World({tick: who(1, tick % 2) for tick in range(1, 41)})
    for upto in range(2, 41, 2):
        world.append(upto - 2, upto)
        world.pfs.sync()
    blocks = list(world.pfs._stream("p1")._blocks)
    before, hurt, last = blocks[-3], blocks[-2], blocks[-1]
    rot(world, hurt.first)
    world.restart()
    assert world.read_all(1, 0, 40) == [(hurt.base, hurt.upto)]
    world.pfs.chop("p1", before.upto)
    world.pfs.sync()
    world.restart()
    assert world.read_all(1, last.base, 40) == []
    assert world.pfs.unknown("p1", before.upto, 40) == [(hurt.base, hurt.upto)]


@pytest.mark.usefixtures("_small")
def test_a_lost_definition_makes_unknown_what_names_it_and_no_more() -> None:
    world = World({1: who(1), 2: who(2), 3: who(1), 4: who(2), 9: who(1)})
    for upto in (1, 2, 3, 4):
        world.append(upto - 1, upto)
        world.pfs.sync()
    rot(world, 2)
    world.restart()
    assert world.pfs.unknown("p1", 0, 4) == [(1, 2), (3, 4)]
    world.append(4, 9)
    assert told(world.pfs.read("p1", 1, 2, 9)) == ([3], 3, (3, 4))
    assert told(world.pfs.read("p1", 1, 4, 9)) == ([9], 9, None)


@pytest.mark.usefixtures("_small")
def test_a_full_disk_forgets_what_was_not_synced_and_goes_on_when_there_is_space() -> None:
    world = World({tick: who(tick % 7, tick % 5) for tick in range(1, 500)})
    world.append(0, 50)
    world.pfs.sync()
    world.disk.bytes_max = sum(map(len, world.disk.contents().values())) + 100
    world.append(50, 400)
    with pytest.raises(DiskFullError):
        world.pfs.sync()
    assert world.pfs.last("p1") == 50
    assert world.read_all(3, 0, 50) == []
    world.disk.bytes_max = None
    world.append(50, 500)
    world.pfs.sync()
    for _ in range(2):
        for subscriber in range(7):
            assert world.read_all(subscriber, 0, 500) == []
        world.restart(lose_all)


def test_a_record_of_a_later_version_is_refused_and_kept() -> None:
    world = World({})
    world.volume.append("pfs/p1", [b"\x40" + bytes(40)])
    world.volume.sync()
    with pytest.raises(UnknownFormatError, match="format 3"):
        world.pfs.last("p1")
    assert world.volume.bounds("pfs/p1") == (1, 1)


def test_a_failed_sync_is_final() -> None:
    world = World({})
    world.append(0, 50)
    world.disk.syncs_to_fail = 1
    with pytest.raises(DiskFailedError):
        world.pfs.sync()
    world.append(50, 60)
    with pytest.raises(DiskFailedError):
        world.pfs.sync()


@pytest.mark.usefixtures("_small")
def test_sets_too_large_for_one_record_take_several() -> None:
    world = World({tick: frozenset(range(tick, tick + 9)) for tick in range(1, 30)})
    world.append(0, 30)
    world.pfs.sync()
    world.restart(lose_all)
    for subscriber in range(1, 39):
        assert world.read_all(subscriber, 0, 30) == []


def script(world: World) -> Iterator[int]:
    """A life of the PFS; yields up to which tick it is safe."""
    for upto in range(20, 161, 20):
        world.append(upto - 30 if upto > 20 else 0, upto)
        world.pfs.sync()
        yield upto
        world.pfs.chop("p1", upto - 60)
        world.pfs.flush()


@pytest.mark.usefixtures("_small")
def test_power_may_go_at_any_moment_and_again_while_it_recovers() -> None:
    truth = {tick: who(tick % 4, tick % 3) for tick in range(1, 161)}
    for crash_at in count(1):
        disk = MemoryDisk()
        disk.power_off_at = crash_at
        safe = 0
        try:
            world = World(truth, disk=disk)
            for upto in script(world):
                safe = upto
        except PowerLossError:
            pass
        else:
            assert crash_at > 30
            return
        random = Random(crash_at)
        disk.crash(by_chance(random))
        disk.power_off_at = disk.operations + 1 + crash_at % 3
        try:
            world = World(truth, disk=disk)
            world.append(safe, safe + 5)
        except PowerLossError:
            disk.crash(by_chance(random))
            world = World(truth, disk=disk)
        disk.power_off_at = None
        for subscriber in range(4):
            unknown = world.read_all(subscriber, max(0, safe - 60), 160)
            assert unknown == [] or unknown[0][0] >= safe


WORKLOADS = {
    # rows a sync, subscribers, matching, distinct sets, ticks between events
    "the paper's": (800, 100, 25, 4, 1_250),
    "every set new": (800, 100, 25, 0, 1_250),
    "one subscriber each, few a sync": (4, 1_000, 1, 0, 250_000),
    "one subscriber each, huge numbers": (50, 2**32, 1, 0, 20_000),
    "large sets, all new": (20, 50_000, 500, 0, 1_000),
    "two each, an hour apart": (10, 100, 2, 0, 3_600_000_000),
    "one event a sync": (1, 1_000, 5, 0, 1_000_000),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_workload_takes_more_than_the_papers_size(name: str) -> None:
    rows, subscribers, matching, distinct, apart = WORKLOADS[name]
    random = Random(1)
    drawn = [sorted(random.sample(range(subscribers), matching)) for _ in range(distinct or 2_000)]
    sets = [np.array(each, np.uint32) for each in ([], *drawn)]
    disk = MemoryDisk()
    pfs = PersistentFiltering(LogVolume.open(disk, identity=1))
    none = np.zeros(0, np.uint32)
    pfs.append("p1", 0, 1, NO_TICKS, none, none, sets.__getitem__)
    pfs.sync()
    before = written(disk)
    events = min(2_000 // rows, 100) * rows
    for first in range(0, events, rows):
        ticks = 1 + apart * np.arange(first + 1, first + rows + 1)
        numbers = (np.arange(first, first + rows) % len(drawn) + 1).astype(np.uint32)
        lengths = np.array([random.randrange(20, 2_000) for _ in ticks], np.uint32)
        pfs.append("p1", 1 + apart * first, int(ticks[-1]), ticks, numbers, lengths, sets.__getitem__)
        pfs.sync()
    # The paper's records have no lengths of events, which take two bytes here.
    assert written(disk) - before <= (8 + 16 * matching + 2) * events


def written(disk: MemoryDisk) -> int:
    return sum(len(data) for name, data in disk.contents().items() if name.endswith(".segment"))


def test_what_was_found_for_the_sets_of_one_subscriber_serves_others_and_stays_small() -> None:
    random = Random(3)
    sets = np.array([random.randrange(4) for _ in range(200)], np.uint32)
    ticks = np.arange(1, 201)
    # Sets 0 to 3 are of subscribers 0 and 4, 1 and 5, and so on; 8 is in all of them.
    members = np.array([each for n in range(4) for each in (n, n + 4, 8)], np.uint32)
    columns = BlockColumns(ticks, sets, None, np.arange(3, 13, 3), members, 0)
    for _ in range(2):
        for subscriber in (0, 4, 1, 5, 8, 2, 6, 9):
            base, upto = random.randrange(200), random.randrange(1, 250)
            (found,) = columns.missed(np.array([subscriber], np.uint32), np.array([base]), upto)
            wanted = [n for n in range(4) if subscriber in (n, n + 4, 8)]
            inside = np.isin(sets, wanted) & (ticks > base) & (ticks <= upto)
            assert found.tolist() == ticks[inside].tolist()
            assert sum(map(len, columns._ticks_of_sets.values())) <= 200
