"""Parts of a broker without the broker: a stream with its surroundings, at one turn."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.broker.desk import SCHEMA
from tidemark.broker.effects import Effect
from tidemark.broker.streams.answers import Batches
from tidemark.broker.streams.interest import Interests
from tidemark.broker.streams.stream import Ranges, Stream
from tidemark.broker.turn import Turn
from tidemark.message.batches.batch import EventBatch
from tidemark.message.registry import Registry
from tidemark.ticks import Thresholds
from tidemark.wire.frames import Interest

GCT_US = 50_000


def registry() -> Registry:
    """A registry that knows the topic of `desk.batch`."""
    made = Registry()
    made.declare("t", SCHEMA)
    return made


@dataclass
class Heard:
    """The subscribers of a broker as a stream sees them, which write down what they hear."""

    advances: list[tuple[int, int, int]] = field(default_factory=list)
    answers: list[tuple[int, int, list[int], list[tuple[int, int]]]] = field(default_factory=list)
    #: of how many batches the events of each answer were
    batches: list[int] = field(default_factory=list)
    losses: int = 0
    consumed: int | None = None

    def advanced(self, pubend: str, tag: int, base: int, upto: int) -> None:
        assert pubend == "p"
        self.advances.append((tag, base, upto))

    def answered(self, pubend: str, base: int, upto: int, batches: Batches, damaged: Ranges) -> None:
        assert pubend == "p"
        ticks = [tick for batch in batches for tick in ticks_of(batch)]
        self.answers.append((base, upto, ticks, list(damaged)))
        self.batches.append(len(batches))

    def lost(self, pubend: str) -> None:
        assert pubend == "p"
        self.losses += 1

    def delivered(self, pubend: str) -> int | None:
        assert pubend == "p"
        return self.consumed


class AtStream:
    """The stream of the pubend `p` at a broker, with the turn, the interests and the listener around it."""

    def __init__(self, *, is_hosted: bool = False, window_bytes_max: int = 1 << 20) -> None:
        self.turn = Turn()
        self.interests = Interests(1, registry(), self.turn)
        self.stream = Stream(
            "p", self.interests, self.turn, window_bytes_max, Thresholds(gct_us=GCT_US), is_hosted=is_hosted
        )
        self.listener = Heard()
        self.stream.listener = self.listener

    def followed(self, peer: str, frame: Interest) -> list[Effect]:
        """A neighbour follows with this interest."""
        self.interests.heard(peer, frame)
        self.stream.follow(peer)
        return self.take()

    def attach(self, upstream: str = "up") -> int:
        """Attach the stream to a neighbour; returns the interest version that the neighbour was told."""
        said = self.interests.say("p", upstream, again=True)
        assert said is not None
        self.stream.attach(upstream, said.version)
        return said.version

    def take(self) -> list[Effect]:
        """The effects since the last call."""
        return self.turn.out.take()


def ticks_of(batch: EventBatch | None) -> list[int]:
    """The ticks of a batch; an empty list for None."""
    return [] if batch is None else [int(tick) for tick in batch.ticks]
