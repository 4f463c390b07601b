"""What a simulated broker has on disk: event logs, PFS and tables, each with a synced part and the rest.

A crash keeps what was synced and, of the rest, a prefix of any length: that much may have reached the disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from tidemark.broker.broker import Recovered
from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    AppendPfs,
    DropSubscription,
    LogRead,
    LoseLog,
    PfsRead,
    ReadLog,
    ReadPfs,
    SaveReleased,
    SaveSubscription,
)
from tidemark.broker.host import SavedSubscription
from tidemark.broker.pubend import PubendState
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import TICK_MIN

LogEffect = AppendEvents | AppendLease | LoseLog
TableEffect = SaveSubscription | SaveReleased | DropSubscription

#: Events one read of the log returns at the most.
READ_EVENTS_MAX = 200


@dataclass
class Journal:
    """Records in order, of which the first `synced` survive a crash."""

    records: list[object] = field(default_factory=list)
    synced: int = 0

    def append(self, record: object) -> None:
        """One more, not yet safe."""
        self.records.append(record)

    def crash(self, chance: Random) -> None:
        """Lose what was not synced, but for a prefix."""
        kept = chance.randint(self.synced, len(self.records))
        del self.records[kept:]
        self.synced = kept


class Store:
    """The disks of one broker. Survives the broker's lives."""

    def __init__(self) -> None:
        self.log = Journal()
        self.pfs = Journal()
        self.tables = Journal()
        self.incarnation = 0
        #: pubend -> `(base, upto]` that its PFS covers
        self._bounds: dict[str, tuple[int, int]] = {}

    def crash(self, chance: Random) -> None:
        """The machine stops."""
        for journal in (self.log, self.pfs, self.tables):
            journal.crash(chance)
        self._bounds = self._pfs_bounds()

    def recover(self, pubends: Iterable[str]) -> Recovered:
        """What a new life finds."""
        self.incarnation += 1
        return Recovered(
            {name: self._pubend(name) for name in pubends},
            self._subscriptions(),
            {name: upto for name, (_, upto) in self._pfs_bounds().items()},
        )

    def events(self, pubend: str) -> list[EventBatch]:
        """Every batch of a pubend in the log, synced or not, in order."""
        return [each.batch for each in self._of(pubend) if isinstance(each, AppendEvents)]

    def read_log(self, effect: ReadLog) -> LogRead:
        """Answer a read: as much as fits one answer."""
        lost = self._lost(effect.pubend)
        base = min(max(effect.base, lost), effect.upto)
        batches: list[EventBatch] = []
        count, upto = 0, effect.upto
        for batch in self.events(effect.pubend):
            rows = (batch.ticks > base) & (batch.ticks <= effect.upto)
            if rows.any():
                batches.append(batch.take(rows))
                count += batches[-1].count
            if count >= READ_EVENTS_MAX:
                upto = int(batches[-1].ticks[-1])
                break
        return LogRead(effect.pubend, effect.base, upto, effect.upto, lost, tuple(batches))

    def read_pfs(self, effect: ReadPfs) -> PfsRead:
        """Answer which ticks a subscriber matched."""
        first, upto = self._bounds.get(effect.pubend, (effect.base, effect.base))
        base = max(effect.base, first)
        ticks: list[int] = []
        for record in self.pfs.records:
            if isinstance(record, AppendPfs) and record.pubend == effect.pubend and record.upto > base:
                sets = [number for number, who in record.members.items() if effect.subscriber in who]
                found = record.ticks[np.isin(record.sets, sets) & (record.ticks > base)]
                ticks += found[: effect.limit - len(ticks)].tolist()
                if len(ticks) >= effect.limit:
                    upto = ticks[-1]
                    break
        return PfsRead(effect.pubend, effect.subscriber, base, max(upto, base), np.array(ticks, np.int64))

    def append_pfs(self, effect: AppendPfs) -> None:
        """Records at or below the last one are a replay after a crash and are recognised."""
        first, upto = self._bounds.get(effect.pubend, (effect.base, effect.base))
        if effect.upto > upto:
            self._bounds[effect.pubend] = (first, effect.upto)
            self.pfs.append(effect)

    def _of(self, pubend: str) -> list[LogEffect]:
        return [
            each
            for each in self.log.records
            if isinstance(each, AppendEvents | AppendLease | LoseLog) and each.pubend == pubend
        ]

    def _lost(self, pubend: str) -> int:
        return max([each.upto for each in self._of(pubend) if isinstance(each, LoseLog)], default=TICK_MIN)

    def _pubend(self, pubend: str) -> PubendState:
        publishers: dict[str, tuple[int, int]] = {}
        last = lease = TICK_MIN
        for each in self._of(pubend):
            if isinstance(each, AppendEvents):
                last = int(each.batch.ticks[-1])
                publishers[each.publisher] = (each.sequence + each.batch.count - 1, last)
            elif isinstance(each, AppendLease):
                lease = max(lease, each.upto)
        return PubendState(last, lease, self._lost(pubend), publishers)

    def _pfs_bounds(self) -> dict[str, tuple[int, int]]:
        bounds: dict[str, tuple[int, int]] = {}
        for record in self.pfs.records:
            if isinstance(record, AppendPfs):
                first, _ = bounds.get(record.pubend, (record.base, record.upto))
                bounds[record.pubend] = (first, record.upto)
        return bounds

    def _subscriptions(self) -> list[SavedSubscription]:
        saved: dict[int, SavedSubscription] = {}
        for each in self.tables.records:
            match each:
                case SaveSubscription():
                    saved[each.subscriber] = SavedSubscription(
                        each.subscriber, each.name, each.pattern, each.selector, dict(each.token)
                    )
                case SaveReleased() if each.subscriber in saved:
                    old = saved[each.subscriber]
                    saved[each.subscriber] = SavedSubscription(
                        old.id, old.name, old.pattern, old.selector, dict(old.released) | dict(each.token)
                    )
                case DropSubscription():
                    saved.pop(each.subscriber, None)
        return list(saved.values())
