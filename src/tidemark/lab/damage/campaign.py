"""The campaign: harm a data directory in one place, start the broker, let everybody come back, and judge.

The verdict is by the clients' ledgers alone: every event that was acknowledged to a publisher and matches a
reader is in the reader's ledger once and in order, or lies in a gap that it was told of. So a harm is
- refused: the broker did not start, and said why;
- told: something is missing, and whoever misses it was told a gap; or the broker raised an alarm;
- harmless: nothing is missing;
- silent: an event is missing without a gap, comes twice, or never was published. That must never be.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tidemark.errors import TidemarkError
from tidemark.lab.damage.harms import Harm, flipped_bits, whole_files
from tidemark.lab.damage.stepped_broker import SECOND, Reader, SteppedBroker, Writer
from tidemark.lab.damage.story import Moment, put_back, tell
from tidemark.ticks import TICK_MAX, RangeSet

REFUSED, TOLD, HARMLESS, SILENT = "refused", "told", "harmless", "silent"


@dataclass(frozen=True)
class Verdict:
    """What came of one harm."""

    moment: str
    harm: Harm
    outcome: str
    #: why it was refused, what was told, or what went wrong
    detail: str


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for the time of the campaign, in memory where there is such a place."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="tidemark-damage-", dir=memory if memory.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def run(places: int, seed: int = 0, *, whole: bool = True) -> Iterator[Verdict]:
    """Yield the verdict of every whole file that is deleted or older, and of so many flipped bits."""
    with scratch() as path:
        moments = tell(path / "story")
        for at, moment in enumerate(moments):
            share = places // len(moments) + (at < places % len(moments))
            harms: list[Harm] = [*whole_files(moment)] if whole else []
            harms += flipped_bits(moment, share, Random(f"{seed}/{moment.name}"))
            for harm in harms:
                yield judge(moment, harm, path / "harmed")


def judge(moment: Moment, harm: Harm, directory: Path, lives: Sequence[int] = (1, 2)) -> Verdict:
    """Do a harm to a copy of a moment's data directory. Returns what came of it.

    It is judged once for each of `lives`: everybody is back at once, or most of them only after another
    start, when the broker has gone on from the harm.
    """
    outcome, detail = "", ""
    for count in lives:
        put_back(harm.done_to(moment), directory)
        try:
            found, said = _outcome(moment, directory, count)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        if not outcome or found == SILENT:
            outcome, detail = found, said
        if outcome in (REFUSED, SILENT):
            break
    return Verdict(moment.name, harm, outcome, detail)


def _outcome(moment: Moment, directory: Path, lives: int) -> tuple[str, str]:
    """Start the broker so many times; in the last life everybody comes back, before that one reader does."""
    readers, writers = moment.clients()
    now = moment.now + 60 * SECOND
    told: list[str] = []
    for life in range(1, lives + 1):
        try:
            broker = SteppedBroker(directory, now)
        except (TidemarkError, OSError) as error:
            return (REFUSED, str(error)) if life == 1 else (SILENT, f"refused at start {life} only: {error}")
        try:
            told += _come_back(broker, readers if life == lives else readers[:1], writers)
        finally:
            broker.kill()
        now = broker.now + SECOND
    found = "; ".join(fault for reader in readers for fault in faults_of(reader, writers))
    if found:
        return SILENT, found
    gaps = [gap for reader in readers for gap in reader.gaps]
    alarms = told or broker.alarms
    if gaps or alarms:
        return TOLD, "; ".join((*(f"gap ({base}, {upto}]" for base, upto in gaps), *alarms))
    return HARMLESS, ""


def _come_back(broker: SteppedBroker, readers: list[Reader], writers: list[Writer]) -> list[str]:
    """Everybody comes back and leaves again. Returns what a client was told instead of an answer."""
    broker.welcome(readers, writers)
    clients: list[Reader | Writer] = [*readers, *writers]
    for who in clients:
        broker.leave(who)
    return refusals_of(readers, writers)


def refusals_of(readers: Iterable[Reader], writers: Iterable[Writer]) -> list[str]:
    """Returns what clients were told instead of an answer."""
    clients: list[Reader | Writer] = [*readers, *writers]
    return [each for who in clients for each in who.refusals]


def faults_of(reader: Reader, writers: Iterable[Writer]) -> list[str]:
    """Returns what is wrong with a reader's ledger, in words; nothing if all is as promised."""
    sent = {key: (n, topic) for writer in writers for key, n, topic in writer.sent}
    wanted = {key for key, (n, topic) in sent.items() if n < reader.below and topic == reader.topic}
    got = Counter(key for _, key in reader.events)
    ticks = [tick for tick, _ in reader.events]
    faults = [f"{reader.name}: out of order"] if ticks != sorted(ticks) else []
    faults += [f"{reader.name}: {key} came {count} times" for key, count in got.items() if count > 1]
    faults += [f"{reader.name}: {key} was never wanted or published" for key in got if key not in wanted]
    gaps, start = RangeSet(reader.gaps), min(reader.start.values(), default=TICK_MAX)
    faults += [
        f"{reader.name}: {key} at {tick} is missing"
        for writer in writers
        for key, tick in writer.ticks.items()
        if key in wanted and key not in got and tick > start and not gaps.contains(tick)
    ]
    return faults
