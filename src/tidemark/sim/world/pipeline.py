"""Pipeline: the archive of a simulated world, which also answers recalls.

The pipeline fetches the logs of all pubends, keeps every event, tells the pubends how far they are archived,
and offers every broker to answer recalls. It may crash and come back; the archive itself survives.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from tidemark.broker.streams.window import rows_within
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.ticks import CheckpointToken, RangeSet
from tidemark.wire.frames import (
    Answer,
    Ask,
    ClientFrame,
    Fetch,
    Fetched,
    Line,
    Offer,
    Recall,
    Recalled,
    RecallMore,
    RecallOver,
    Refused,
)

if TYPE_CHECKING:
    from tidemark.sim.world.world import World

RETRY_US = 200_000
FETCH_BYTES = 2_000
#: With one in so many fetches the pipeline asks the pubend to let go what the archive has, as for an erasure,
#: in worlds where history may be released before everybody has consumed it.
DISMISSED_EVERY = 7


@dataclass
class _ArchivedPubend:
    """The archive of one pubend: every event up to `upto` except those in `gone`, which a disk lost."""

    upto: int
    batches: list[EventBatch] = field(default_factory=list)
    gone: RangeSet = field(default_factory=RangeSet)

    def events(self, base: int, upto: int) -> EventBatch | None:
        """Returns the archived events in `(base, upto]`, or None if there are none."""
        parts = [part for each in self.batches if (part := rows_within(each, base, upto)) is not None]
        return concatenate(parts) if parts else None


@dataclass
class _RecallUnderWay:
    """A recall that is being answered: sent up to `base`, and `credit` more bytes may be sent."""

    recall: Recall
    base: int
    credit: int


class Pipeline:
    """One archive for the whole world."""

    def __init__(self, world: World, chance: Random) -> None:
        self._world = world
        self._chance = chance
        self.kept = {name: _ArchivedPubend(0) for name in world.plan.pubends}
        #: broker -> the connection to it; frames on connections of an earlier life are ignored
        self._clients: dict[str, int] = {}
        self._life = 0
        self._is_up = False
        #: the fetches so far; each has a ticket of its own
        self._fetches = 0
        self._answering: dict[tuple[str, int], _RecallUnderWay] = {}

    def start(self) -> None:
        """Start a life and connect to every broker that is up."""
        self._life += 1
        self._is_up = True
        self._look_around(self._life)

    def crash(self) -> None:
        """Crash, and start again after a while."""
        if not self._is_up:
            return
        self._life += 1
        self._is_up = False
        self._answering.clear()
        for client in self._clients.values():
            self._world.disconnect(client)
        self._clients.clear()
        self._world.engine.after(self._chance.randint(1_000, 2 * RETRY_US), self.start)

    def _look_around(self, life: int) -> None:
        """Connect to every broker that is up, now and every RETRY_US, since brokers restart and join."""
        if life != self._life:
            return
        for name in self._world.machines:
            if name not in self._clients and self._world.is_up(name):
                self._connect(name, life)
        self._world.engine.after(RETRY_US, partial(self._look_around, life))

    def _connect(self, name: str, life: int) -> None:
        receive = partial(self._receive, name, life)
        lost = partial(self._lost, name, life)
        self._clients[name] = self._world.connect(name, receive, lost, "pipeline")
        self._say(name, Offer(self._chance.choice((1, 2, 16))))
        for pubend, host in self._world.plan.pubends.items():
            if host == name:
                self._fetch(pubend, life)

    def _lost(self, name: str, life: int) -> None:
        if life == self._life:
            del self._clients[name]
            self._answering = {key: each for key, each in self._answering.items() if key[0] != name}

    def _say(self, name: str, frame: ClientFrame) -> None:
        if name in self._clients:
            self._world.to_broker(self._clients[name], frame)

    def _receive(self, name: str, life: int, frame: ClientFrame) -> None:
        if life != self._life:
            return
        match frame:
            case Fetched():
                self._fetched(name, frame)
            case Answer():
                pass
            case Recall():
                self._answering[name, frame.ticket] = _RecallUnderWay(frame, frame.base, frame.credit)
                self._later(name, frame.ticket)
            case RecallMore(ticket, size):
                if (name, ticket) in self._answering:
                    self._answering[name, ticket].credit += size
                    self._later(name, ticket)
            case RecallOver(ticket):
                self._answering.pop((name, ticket), None)
            case Refused("recall"):
                raise ViolationError(f"the pipeline answered out of order: {frame.reason}")
            case _:
                raise ViolationError(f"the pipeline got {frame}")

    # Archiving.

    def _fetch(self, pubend: str, life: int) -> None:
        name = self._world.plan.pubends[pubend]
        if life == self._life and name in self._clients:
            upto = self._world.latest + 3_600_000_000
            self._fetches += 1
            self._say(name, Fetch(self._fetches, pubend, self.kept[pubend].upto, upto, ">", "", FETCH_BYTES))

    def _fetched(self, name: str, frame: Fetched) -> None:
        kept = self.kept[frame.pubend]
        if frame.base != kept.upto:
            return  # the answer to a fetch of an earlier life
        if frame.lost > max(frame.base, 0) and self._world.ground_truth.within(
            frame.pubend, frame.base, frame.lost
        ):
            raise ViolationError(f"{frame.pubend} let go up to {frame.lost}, archived is {frame.base}")
        for base, upto in frame.damaged:
            kept.gone.add(base, upto)
        if frame.batch is not None:
            kept.batches.append(frame.batch)
        kept.upto = frame.upto
        token = CheckpointToken({frame.pubend: kept.upto})
        self._say(name, Ask(1, "archived", json.dumps({"token": token.text()})))
        if self._world.plan.is_early and self._fetches % DISMISSED_EVERY == 0:
            self._world.checks.dismissed.update(token)
            self._say(name, Ask(2, "let_go", json.dumps({"token": token.text()})))
        rest = self._chance.choice((1_000, 50_000))
        self._world.engine.after(rest, partial(self._fetch, frame.pubend, self._life))

    # Recalling.

    def _later(self, name: str, ticket: int) -> None:
        self._world.engine.after(self._chance.randint(100, 20_000), partial(self._answer, name, ticket))

    def _answer(self, name: str, ticket: int) -> None:
        """Send the next few events of a recall, as long as there is credit."""
        answering = self._answering.get((name, ticket))
        if answering is None or answering.credit <= 0:
            return
        recall, kept = answering.recall, self.kept[answering.recall.pubend]
        if kept.upto < recall.upto:
            if self._world.checks.lost.get(recall.pubend, 0) > kept.upto:
                raise ViolationError(f"{recall} is recalled, but the archive has only got to {kept.upto}")
            self._later(name, ticket)  # the recalled range was damaged on disk and is not archived yet
            return
        batch = self._wanted(recall.lines, kept.events(answering.base, recall.upto))
        upto, few = recall.upto, self._chance.choice((1, 5, 100))
        if batch is not None and batch.count > few:
            batch = batch.slice(0, few)
            upto = int(batch.ticks[-1])
        gone = tuple(kept.gone.parts(answering.base, upto))
        self._say(name, Recalled(ticket, answering.base, upto, batch, gone))
        answering.base = upto
        answering.credit -= len(batch.body) if batch is not None else 0
        if upto == recall.upto:
            del self._answering[name, ticket]
        else:
            self._later(name, ticket)

    def _wanted(self, lines: tuple[Line, ...], batch: EventBatch | None) -> EventBatch | None:
        if batch is None:
            return None
        world, rows = self._world, []
        for row, tick in enumerate(batch.ticks.tolist()):
            key = world.key_of(batch, row)
            held = (each for each in lines if each.base < tick <= each.upto)
            if any(
                world.ground_truth.matches(each.wanted.pattern, each.wanted.selector, key) for each in held
            ):
                rows.append(row)
        return batch.take(np.array(rows, np.int64)) if rows else None
