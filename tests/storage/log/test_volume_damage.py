"""The log volume on a disk that rots: what is damaged is reported, all else is served."""

from __future__ import annotations

from random import Random

import pytest

from tests.storage.log_steps import copy_of, open_volume
from tidemark.errors import DamagedError
from tidemark.storage.disk.memory_disk import MemoryDisk, keep_all, lose_all
from tidemark.storage.log.damage import Damage
from tidemark.storage.log.record import HEADER_BYTES
from tidemark.storage.log.volume import LogVolume

SEGMENT = 900


def filled(
    *, close: bool = True, segment_bytes: int = SEGMENT, rounds: int = 7
) -> tuple[MemoryDisk, dict[str, list[bytes]]]:
    """A volume of some segments and three streams, one of which has been silent for long."""
    disk = MemoryDisk()
    volume = open_volume(disk, segment_bytes)
    written: dict[str, list[bytes]] = {"a": [], "b": [], "idle": [b"once"]}
    volume.append("idle", [b"once"])
    for number in range(rounds):
        for name in ("a", "b"):
            written[name].append(b"%s-%d" % (name.encode(), number) * (1 + number % 4))
            volume.append(name, [written[name][-1]], mark=number)
        volume.sync()
    if close:
        volume.close()
    disk.crash(keep_all)
    return disk, written


def survivors(volume: LogVolume, written: dict[str, list[bytes]]) -> dict[str, list[int]]:
    """The indexes that can be read, after checking that each is as it was and every other is reported."""
    there: dict[str, list[int]] = {}
    for name, payloads in written.items():
        first, last = volume.bounds(name)
        reading = volume.read_some(name, first, last, bytes_max=None) if first <= last else None
        records = reading.records if reading else []
        for record in records:
            assert record.payload == payloads[record.index - 1]
        there[name] = [record.index for record in records]
        lost = set(range(1, len(payloads) + 1)) - set(there[name])
        reported = {
            index
            for damage in volume.damage
            if damage.stream == name
            for index in range(damage.first_index, damage.last_index + 1)
        }
        assert lost <= reported
    return there


def places(disk: MemoryDisk) -> list[tuple[str, int]]:
    """Every byte of the segments, and of both copies in the volume file."""
    return [
        (name, at)
        for name, content in disk.contents().items()
        for at in range(len(content))
        if name.endswith("segment") or (name == "volume" and at % 4096 < 24)
    ]


def test_rot_of_any_byte_is_detected_or_harmless() -> None:
    disk, written = filled(rounds=3, segment_bytes=700)
    everything = {name: list(range(1, len(payloads) + 1)) for name, payloads in written.items()}
    harmed = 0
    for name, at in places(disk):
        rotten = copy_of(disk)
        rotten.rot(name, at, flip=1 << at % 8)
        volume = open_volume(rotten, 700)
        there = survivors(volume, written)
        lost = sum(len(everything[each]) - len(there[each]) for each in everything)
        assert lost <= 1
        harmed += lost
        if lost:
            assert volume.damage
        for each in written:
            volume.append(each, [b"goes on"], mark=50)
            assert volume.read(each, volume.bounds(each)[1]) == b"goes on"
    assert harmed > 100


def test_rot_without_a_clean_shutdown_costs_at_most_one_record_or_the_torn_tail() -> None:
    disk, written = filled(close=False)
    for name, at in places(disk)[::3]:
        rotten = copy_of(disk)
        rotten.rot(name, at)
        there = survivors_of_a_tail(open_volume(rotten, SEGMENT), written)
        assert sum(map(len, there.values())) >= sum(map(len, written.values())) - 1


def survivors_of_a_tail(volume: LogVolume, written: dict[str, list[bytes]]) -> dict[str, list[int]]:
    """As `survivors`, but the very last record of all may be gone as a torn tail."""
    _, last = volume.bounds("b")
    return survivors(volume, {**written, "b": written["b"][:last]})


def test_a_bad_record_before_good_ones_is_not_a_tail() -> None:
    disk, written = filled(close=False, segment_bytes=1 << 20)
    content = disk.contents()["0000000001.segment"]
    at = content.index(written["a"][5])
    disk.rot("0000000001.segment", at)
    volume = open_volume(disk)
    assert volume.holes("a") == [(6, 6)]
    assert volume.bounds("a") == (1, 7)
    assert volume.read("a", 7) == written["a"][6]
    assert len(disk.contents()["0000000001.segment"]) == len(content), "the segment is kept"
    with pytest.raises(DamagedError) as lost:
        volume.read("a", 6)
    assert lost.value.path.endswith("0000000001.segment")
    (damage,) = volume.damage
    assert damage == Damage("a", 6, 6, 1, at - HEADER_BYTES, synced=True)
    assert str(damage).startswith("records 6 to 6 of a lost in segment 1, byte ")


def test_damage_that_a_crash_may_have_made_says_so() -> None:
    disk, written = filled(close=False, segment_bytes=1 << 20)
    disk.rot("0000000001.segment", disk.contents()["0000000001.segment"].index(written["a"][6]))
    volume = open_volume(disk)
    assert volume.read("b", 7) == written["b"][6]
    assert str(volume.damage[0]).endswith("possibly never acknowledged")


@pytest.mark.parametrize("segment_bytes", [SEGMENT, 1 << 20])
def test_damage_is_the_same_after_every_restart_and_is_never_closed_by_new_records(
    segment_bytes: int,
) -> None:
    disk, written = filled(close=False, segment_bytes=1 << 20)
    disk.rot("0000000001.segment", disk.contents()["0000000001.segment"].index(written["b"][5]) - 30)
    for more in range(4):
        volume = open_volume(disk, segment_bytes)
        assert volume.holes("b") == [(6, 6)]
        assert volume.bounds("b") == (1, 7 + more)
        # The idle stream has no record after the damage: one of its own may have been there.
        assert volume.holes("idle") == [(2, 2)]
        volume.append("b", [b"more"], mark=50)
        if more == 0:
            volume.chop("idle", 1)
        if more > 1:
            volume.append("idle", [b"again"], mark=50)
        volume.sync()
        disk.crash(lose_all)


def test_a_block_of_an_earlier_life_in_the_right_place_is_not_taken_for_this_one() -> None:
    name = "0000000001.segment"
    disk = MemoryDisk()
    volume = open_volume(disk, 1 << 20)
    sizes: list[int] = []
    for number in range(4):
        volume.append("a", [b"old-%d" % number])
        volume.sync()
        sizes.append(len(disk.contents()[name]))
    old = disk.contents()[name]
    disk.replace(name, old[: sizes[0]])
    disk.crash(keep_all)
    volume = open_volume(disk, 1 << 20)
    for number in range(1, 4):
        volume.append("a", [b"new-%d" % number])
    volume.sync()
    new = disk.contents()[name]
    disk.replace(name, new[: sizes[1]] + old[sizes[1] : sizes[2]] + new[sizes[2] :])
    disk.crash(keep_all)
    volume = open_volume(disk, 1 << 20)
    assert volume.holes("a") == [(3, 3)]
    assert [bytes(volume.read("a", index)) for index in (1, 2, 4)] == [b"old-0", b"new-1", b"new-3"]


def test_damage_found_by_reading_is_reported_once_and_served_around() -> None:
    disk, written = filled()
    disk.rot("0000000001.segment", disk.contents()["0000000001.segment"].index(written["a"][0]))
    volume = open_volume(disk, SEGMENT)
    assert volume.damage == ()
    for _ in range(2):
        assert [record.index for record in volume.read_some("a", 1, 4).records] == [2, 3, 4]
        assert volume.holes("a") == [(1, 1)]
        assert len(volume.damage) == 1


def test_unreadable_sectors_cost_the_records_in_them() -> None:
    disk, written = filled()
    disk.make_unreadable("0000000001.segment", disk.contents()["0000000001.segment"].index(written["a"][0]))
    volume = open_volume(disk, SEGMENT)
    assert survivors(volume, {"a": written["a"]})["a"] == [2, 3, 4, 5, 6, 7]


def test_a_last_segment_that_cannot_be_read_is_neither_a_tail_nor_unborn() -> None:
    disk, written = filled()
    last = max(name for name in disk.list() if name.endswith("segment"))
    disk.make_unreadable(last, 100)
    content = disk.contents()[last]
    for _ in range(2):
        volume = open_volume(disk, SEGMENT)
        assert disk.contents()[last] == content
        # Two records were in it; without their headers the volume knows only that there may have been some.
        assert volume.holes("a") == volume.holes("b") == [(6, 6)]
        assert survivors(volume, {"b": written["b"][:6]})["b"] == [1, 2, 3, 4, 5]
        disk.crash(lose_all)
    volume = open_volume(disk, SEGMENT)
    volume.append("a", [b"x"], mark=50)
    volume.sync()
    assert last.replace("segment", "damaged") in disk.list()
    disk.crash(lose_all)
    volume = open_volume(disk, SEGMENT)
    assert volume.holes("a") == volume.holes("b") == [(6, 6)]


def test_a_missing_segment_is_noticed() -> None:
    disk, written = filled()
    disk.remove("0000000002.segment")
    disk.sync_directory()
    volume = open_volume(disk, SEGMENT)
    assert volume.damage
    assert volume.damage[0].segment == 0
    assert "a missing segment" in str(volume.damage[0])
    assert len(survivors(volume, written)["a"]) < 7


def test_a_dead_segment_that_is_damaged_is_kept_for_the_administrator() -> None:
    disk, written = filled()
    disk.rot("0000000001.segment", disk.contents()["0000000001.segment"].index(written["a"][0]))
    volume = open_volume(disk, SEGMENT)
    survivors(volume, written)
    for name in written:
        volume.chop(name, 9)
    volume.sync()
    assert disk.list()[:2] == ["0000000001.damaged", max(disk.list()[:-2])]
    volume.close()
    volume = open_volume(disk, SEGMENT)
    volume.append("a", [b"x"], mark=50)
    volume.sync()
    assert "0000000001.damaged" in disk.list()


def test_a_last_segment_that_is_nothing_but_rot_is_kept() -> None:
    disk, _ = filled()
    last = max(name for name in disk.list() if name.endswith("segment"))
    rot = Random(2).randbytes(700)
    disk.replace(last, rot)
    volume = open_volume(disk, SEGMENT)
    assert {damage.segment for damage in volume.damage if damage.stream is None} == {int(last[:10])}
    assert volume.holes("a") == [(6, 6)]
    volume.append("a", [b"x"], mark=50)
    volume.sync()
    assert disk.contents()[last.replace("segment", "damaged")] == rot


def test_records_whose_streams_name_is_lost_stay_on_disk() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, 1 << 20)
    volume.append("a", [b"before"])
    volume.sync()
    volume.append("b", [b"orphan"])
    volume.sync()
    content = disk.contents()["0000000001.segment"]
    at = content.rindex(b"b", 0, content.index(b"orphan") - 40)
    for copy in (content.rindex(b"b", 0, at), at):
        disk.rot("0000000001.segment", copy)
    disk.crash(keep_all)
    volume = open_volume(disk, 1 << 20)
    assert any(damage.stream is None for damage in volume.damage)
    assert volume.bounds("b") == (1, 0)
    volume.append("b", [b"new"])
    volume.sync()
    assert b"orphan" in disk.contents()["0000000001.segment"]
    assert open_volume_again(disk).read("b", 1) == b"new"


def open_volume_again(disk: MemoryDisk) -> LogVolume:
    disk.crash(lose_all)
    return open_volume(disk, 1 << 20)


def test_a_publisher_cannot_forge_a_record() -> None:
    disk, _ = filled(close=False)
    last = max(name for name in disk.list() if name.endswith("segment"))
    forged = disk.contents()["0000000001.segment"][32:]
    volume = open_volume(disk, 1 << 20)
    volume.append("a", [forged], mark=50)
    volume.append("a", [b"after"], mark=51)
    volume.sync()
    at = disk.contents()[last].index(forged) - 30
    disk.rot(last, at)
    disk.crash(lose_all)
    volume = open_volume(disk, 1 << 20)
    assert volume.bounds("a") == (1, 9)
    assert volume.holes("a") == [(8, 8)]
    assert volume.read("a", 9) == b"after"
