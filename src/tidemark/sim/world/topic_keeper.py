"""A topic that is removed and created again while the world runs, and a publisher of its events.

`TopicKeeper` asks any broker what the topic is, and then removes it or creates it again, with a schema that
does not fit the one before. `KeptTopicPublisher` publishes to it in the schema that its broker names, and
takes back what is refused because the topic was removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from tidemark.message.batches.batch import BatchBuilder, Shape
from tidemark.message.generations import is_removed
from tidemark.message.schema import Schema
from tidemark.sim.world.publisher import RETRY_US, SimPublisher
from tidemark.wire.frames import ClientFrame, Describe, Refused, Topic

if TYPE_CHECKING:
    from tidemark.sim.world.world import World

TOPIC = "t.again"
#: The schemas of the topic, in turns: as versions of one topic they would not fit each other.
SCHEMAS = (
    Schema.parse("[key: string, kind: string, n: int, extra: int]"),
    Schema.parse("[extra: string, key: string, kind: string, n: int]"),
)
#: The longest time between two changes of the topic, in microseconds.
REST_US = 400_000


def schema_of(creation: int) -> Schema:
    """The schema of a creation of the topic."""
    return SCHEMAS[creation // 2 % 2]


@dataclass
class TopicKeeper:
    """Removes the topic and creates it again, at any broker."""

    world: World
    chance: Random
    #: how often the topic was removed
    removals: int = 0
    #: broker -> the highest generation that it has confirmed
    _confirmed: dict[str, int] = field(default_factory=dict)
    _client: int | None = None
    #: the broker that the client is connected to
    _broker: str = ""
    _has_asked: bool = False

    def confirmed(self, brokers: Iterable[str]) -> int:
        """Return the highest generation that one of these brokers has confirmed; 0 if none has."""
        return max((self._confirmed.get(name, 0) for name in brokers), default=0)

    def begin(self, until: int) -> None:
        """Change the topic now and then up to a time."""

        def change() -> None:
            if self.world.engine.now < until:
                self._change()
                self.world.engine.after(self.chance.randint(1, REST_US), change)

        self.world.engine.after(1, change)

    def _change(self) -> None:
        self._leave()
        machine = self.chance.choice(sorted(self.world.machines))
        if self.world.is_up(machine):
            self._has_asked, self._broker = False, machine
            self._client = self.world.connect(machine, self._receive, self._gone)
            self.world.to_broker(self._client, Describe(TOPIC))

    def _leave(self) -> None:
        if self._client is not None:
            self.world.disconnect(self._client)
            self._client = None

    def _gone(self) -> None:
        self._client = None

    def _receive(self, frame: ClientFrame) -> None:
        if self._client is None or not isinstance(frame, Topic):
            return  # the broker has not heard of a change yet
        if self._has_asked:
            self._confirmed[self._broker] = max(frame.generation, self.confirmed([self._broker]))
            self.removals += is_removed(frame.generation)
            self._leave()
            return
        self._has_asked = True
        if frame.schemas and not is_removed(frame.generation):
            wanted = Topic(TOPIC, False, (), frame.generation + 1)
        else:
            creation = frame.generation + is_removed(frame.generation)
            wanted = Topic(TOPIC, False, (schema_of(creation).text,), creation)
        self.world.to_broker(self._client, wanted)


@dataclass
class KeptTopicPublisher(SimPublisher):
    """Publishes to the topic while it exists, one batch at a time."""

    #: the creation that the broker has named; None while there is none
    _creation: int | None = field(default=None)

    def publish(self, count: int) -> None:
        """Publish events in the schema of the topic as it is, if it is known and nothing is under way."""
        if self._creation is None or self.client is None or self._unacknowledged:
            return
        schema, builder = schema_of(self._creation), BatchBuilder()
        for _ in range(count):
            self._sequence += 1
            extra = self._sequence if schema is SCHEMAS[0] else str(self._sequence)
            event: dict[str, Any] = {
                "key": f"{self.name}/{self._sequence}",
                "kind": self.chance.choice("abcd"),
                "n": self.chance.randrange(100),
                "extra": extra,
            }
            message = self.world.ground_truth.add(TOPIC, event, 0, schema)
            builder.add(Shape(TOPIC, schema.fingerprint), message, publisher=self.name)
        first = self._sequence - count + 1
        self._unacknowledged.append((first, bytes(builder.build().data), count))
        self._send_all()

    def discover(self, topic: str) -> None:
        """Do nothing: this publisher has one topic, and declares it itself."""

    def _declare(self, topic: str) -> None:
        assert self.client is not None
        self._creation = None
        self.world.to_broker(self.client, Describe(topic))

    def receive(self, frame: ClientFrame) -> None:
        """Handle a frame from the broker."""
        match frame:
            case Topic(_, _, schemas, generation):
                exists = bool(schemas) and not is_removed(generation)
                self._creation = generation if exists else None
                self._send_all()  # what was logged before the topic was removed is acknowledged
                if not exists:
                    self.world.engine.after(self.chance.randint(1, RETRY_US), self._ask_again)
            case Refused(_, _, "removed", _):
                self.world.fault_counts["publish_removed"] += 1
                self._take_back()
                self._ask_again()
            case _:
                super().receive(frame)

    def _take_back(self) -> None:
        """Nothing of the batch was logged: its numbers are given to the next one."""
        for first, _, _ in self._unacknowledged[:1]:
            self._sequence = first - 1
        self._unacknowledged.clear()

    def _ask_again(self) -> None:
        if self.client is not None:
            self._declare(TOPIC)
