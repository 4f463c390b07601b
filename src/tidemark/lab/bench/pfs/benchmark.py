"""The PFS beside logging every event for every subscriber: the paper's microbenchmark (DSN'03 5.1.2).

The load is 800 events a second of 418 bytes, each wanted by 25 of 100 subscribers, for 100 seconds, written
as fast as possible. Every way of writing it uses a log volume on a real disk, syncs after every second of
load and keeps the last 5 seconds. Afterwards, and again after it was reopened, the PFS must tell exactly what
each subscriber missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from tidemark.lab.bench.measure import check_exact, collector_off
from tidemark.lab.bench.pfs.counting_disk import CountingDisk
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.storage.log.volume import LogVolume
from tidemark.storage.pfs import PersistentFiltering
from tidemark.ticks import Ticks

PUBEND = "p1"
EVENTS_A_SECOND = 800
#: Events that arrive together, in 10 ms.
TURN_EVENTS = 8
MESSAGE_BYTES = 418
SUBSCRIBERS = 100
MATCHING = 25
KEPT_SECONDS = 5
TICKS_A_SECOND = 1_000_000
FIRST_TICK = 1_763_000_000_000_000

#: How imprecise the PFS is made.
GROUP_BITS = (0, 1, 2, 3, 5)
LESS_DATA = 100
FASTER = 20
#: The paper's size of an event that matched n subscribers.
BYTES_MAX = 8 + 16 * MATCHING
NOTES = (
    "the paper: 11.1 s for the PFS, 25x less data and over 5x faster than logging",
    "events come 8 at a time; logging writes a record for every event, or every second, of a subscriber",
)


@dataclass(frozen=True, slots=True)
class PfsEffort:
    """Seconds of load, and how often each way of writing is measured."""

    seconds: int
    rounds: int
    seed: int = 1


FULL = PfsEffort(100, 2)
QUICK = PfsEffort(8, 1)


@dataclass(frozen=True, slots=True)
class PfsLoad:
    """ticks[event], sets[event], lengths[event] in bytes, messages[event]; members[set] are subscribers."""

    ticks: Ticks
    sets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    messages: list[bytes]
    members: list[NDArray[np.uint32]]

    def members_of(self, number: int) -> NDArray[np.uint32]:
        """Returns the subscribers of a match set, as a matcher does."""
        return self.members[number]

    def wanted(self) -> NDArray[np.bool_]:
        """wanted[set, subscriber]"""
        wanted = np.zeros((len(self.members), SUBSCRIBERS), np.bool_)
        for number, who in enumerate(self.members):
            wanted[number, who] = True
        return wanted

    def seconds(self) -> Iterator[range]:
        """Yields the range of event numbers of each second."""
        return (range(first, first + EVENTS_A_SECOND) for first in range(0, len(self.ticks), EVENTS_A_SECOND))


#: Writes the load to a volume; returns the PFS if it wrote one.
Writer = Callable[[LogVolume, PfsLoad], PersistentFiltering | None]


@dataclass(frozen=True, slots=True)
class WriteCost:
    """What one way of writing the load cost."""

    seconds: float
    bytes_written: int


def sections(effort: PfsEffort) -> Iterator[Section]:
    """Yields the sections; AssertionError when the PFS is wrong."""
    writers: dict[str, Writer] = {
        "PFS": _filter,
        "log each event": _log_events,
        "log each second": _log_seconds,
    }
    few, many = _load(effort, sets=4), _load(effort, sets=effort.seconds * EVENTS_A_SECOND)
    runs: dict[str, list[WriteCost]] = {"PFS, all sets new": [], **{name: [] for name in writers}}
    for _ in range(effort.rounds):
        for name, write in writers.items():
            runs[name].append(_run(write, few))
        runs["PFS, all sets new"].append(_run(_filter, many))
    yield _section(effort, {name: min(each, key=lambda run: run.seconds) for name, each in runs.items()})
    yield _reading(effort, {"4 sets": few, "all sets new": many})
    yield _imprecise(effort, {"4 sets": few, "all sets new": many})


def _load(effort: PfsEffort, sets: int) -> PfsLoad:
    """Returns the load: four match sets that share the subscribers, or many random ones."""
    random = Random(effort.seed)
    count = effort.seconds * EVENTS_A_SECOND
    ticks = FIRST_TICK + np.arange(1, count + 1) * (TICKS_A_SECOND // EVENTS_A_SECOND)
    shared = [range(first, SUBSCRIBERS, SUBSCRIBERS // MATCHING) for first in range(sets)]
    drawn = shared if sets == 4 else [random.sample(range(SUBSCRIBERS), MATCHING) for _ in range(sets)]
    members = [np.array(sorted(who), np.uint32) for who in ((), *drawn)]
    numbers = np.arange(count) % sets + 1
    messages = [random.randbytes(MESSAGE_BYTES) for _ in range(count)]
    lengths = np.array([len(each) for each in messages], np.uint32)
    return PfsLoad(ticks, numbers.astype(np.uint32), lengths, messages, members)


def _run(write: Writer, load: PfsLoad) -> WriteCost:
    with TemporaryDirectory(prefix="tidemark-bench-") as path:
        disk = CountingDisk(path)
        volume = LogVolume.open(disk, identity=1)
        with collector_off():
            begin = perf_counter()
            pfs = write(volume, load)
            taken = perf_counter() - begin
        if pfs is not None:
            _check(pfs, load)
            volume.close()
            volume = LogVolume.open(disk, identity=1)
            _check(PersistentFiltering(volume), load)
        volume.close()
    return WriteCost(taken, disk.bytes_written)


def _filter(volume: LogVolume, load: PfsLoad, group_bits: int = 0) -> PersistentFiltering:
    """Write the load to the PFS, as the constream does."""
    pfs = PersistentFiltering(volume, group_bits=group_bits)
    upto = FIRST_TICK
    for second in load.seconds():
        for first in second[::TURN_EVENTS]:
            turn = slice(first, first + TURN_EVENTS)
            ticks = load.ticks[turn]
            base, upto = upto, int(ticks[-1])
            pfs.append(PUBEND, base, upto, ticks, load.sets[turn], load.lengths[turn], load.members_of)
        pfs.sync()
        pfs.chop(PUBEND, upto - KEPT_SECONDS * TICKS_A_SECOND)
    return pfs


def _log_events(volume: LogVolume, load: PfsLoad) -> None:
    """Write a record for every event and subscriber."""
    streams = [f"subscriber {number}" for number in range(SUBSCRIBERS)]
    wanted = [[streams[number] for number in who.tolist()] for who in load.members]
    sets = load.sets.tolist()
    ends: list[list[int]] = []
    for second in load.seconds():
        for event in second:
            message = [load.messages[event]]
            for stream in wanted[sets[event]]:
                volume.append(stream, message)
        _sync_and_chop(volume, streams, ends)


def _log_seconds(volume: LogVolume, load: PfsLoad) -> None:
    """Write a record for each second and subscriber."""
    streams = [f"subscriber {number}" for number in range(SUBSCRIBERS)]
    ends: list[list[int]] = []
    for second in load.seconds():
        waiting: list[list[bytes]] = [[] for _ in streams]
        for event in second:
            for number in load.members[load.sets[event]].tolist():
                waiting[number].append(load.messages[event])
        for stream, messages in zip(streams, waiting, strict=True):
            volume.append(stream, messages)
        _sync_and_chop(volume, streams, ends)


def _sync_and_chop(volume: LogVolume, streams: list[str], ends: list[list[int]]) -> None:
    """Sync, and chop what is older than KEPT_SECONDS. `ends[second]` has the last index of each stream."""
    volume.sync()
    ends.append([volume.bounds(stream)[1] for stream in streams])
    if len(ends) > KEPT_SECONDS:
        for stream, last in zip(streams, ends[-1 - KEPT_SECONDS], strict=True):
            volume.chop(stream, last)


def _check(pfs: PersistentFiltering, load: PfsLoad) -> None:
    first = max(0, len(load.ticks) - KEPT_SECONDS * EVENTS_A_SECOND)
    base = int(load.ticks[first]) - 1
    missed = pfs.read_many(PUBEND, dict.fromkeys(range(SUBSCRIBERS), base), len(load.ticks))
    wanted = load.wanted()[load.sets[first:]]
    for subscriber, found in missed.items():
        expected = load.ticks[first:][wanted[:, subscriber]].tolist()
        check_exact(found.ticks.tolist(), expected, f"what subscriber {subscriber} missed")
        check_exact(found.upto, int(load.ticks[-1]), f"up to where subscriber {subscriber} knows it")


def _section(effort: PfsEffort, best: dict[str, WriteCost]) -> Section:
    events = effort.seconds * EVENTS_A_SECOND
    ours = best["PFS"]
    measurements: list[Measurement] = []
    for name, run in best.items():
        measurements.append(Measurement(name, "time", run.seconds, "s"))
        limit = Goal("<=", BYTES_MAX) if name.startswith("PFS") else None
        measurements.append(Measurement(name, "written", run.bytes_written / events, "bytes/event", limit))
    for name in ("log each event", "log each second"):
        goal = partial(Goal, ">=") if name == "log each event" else lambda _: None
        data, time = best[name].bytes_written / ours.bytes_written, best[name].seconds / ours.seconds
        measurements.append(Measurement("PFS", f"less data than to {name}", data, "x", goal(LESS_DATA)))
        measurements.append(Measurement("PFS", f"faster than to {name}", time, "x", goal(FASTER)))
    title = f"{effort.seconds} s of {EVENTS_A_SECOND} events/s, {MATCHING} of {SUBSCRIBERS} subscribers each"
    return Section(title, measurements, notes=NOTES)


def _reading(effort: PfsEffort, loads: dict[str, PfsLoad]) -> Section:
    """Measure how fast a PFS that was just opened tells returning subscribers what they missed."""
    measurements: list[Measurement] = []
    for name, load in loads.items():
        with TemporaryDirectory(prefix="tidemark-bench-") as path:
            volume = LogVolume.open(CountingDisk(path), identity=1)
            pfs = PersistentFiltering(volume)
            upto = int(load.ticks[-1])
            pfs.append(PUBEND, FIRST_TICK, upto, load.ticks, load.sets, load.lengths, load.members_of)
            pfs.sync()
            for count in (1, SUBSCRIBERS):
                rates = [_read_rate(volume, count, len(load.ticks)) for _ in range(5)]
                measurements.append(Measurement(name, f"{count} at once", max(rates), "ticks/s"))
            volume.close()
    return Section(f"reading {effort.seconds} s of it", measurements, prefix="reading")


def _imprecise(effort: PfsEffort, loads: dict[str, PfsLoad]) -> Section:
    """Measure what an imprecise PFS saves when it is written, and what it costs who returns."""
    measurements: list[Measurement] = []
    for name, load in loads.items():
        for bits in GROUP_BITS:
            with TemporaryDirectory(prefix="tidemark-bench-") as path:
                disk = CountingDisk(path)
                volume = LogVolume.open(disk, identity=1)
                with collector_off():
                    begin = perf_counter()
                    pfs = _filter(volume, load, group_bits=bits)
                    taken = perf_counter() - begin
                case = f"{name}, groups of {1 << bits}"
                share = _needless(pfs, load)
                volume.close()
            measurements.append(Measurement(case, "time", taken, "s"))
            written = disk.bytes_written / len(load.ticks)
            measurements.append(Measurement(case, "written", written, "bytes/event"))
            measurements.append(Measurement(case, "events read for one that matched", share, "x"))
    return Section(f"an imprecise PFS, {effort.seconds} s of the load", measurements, prefix="imprecise")


def _needless(pfs: PersistentFiltering, load: PfsLoad) -> float:
    """Returns how many ticks are reported for one that matched; AssertionError if one that matched is not."""
    first = max(0, len(load.ticks) - KEPT_SECONDS * EVENTS_A_SECOND)
    base = int(load.ticks[first]) - 1
    missed = pfs.read_many(PUBEND, dict.fromkeys(range(SUBSCRIBERS), base), len(load.ticks))
    wanted = load.wanted()[load.sets[first:]]
    reported = 0
    for subscriber, found in missed.items():
        expected = load.ticks[first:][wanted[:, subscriber]]
        there = expected[np.isin(expected, found.ticks)]
        check_exact(len(there), len(expected), f"what subscriber {subscriber} missed")
        reported += len(found.ticks)
    return reported / int(wanted.sum())


def _read_rate(volume: LogVolume, subscribers: int, limit: int) -> float:
    """Returns how many missed ticks a second are read."""
    pfs = PersistentFiltering(volume)
    bases = dict.fromkeys(range(subscribers), FIRST_TICK)
    with collector_off():
        begin = perf_counter()
        missed = pfs.read_many(PUBEND, bases, limit)
        taken = perf_counter() - begin
    found = sum(len(each.ticks) for each in missed.values())
    check_exact({each.upto for each in missed.values()}, {pfs.last(PUBEND)}, "up to where it was read")
    return found / taken
