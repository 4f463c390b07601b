"""The log volume after crashes: nothing synced is lost, nothing half-written is served."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import pytest

from tests.storage.log_steps import CRASHES, open_volume, run_until_power_loss
from tidemark.errors import DiskFailedError
from tidemark.storage.disk.memory_disk import MemoryDisk, by_chance, keep_all, lose_all
from tidemark.storage.log.volume import LogVolume


class Story:
    """What was asked of a volume, and what of it was confirmed."""

    def __init__(self) -> None:
        self.appended: dict[str, list[bytes]] = {"a": [], "b": []}
        self.synced = {"a": 0, "b": 0}
        self.chopped = {"a": 0, "b": 0}

    def run(self, disk: MemoryDisk) -> None:
        volume = open_volume(disk)
        for number in range(24):
            for name in ("a", "b")[: 1 + number % 2]:
                payload = b"%s %d " % (name.encode(), number) + bytes(90)
                self.appended[name].append(payload)
                volume.append(name, [payload[:5], payload[5:]], mark=number)
            if number % 8 == 5:
                self.chopped["a"] = number - 3
                volume.chop("a", number - 3)
            if number % 3 != 1:
                volume.sync()
                self.synced = {name: len(records) for name, records in self.appended.items()}
        volume.close()

    def check(self, volume: LogVolume) -> None:
        assert volume.damage == ()
        for name, appended in self.appended.items():
            first, last = volume.bounds(name)
            assert first <= self.chopped[name] + 1
            assert self.synced[name] <= last <= len(appended)
            assert volume.read_range(name, first, last) == appended[first - 1 : last]
        self.go_on(volume)

    def go_on(self, volume: LogVolume) -> None:
        """The volume is as good as any other: two more records, and a restart."""
        before = {name: volume.bounds(name) for name in self.appended}
        for name in self.appended:
            volume.append(name, [b"more"], mark=100)
        volume.sync()
        for name, (first, last) in before.items():
            assert volume.bounds(name) == (first, last + 1)
            assert volume.read(name, last + 1) == b"more"


def test_what_recovery_finds_stays_when_the_process_dies_first_and_the_machine_later() -> None:
    for operation in range(1, 200):
        disk, story = MemoryDisk(), Story()
        run_until_power_loss(disk, operation, lambda: story.run(disk))  # noqa: B023
        disk.kill()
        volume = open_volume(disk)
        found = {name: volume.bounds(name)[1] for name in story.appended}
        disk.crash(lose_all)
        volume = open_volume(disk)
        for name, last in found.items():
            assert volume.bounds(name)[1] == last
        story.check(volume)


@pytest.mark.parametrize("crash", range(len(CRASHES)))
def test_nothing_synced_is_lost_by_a_crash_at_any_step(crash: int) -> None:
    for operation in range(1, 1_000):
        disk, story = MemoryDisk(), Story()
        lost_power = run_until_power_loss(disk, operation, lambda: story.run(disk))  # noqa: B023
        disk.crash(CRASHES[crash](operation))
        story.check(open_volume(disk))
        if not lost_power:
            assert operation > 50
            return
    pytest.fail("the story does not end")


def test_recovery_survives_crashes_of_its_own() -> None:
    for operation in range(1, 200, 3):
        disk, story = MemoryDisk(), Story()
        run_until_power_loss(disk, operation, lambda: story.run(disk))  # noqa: B023
        disk.crash(by_chance(Random(operation)))
        for again in range(1, 50):
            copy = deepcopy(disk)
            interrupted = run_until_power_loss(copy, again, lambda: recover_and_write(copy))  # noqa: B023
            copy.crash(by_chance(Random(again)))
            run_until_power_loss(copy, 2, lambda: recover_and_write(copy))  # noqa: B023
            copy.crash(lose_all)
            check_with_extra(story, open_volume(copy))
            if not interrupted:
                break


def recover_and_write(disk: MemoryDisk) -> None:
    volume = open_volume(disk)
    volume.append("a", [b"extra"], mark=100)
    volume.sync()


def check_with_extra(story: Story, volume: LogVolume) -> None:
    """As the story says, but for records `extra` at the end of one stream."""
    assert volume.damage == ()
    for name, appended in story.appended.items():
        first, last = volume.bounds(name)
        records = volume.read_range(name, first, last)
        own = [record for record in records if record != b"extra"]
        assert records[len(own) :] == [b"extra"] * (len(records) - len(own))
        assert own == appended[first - 1 : first - 1 + len(own)]
        assert first - 1 + len(own) >= story.synced[name]


def test_recovery_from_every_prefix_of_a_log_finds_every_whole_record() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, segment_bytes=1 << 20)
    payloads = [b"%d" % number * number for number in range(12)]
    ends: list[int] = []
    for payload in payloads:
        volume.append("a", [payload])
        volume.sync()
        ends.append(len(disk.contents()["0000000001.segment"]))
    whole = disk.contents()["0000000001.segment"]
    for size in range(len(whole) + 1):
        copy = MemoryDisk()
        copy.replace("volume", disk.contents()["volume"])
        copy.replace("0000000001.segment", whole[:size])
        volume = open_volume(copy)
        # A record is whole without its padding.
        there = sum(end - 7 <= size for end in ends)
        _, last = volume.bounds("a")
        assert last in (there, there - 1)
        assert last >= sum(end <= size for end in ends)
        assert volume.damage == ()
        assert volume.read_range("a", 1, last) == payloads[:last]
        volume.append("a", [b"next"])
        volume.sync()
        assert volume.read("a", last + 1) == b"next"


def test_a_tail_filled_with_zeros_or_garbage_is_cut_at_the_last_whole_record() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, segment_bytes=1 << 20)
    for _ in range(5):
        volume.append("a", [bytes(50)])
    volume.sync()
    whole = disk.contents()["0000000001.segment"]
    for tail in (bytes(500), b"\xff" * 77, Random(1).randbytes(5_000), whole[100:400]):
        copy = MemoryDisk()
        copy.replace("volume", disk.contents()["volume"])
        copy.replace("0000000001.segment", whole + tail)
        volume = open_volume(copy)
        assert (volume.bounds("a"), volume.damage) == ((1, 5), ())
        assert copy.contents()["0000000001.segment"] == whole


def test_after_a_failed_sync_nothing_is_written_and_reads_go_on() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk)
    volume.append("a", [b"acknowledged"])
    volume.sync()
    volume.append("a", [b"never acknowledged"])
    disk.syncs_to_fail = 1
    with pytest.raises(DiskFailedError):
        volume.sync()
    operations = disk.operations
    for call in (volume.sync, volume.flush, lambda: volume.append("a", [b"x"]), lambda: volume.chop("a", 1)):
        with pytest.raises(DiskFailedError, match="restart"):
            call()
    assert volume.failure is not None
    assert volume.read("a", 1) == b"acknowledged"
    volume.close()
    assert disk.operations == operations
    disk.crash(keep_all)
    assert open_volume(disk).read_range("a", 1, 1) == [b"acknowledged"]


def test_a_failed_sync_at_any_step_stops_everything_and_loses_nothing() -> None:
    for sync in range(1, 60):
        disk, story = MemoryDisk(), Story()
        real, count = disk.fail_if_told, iter(range(1, 1_000))

        def fail_once(path: str) -> None:
            if next(count) == sync:  # noqa: B023
                disk.syncs_to_fail = 1  # noqa: B023
            real(path)  # noqa: B023

        disk.fail_if_told = fail_once  # type: ignore[method-assign]  # one sync of many fails
        try:
            story.run(disk)
        except DiskFailedError:
            disk.crash(by_chance(Random(sync)))
        else:
            disk.crash(lose_all)
        disk.fail_if_told = real  # type: ignore[method-assign]  # as it was
        volume = open_volume(disk)
        for name, appended in story.appended.items():
            first, last = volume.bounds(name)
            assert last >= story.synced[name]
            assert volume.read_range(name, first, last) == appended[first - 1 : last]
