"""How an archive is doing: what it holds, which process writes it, and how far it is behind its brokers.

`status` is the entry; it reads the archive as any reader does, and asks the brokers where their pubends are.
`ArchiveStatus.to_json` is what `tidemark pipeline status --json` prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidemark import sync
from tidemark.errors import NotConnectedError
from tidemark.spark.archive.reader import Snapshot, snapshot
from tidemark.spark.archive.state import FOLDER, Round
from tidemark.spark.broker_answers import HostedPubend
from tidemark.spark.connections import ArchiveBrokers, urls_of
from tidemark.spark.engine_report import load_report, rate_of
from tidemark.spark.locations import Place, folder_at
from tidemark.spark.stores.hold import writer_of
from tidemark.spark.upkeep.erasure import ErasureSummary, load_erasures
from tidemark.ticks import TICK_MIN
from tidemark.ticks.tick import Range
from tidemark.wire.answers import EngineStatus

#: A person waits for the status, so a broker that is away is given up this soon.
CONNECT_SECONDS = 3.0
#: So much is fetched from a pubend to estimate how many of its events are not archived.
COUNTED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table: the events of all topics with the first level `root`."""

    root: str
    files: int
    bytes: int
    events: int
    columns: int


@dataclass(frozen=True, slots=True)
class ArchivedPubend:
    """One pubend. What only its broker knows is None where no broker was asked or none hosts it."""

    pubend: str
    broker: str | None
    #: the tick up to which the archive has it; None if the archive has nothing of it
    covered: int | None
    last_event: int | None
    #: the tick up to which the broker knows that the pubend is archived
    archived: int | None
    lag_seconds: float | None
    #: about how many events are not archived
    lag_events: int | None
    #: ranges that were gone before they could be archived
    missing: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """How an archive is doing."""

    path: str
    #: the process that writes the archive; None if none does, 0 if it has not said which it is
    process: int | None
    #: what the process last said about itself; None if no process writes the archive
    engine: EngineStatus | None
    events: int
    #: of the events as they were published
    event_bytes: int
    files: int
    #: of the files
    bytes: int
    #: history at or below this tick is not kept any more
    released: int | None
    last_round: Round | None
    #: while the archive was at work
    events_per_second: float | None
    #: of the pubend that is furthest behind
    lag_seconds: float | None
    lag_events: int | None
    #: broker -> why it does not answer
    away: Mapping[str, str]
    tables: tuple[TableStatus, ...]
    pubends: tuple[ArchivedPubend, ...]
    #: the oldest first
    erasures: tuple[ErasureSummary, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The status as a JSON object."""
        return asdict(self)


def status(path: Place, broker: str | Sequence[str] | None) -> ArchiveStatus:
    """How the archive at `path` is doing; with brokers, also how far it is behind them."""
    archived = snapshot(path)
    state = archived.state
    pubends, away = _pubends(archived, broker)
    process = writing_process(path)
    return ArchiveStatus(
        path=archived.path.text,
        process=process,
        engine=None if process is None else load_report(path),
        events=state.events,
        event_bytes=state.bytes,
        files=sum(map(len, archived.files.values())),
        bytes=sum(each.bytes for files in archived.files.values() for each in files),
        released=state.released,
        last_round=state.rounds[-1] if state.rounds else None,
        events_per_second=rate_of(state),
        lag_seconds=max((each.lag_seconds for each in pubends if each.lag_seconds is not None), default=None),
        lag_events=_sum(each.lag_events for each in pubends),
        away=away,
        tables=tuple(_table(archived, root) for root in archived.files),
        pubends=tuple(pubends),
        erasures=tuple(each.summary() for each in load_erasures(path)),
    )


def writing_process(path: Place) -> int | None:
    """The process that writes the archive; None if none does, 0 if it has not said which it is."""
    return writer_of(folder_at(path) / FOLDER)


def _table(archived: Snapshot, root: str) -> TableStatus:
    files = archived.files[root]
    return TableStatus(
        root=root,
        files=len(files),
        bytes=sum(each.bytes for each in files),
        events=sum(each.rows for each in files),
        columns=len(archived.layouts[root].schema),
    )


def _pubends(
    archived: Snapshot, broker: str | Sequence[str] | None
) -> tuple[list[ArchivedPubend], dict[str, str]]:
    """The status of each pubend by name, and the brokers that do not answer."""
    if broker is None:
        return [_offline(archived, name) for name in sorted(archived.state.covered)], {}
    brokers = ArchiveBrokers(urls_of(broker), patience=CONNECT_SECONDS)
    try:
        hosted = {each.pubend: each for each in _answered(brokers)}
        found = [
            _compared(archived, hosted[name], brokers) if name in hosted else _offline(archived, name)
            for name in sorted({*hosted, *archived.state.covered})
        ]
        return found, brokers.away
    finally:
        brokers.close()


def _answered(brokers: ArchiveBrokers) -> list[HostedPubend]:
    """The pubends of the brokers that answer; none if no broker does."""
    try:
        return brokers.pubends()
    except NotConnectedError:
        return []


def _offline(archived: Snapshot, name: str) -> ArchivedPubend:
    """What the archive itself knows of a pubend."""
    state = archived.state
    missing = state.missing.get(name, ())
    return ArchivedPubend(name, None, state.covered.get(name), None, None, None, None, missing)


def _compared(archived: Snapshot, hosted: HostedPubend, brokers: ArchiveBrokers) -> ArchivedPubend:
    """A pubend in the archive compared with what its broker answered."""
    name, last_event = hosted.pubend, hosted.last_event
    covered = archived.state.covered.get(name)
    known = [tick for tick in (covered, hosted.lost) if tick is not None]
    client = brokers.client(hosted.broker)
    return ArchivedPubend(
        pubend=name,
        broker=hosted.broker,
        covered=covered,
        last_event=last_event,
        archived=hosted.archived,
        lag_seconds=_lag(known, last_event),
        lag_events=_count(client, name, max(known, default=TICK_MIN), hosted),
        missing=archived.state.missing.get(name, ()),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _lag(known: Sequence[int], last_event: int | None) -> float | None:
    """Seconds between the last tick that is archived or lost and the last event; None if neither is known."""
    if last_event is None:
        return 0.0
    return max(0.0, (last_event - max(known)) / 1e6) if known else None


def _count(client: sync.Client, pubend: str, base: int, hosted: HostedPubend) -> int:
    """About how many events lie beyond `base`: counted if they are few, else estimated from the first."""
    last = hosted.last_event
    if last is None or last <= base:
        return 0
    first = client._fetch(pubend, base, hosted.position, bytes_max=COUNTED_BYTES)
    if first.batch is None or first.upto >= last:
        return 0 if first.batch is None else first.batch.count
    # The estimate takes the events to come evenly.
    begun = int(first.batch.ticks[0])
    return int(first.batch.count * (last - begun) / max(1, int(first.batch.ticks[-1]) - begun))
