"""What tests of a broker share: batches made of ticks, and a broker whose disk answers when told to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tidemark.broker.broker import Broker
from tidemark.broker.config import BrokerConfig, Recovered
from tidemark.broker.effects import (
    AppendEvents,
    AppendPfs,
    ClientFrameReceived,
    ClientGone,
    CommitTables,
    CountPfs,
    Effect,
    FetchLog,
    LinkUp,
    LogFetched,
    LogRead,
    LogSynced,
    LoseLog,
    Owed,
    PeerFrameReceived,
    PfsCounted,
    PfsRead,
    PfsSynced,
    ReadLog,
    ReadPfs,
    SendClient,
    SendPeer,
    Stimulus,
    SyncLog,
    SyncPfs,
    TablesCommitted,
    Woken,
)
from tidemark.broker.overlay.layout import Layout
from tidemark.broker.streams.window import rows_within
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema
from tidemark.wire.frames import ClientFrame, PeerFrame, Topic
from tidemark.wire.peer_layouts import singly

SCHEMA = Schema.parse("[n: int]")
SECOND = 1_000_000
#: The time of day at which every desk begins.
MORNING = 1_000_000 * SECOND


def batch(
    *ticks: int, topic: str = "t", values: Iterable[int] | None = None, validity_ms: int = 0
) -> EventBatch:
    """A batch of events at these ticks. The field n is as given, or the tick modulo 1,000."""
    builder = BatchBuilder()
    for n in values if values is not None else (tick % 1_000 for tick in ticks):
        builder.add(Shape(topic, SCHEMA.fingerprint), SCHEMA.encode({"n": n}), validity_ms=validity_ms)
    built = builder.build()
    built.fill_ticks(np.array(ticks, np.int64))
    return built


class _Disk:
    """The simplest disk there is: it keeps everything and answers at once."""

    def __init__(self) -> None:
        self._events: list[EventBatch] = []
        #: tick, subscribers and bytes of each event that matched
        self._matched: list[tuple[int, list[int], int]] = []
        self._upto = 0
        self._lost = 0

    def answer(self, effect: Effect) -> Stimulus | None:
        """The completion of an effect, which the broker is told; None for an effect that has none."""
        match effect:
            case SyncLog(ticket):
                return LogSynced(ticket)
            case SyncPfs(ticket):
                return PfsSynced(ticket)
            case CommitTables(ticket):
                return TablesCommitted(ticket)
            case ReadPfs(pubend, subscriber, base, _):
                ticks = [tick for tick, members, _ in self._matched if tick > base and subscriber in members]
                return PfsRead(pubend, subscriber, base, self._upto, np.array(ticks, np.int64))
            case CountPfs(ticket, pubend, bases):
                return PfsCounted(ticket, pubend, {who: self._owed(who, base) for who, base in bases.items()})
            case ReadLog(pubend, base, upto):
                parts = (rows_within(each, base, upto) for each in self._events)
                batches = tuple(each for each in parts if each is not None)
                return LogRead(pubend, base, upto, upto, self._lost, batches)
            case FetchLog(ticket, pubend, base, upto, _):
                read = self.answer(ReadLog(pubend, base, upto))
                assert isinstance(read, LogRead)
                return LogFetched(ticket, read)
            case _:
                self._keep(effect)
                return None

    def _owed(self, subscriber: int, base: int) -> Owed:
        found = [
            (tick, length) for tick, members, length in self._matched if tick > base and subscriber in members
        ]
        return Owed(len(found), sum(length for _, length in found), found[0][0] if found else None)

    def _keep(self, effect: Effect) -> None:
        match effect:
            case AppendEvents():
                self._events.append(effect.batch)
            case AppendPfs(_, _, upto, ticks, sets, lengths, members):
                rows = zip(ticks.tolist(), sets.tolist(), lengths.tolist(), strict=True)
                self._matched += [(tick, members[number].tolist(), length) for tick, number, length in rows]
                self._upto = upto
            case LoseLog(_, upto):
                self._lost = upto


class Desk:
    """A broker `b` that hosts the pubend `p` and has told its neighbours so; every effect is looked at."""

    def __init__(
        self,
        *,
        upstream: str | None = None,
        downstream: tuple[str, ...] = (),
        recovered: Any = None,
        **settings: Any,
    ) -> None:
        parents: dict[str, str | None] = {"b": upstream} | dict.fromkeys(downstream, "b")
        if upstream is not None:
            parents[upstream] = None
        layout = Layout.of_tree(parents, {"p": upstream or "b"})
        config = BrokerConfig("b", 1, layout, **settings)
        self.registry = Registry()
        self._disk = _Disk()
        # That nobody else hosts subscribers is on disk already, so that nothing has to be saved at first.
        found = replace(recovered or Recovered(), hosts={"p": ()})
        self.broker = Broker(config, self.registry, found)
        self.now = 0

    @property
    def last_said(self) -> int:
        """The sequence of the last row that the broker has said of itself."""
        return self.broker._reports.last_said

    def give(self, stimulus: Stimulus) -> list[Effect]:
        """Give the broker one stimulus; returns its effects."""
        return self.broker.handle(stimulus, self.now, MORNING + self.now)

    def say(self, client: int, frame: ClientFrame) -> list[Effect]:
        """A client says something."""
        return self.give(ClientFrameReceived(client, frame))

    def gone(self, client: int) -> list[Effect]:
        """A client's connection is gone."""
        return self.give(ClientGone(client))

    def hear(self, peer: str, frame: PeerFrame) -> list[Effect]:
        """A neighbour says something."""
        return self.give(PeerFrameReceived(peer, frame))

    def link(self, peer: str) -> list[Effect]:
        """The link to a neighbour comes up."""
        return self.give(LinkUp(peer))

    def answers(self, effect: Effect) -> Stimulus:
        """Returns what the disk answers to an effect now; the broker is not told."""
        answer = self._disk.answer(effect)
        assert answer is not None
        return answer

    def finish(self, effects: list[Effect], but: type | None = None) -> list[Effect]:
        """Let the disk carry out effects and all that follow; returns other effects, and those of `but`."""
        done: list[Effect] = []
        while effects:
            then: list[Effect] = []
            for effect in effects:
                answer = None if type(effect) is but else self._disk.answer(effect)
                if answer is None:
                    done.append(effect)
                else:
                    then += self.give(answer)
            while not then and self.broker.is_behind:
                then = self.broker.deliver(self.now, MORNING + self.now)
            effects = then
        return done

    def do(self, client: int, frame: ClientFrame) -> list[ClientFrame]:
        """A client says something and the disk does its work; returns the frames that the client was sent."""
        return told(self.finish(self.say(client, frame)), client)

    def pass_time(self, seconds: float) -> list[Effect]:
        """Time passes, the broker is woken every 50 ms, and the disk does its work."""
        done: list[Effect] = []
        until = self.now + int(seconds * SECOND)
        while self.now < until:
            self.now += 50_000
            done += self.finish(self.give(Woken()))
        return done

    def declare(self, topic: str = "t") -> None:
        """The topic of `batch` becomes known."""
        self.do(99, Topic(topic, False, (SCHEMA.text,)))


def told(effects: Iterable[Effect], client: int) -> list[ClientFrame]:
    """The frames that a client was sent."""
    return [each.frame for each in effects if isinstance(each, SendClient) and each.client == client]


def sent(effects: Iterable[Effect], peer: str, kind: type[PeerFrame]) -> list[Any]:
    """What a neighbour is told, of this kind."""
    frames = [each.frame for each in effects if isinstance(each, SendPeer) and each.peer == peer]
    return [each for frame in frames for each in singly(frame) if isinstance(each, kind)]
