"""Deep catch-up without brokers and without Spark: everyone gets what they want, once, in order."""

from __future__ import annotations

import asyncio
import pickle
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.archive.small_archive import TOPICS, Event, SmallArchive, Taker, batch_of, line, taker
from tests.waiting import PATIENCE_SECONDS
from tidemark.errors import DiskFullError
from tidemark.matching.topics import TopicPattern
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.archive.compaction import Merge, merge
from tidemark.spark.archive.state import FOLDER, load_state
from tidemark.spark.archive.table import ArchiveTable
from tidemark.spark.deep import service as deep_service
from tidemark.spark.deep import shared_scan
from tidemark.spark.deep import spool as deep_spool
from tidemark.spark.deep import waves as deep_waves
from tidemark.spark.deep.request import ReadRange, Request
from tidemark.spark.deep.service import DeepService
from tidemark.spark.deep.slice_reader import read_slice
from tidemark.spark.deep.tasks import PackedLines
from tidemark.spark.locations import folder_at
from tidemark.storage.disk.real_disk import RealDisk
from tidemark.ticks import CheckpointToken, RangeSet, union, within
from tidemark.wire.frames import Line

#: what is true of an event's n and kind; the last one does not fit the fields
SELECTORS: dict[str, Callable[[tuple[int, int]], bool]] = {
    "": lambda _: True,
    "kind = 1": lambda event: event[1] == 1,
    "kind < 2 AND n > 20": lambda event: event[1] < 2 and event[0] > 20,
    "n BETWEEN 10 AND 40": lambda event: 10 <= event[0] <= 40,
    "price > 1": lambda _: False,
}


def run(test: Callable[[DeepService], Awaitable[None]], path: Path, **options: Any) -> DeepService:
    """Run a test beside a service; returns the service, which has ended."""

    async def both() -> DeepService:
        service = DeepService([], path, **options)
        serving = asyncio.create_task(service.run())
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await test(service)
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
        assert list((path / FOLDER / "spool").iterdir()) == []
        return service

    return asyncio.run(both())


def serve(takers: list[Taker], path: Path, **options: Any) -> DeepService:
    """Serve these recalls until all of them are answered."""

    async def test(service: DeepService) -> None:
        for each in takers:
            service.recalled(each)
        await over(*takers)

    return run(test, path, **options)


async def over(*takers: Taker) -> None:
    while not all(each.is_over for each in takers):
        await asyncio.sleep(0.005)


@contextmanager
def small_steps() -> Iterator[None]:
    """Every file a slice, every slice a wave, parts of a few events."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_scan, "SLICE_BYTES", 1)
        patch.setattr(shared_scan, "FIRST_WAVE_BYTES", 1)
        patch.setattr(shared_scan, "WAVE_BYTES_MAX", 2)
        patch.setattr(deep_spool, "PART_BYTES", 100)
        patch.setattr(deep_service, "GATHER_SECONDS", 0.005)
        yield


def rounds(count: int, size: int = 10) -> list[dict[str, list[Event]]]:
    """Rounds with events of two pubends, whose ticks are 10 apart; numbers go on from round to round."""
    made: list[dict[str, list[Event]]] = []
    for at in range(count):
        numbers = range(at * size, (at + 1) * size)
        made.append(
            {
                pubend: [(TOPICS[n % 3], 10 * (n + 1), n, n % 4) for n in numbers if n % 5 != skip]
                for pubend, skip in (("a", 1), ("b", 2))
            }
        )
    return made


def archived(path: Path, made: list[dict[str, list[Event]]], size: int = 10) -> SmallArchive:
    archive = SmallArchive(path)
    for at, events in enumerate(made, 1):
        archive.round({"a": at * size * 10, "b": at * size * 10}, events)
    return archive


def expected(each: Taker, made: list[dict[str, list[Event]]]) -> list[tuple[int, int]]:
    """What a taker must get, event by event."""
    events = [event for some in made for event in some[each.pubend]]
    gone = [tick for low, high in each.gone for tick in range(low + 1, high + 1)]
    return [
        (tick, n)
        for topic, tick, n, kind in events
        if tick not in gone
        and any(
            one.base < tick <= one.upto
            and TopicPattern.parse(one.wanted.pattern).matches(topic)
            and SELECTORS[one.wanted.selector]((n, kind))
            for one in each.lines
        )
    ]


@st.composite
def takers(draw: st.DrawFn) -> Taker:
    """A recall that starts and ends anywhere, of a subscriber that may have changed its selector."""
    ends = sorted(draw(st.sets(st.integers(0, 500), min_size=2, max_size=6)))
    wishes = st.tuples(st.sampled_from(["news.*", ">", "sports", "none"]), st.sampled_from(list(SELECTORS)))
    pairs = list(zip(ends[::2], ends[1::2], strict=False))
    lines = [Line(TopicSelector(*draw(wishes)), base, upto) for base, upto in pairs]
    return Taker(draw(st.sampled_from("ab")), lines, ends[0], ends[-1])


@settings(derandomize=True, deadline=None, max_examples=15)
@given(st.lists(takers(), min_size=1, max_size=6), st.sampled_from([None, 60, 205]), st.booleans())
def test_everyone_gets_what_they_want_once_and_in_order(
    wanted: list[Taker], released: int | None, is_missing: bool
) -> None:
    made = rounds(5)
    with tempfile.TemporaryDirectory() as folder, small_steps():
        path = Path(folder)
        archive = archived(path, made)
        state = replace(archive.state, released=released)
        if is_missing:
            # Nothing of it was archived: numbers that both pubends skip.
            state = replace(state, missing={"a": ((110, 120), (310, 320))})
        archive.say(state)
        serve(wanted, path)
    for each in wanted:
        assert each.got == expected(each, made)
        missing = [(110, 120), (310, 320)] if is_missing and each.pubend == "a" else []
        gone = missing if released is None else [(0, released), *missing]
        assert RangeSet(each.gone) == RangeSet(union(within(union(gone), each.lines[0].base, each.upto)))


def test_events_come_byte_for_byte(tmp_path: Path) -> None:
    made = rounds(2)
    archived(tmp_path, made)
    one = taker("a", line(upto=200))
    serve([one], tmp_path)
    (batch,) = one.batches
    events = [event for some in made for event in some["a"]]
    whole = batch_of(events)
    assert [batch.key(row) for row in range(batch.count)] == [whole.key(row) for row in range(whole.count)]
    assert [batch.message(row) for row in range(batch.count)] == [
        whole.message(row) for row in range(whole.count)
    ]
    assert [batch.publishers[at] for at in batch.prelude("publisher")] == [
        whole.publishers[at] for at in whole.prelude("publisher")
    ]


def test_all_who_come_together_are_one_scan(tmp_path: Path) -> None:
    made = rounds(5)
    archived(tmp_path, made)
    many = [taker("ab"[n % 2], line(">", f"n > {n}", base=n, upto=500 - n // 2)) for n in range(60)]
    service = serve(many, tmp_path)
    assert service.counters["scans"] == 1
    # Each event was read once for all of them.
    assert service.counters["events_read"] == sum(len(some) for each in made for some in each.values())
    for each in many:
        least = each.lines[0].base
        assert each.got == [
            (tick, n)
            for some in made
            for _, tick, n, _ in some[each.pubend]
            if n > least and least < tick <= each.upto
        ]


def test_who_comes_while_a_scan_runs_is_served_beside_it_by_another(tmp_path: Path) -> None:
    made = rounds(20)
    archived(tmp_path, made)
    long, late = taker("a", line(upto=2_000)), taker("a", line(base=1_900, upto=1_950))

    async def test(service: DeepService) -> None:
        service.recalled(long)
        while not long.parts:
            await asyncio.sleep(0.001)
        service.recalled(late)
        await over(late)
        assert not long.is_over
        await over(long)

    with small_steps():
        service = run(test, tmp_path)
    assert service.counters["scans"] == 2
    for each in (long, late):
        assert each.got == expected(each, made)


def test_silence_is_told_once_a_wave_and_not_once_a_slice(tmp_path: Path) -> None:
    archived(tmp_path, rounds(20))
    quiet = taker("a", line(">", "n < 0", upto=2_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_scan, "SLICE_BYTES", 1)
        serve([quiet], tmp_path)
    assert (quiet.got, quiet.parts) == ([], 1)


def test_a_slice_is_handed_to_those_it_has_something_for_and_others_get_one_silence_a_wave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rounds(20)
    archived(tmp_path, made)
    # Each wants the events of two rounds out of twenty; everybody waits for all of history.
    every = [
        taker("a", line(">", f"n BETWEEN {low} AND {low + 9} OR n BETWEEN {high} AND {high + 9}", upto=2_000))
        for low, high in ((0, 190), (30, 40), (100, 150))
    ]
    ranges: dict[int, list[ReadRange]] = {}
    put = Request.put

    def noted(self: Request, read: ReadRange) -> None:
        ranges.setdefault(self._first, []).append(read)
        put(self, read)

    monkeypatch.setattr(Request, "put", noted)
    monkeypatch.setattr(shared_scan, "SLICE_BYTES", 1)
    serve(every, tmp_path)
    for found in ranges.values():
        assert [each.base for each in found] == [0, *(each.upto for each in found[:-1])]
        assert found[-1].upto == 2_000
        assert not any(one.is_silent and other.is_silent for one, other in pairwise(found))
    # A round is at most two slices here.
    assert [sum(each.is_silent for each in found) for found in ranges.values()] == [1, 2, 3]
    assert all(len(found) <= 3 + 2 * 2 for found in ranges.values())
    for each in every:
        assert len(each.got) == 2 * 8


def test_lines_are_unpacked_only_where_a_matcher_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(tmp_path, rounds(4))
    unpacked: list[str] = []
    wanted_of = PackedLines.wanted_of

    def noted(self: PackedLines, pubend: str) -> list[tuple[int, TopicSelector]]:
        unpacked.append(pubend)
        return wanted_of(self, pubend)

    def carried(work: Any, *rest: Any, **more: Any) -> Any:
        # Every slice has come to its task by itself, as Spark carries it.
        return read_slice(pickle.loads(pickle.dumps(work)), *rest, **more)

    monkeypatch.setattr(PackedLines, "wanted_of", noted)
    monkeypatch.setattr(deep_waves, "read_slice", carried)
    monkeypatch.setattr(shared_scan, "SLICE_BYTES", 1)
    every = [taker(pubend, line(">", f"n > {n}", upto=400)) for n in range(10) for pubend in "ab"]
    serve(every, tmp_path)
    assert sorted(unpacked) == ["a", "b"]
    assert all(each.got for each in every)


def test_who_takes_nothing_loses_the_place_in_the_spool_and_gets_everything_later(tmp_path: Path) -> None:
    made = rounds(20)
    archived(tmp_path, made)
    slow, quick = taker("a", line(upto=2_000)), taker("a", line(upto=2_000))
    slow.is_still = True

    async def test(service: DeepService) -> None:
        service.recalled(slow)
        service.recalled(quick)
        await over(quick)
        assert not slow.got
        slow.go_on()
        await over(slow)

    with small_steps(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_service, "STALL_SECONDS", 0.02)
        service = run(test, tmp_path, spool_bytes_max=2_000)
    assert service.counters["parked"] == 1
    assert slow.got == quick.got == expected(quick, made)


def test_who_leaves_in_the_middle_takes_nobody_along(tmp_path: Path) -> None:
    made = rounds(20)
    archived(tmp_path, made)
    short, long = taker("a", line(upto=2_000)), taker("b", line(upto=2_000))

    async def test(service: DeepService) -> None:
        service.recalled(short)
        service.recalled(long)
        while not short.parts:
            await asyncio.sleep(0.001)
        short.end()
        await over(long)

    with small_steps():
        run(test, tmp_path)
    assert long.got == expected(long, made)


def test_the_archive_is_waited_for_and_what_it_has_leaves_at_once(tmp_path: Path) -> None:
    made = rounds(3)
    archive = archived(tmp_path, made[:2])
    one = taker("a", line(upto=300))

    async def test(service: DeepService) -> None:
        service.recalled(one)
        while one.position < 200:
            await asyncio.sleep(0.005)
        archive.round({"a": 300, "b": 300}, made[2])
        await over(one)

    service = run(test, tmp_path)
    assert (one.got, one.gone) == (expected(one, made), [])
    assert service.counters["behind"] == 0


def test_what_the_archive_does_not_reach_in_time_is_a_gap_and_said_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = rounds(2)
    archived(tmp_path, made)
    one, unknown = taker("a", line(upto=300)), taker("z", line(upto=300))
    service = serve([one, unknown], tmp_path, behind_seconds_max=0.1)
    assert (one.got, one.gone) == (expected(one, made), [(200, 300)])
    assert unknown.gone == [(0, 300)]
    assert service.counters["behind"] == 2
    assert "(200, 300] is neither at its broker nor in the archive" in caplog.text


def test_files_that_are_merged_while_a_scan_runs_are_read_as_what_they_are_then(tmp_path: Path) -> None:
    made = rounds(12)
    archived(tmp_path, made)
    one = taker("a", line(upto=1_200))

    async def test(service: DeepService) -> None:
        service.recalled(one)
        while not one.parts:
            await asyncio.sleep(0.001)
        for root in ("news", "sports"):
            table = ArchiveTable(tmp_path, root)
            files = table.files()
            table.exchange(files, merge(Merge.of(folder_at(tmp_path), table, files)).files)
            for each in files:
                table.folder.remove(each.name)
        await over(one)

    with small_steps(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_service, "RETRY_SECONDS", 0.01)
        run(test, tmp_path)
    assert (one.got, one.gone) == (expected(one, made), [])


def test_history_that_goes_while_a_scan_runs_is_a_gap_from_there_on(tmp_path: Path) -> None:
    made = rounds(12)
    archive = archived(tmp_path, made)
    one = taker("a", line(upto=1_200))

    async def test(service: DeepService) -> None:
        service.recalled(one)
        while not one.parts:
            await asyncio.sleep(0.001)
        archive.say(replace(archive.state, released=1_000))
        await over(one)

    with small_steps():
        run(test, tmp_path)
    ((low, _), *_), (_, high) = one.gone, one.gone[-1]
    assert one.gone == sorted(one.gone)
    assert high == 1_000
    events = [(tick, n) for some in made for _, tick, n, _ in some["a"]]
    assert one.got == [(tick, n) for tick, n in events if tick <= low or tick > 1_000]


def test_a_read_that_fails_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = rounds(3)
    archived(tmp_path, made)
    one = taker("a", line(upto=300))
    failures = [DiskFullError("no space", path="spool"), RuntimeError("a bug")]
    real = deep_waves.read_wave

    def failing(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_service, "read_wave", failing)
        patch.setattr(deep_service, "RETRY_SECONDS", 0.01)
        serve([one], tmp_path)
    assert (one.got, one.gone) == (expected(one, made), [])
    assert "no space" in caplog.text
    assert "a bug" in caplog.text


def test_what_a_crash_has_left_in_the_spool_is_removed_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    made = rounds(1)
    archived(tmp_path, made)
    spool = tmp_path / FOLDER / "spool"
    left, used = RealDisk(spool / "left"), RealDisk(spool / "used")
    (Path(left.path) / "part").write_text("left over")
    used.lock()

    async def test(_: DeepService) -> None:
        assert not Path(left.path).exists()
        assert Path(used.path).exists()
        used.unlock()
        RealDisk(used.path)
        Path(used.path, "lock").unlink(missing_ok=True)
        Path(used.path).rmdir()

    run(test, tmp_path)
    assert load_state(tmp_path).covered == CheckpointToken({"a": 100, "b": 100})
