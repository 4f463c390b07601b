"""Preparation: what is done for a client's frame before the frame is handled, in small steps.

Handling a frame is not divided. What may take long, and changes nothing that anybody sees, is therefore done
before: parsing large schemas, looking at the messages of large batches, and making the matcher of a topic
that many subscribers want. Whoever has the connection takes the steps, and handles the frames of other
connections between them. A frame that was not prepared is handled just as well, only in one piece: the
simulator does so.

A step is either a `Work`, which may be done on any thread, since it changes nothing but itself, and has to be
done before the next step is taken; or None, when a short step has been taken just now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidemark.broker.topics import Topics
from tidemark.matching.audience import Audience
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.checking import check_in_steps, is_long_check
from tidemark.message.registry import Registry
from tidemark.wire.frames import ClientFrame, Publish, Subscribe, Topic

Work = Callable[[], None]
Steps = Iterator[Work | None]

#: Shapes of a batch that are looked at to find out whether the batch needs any preparation.
SHAPES_FEW = 8


class Preparation:
    """Finds out which frames need steps, and takes them."""

    def __init__(self, registry: Registry, topics: Topics, audience: Audience) -> None:
        #: the topics that the broker knows; only `Topics` adds to them
        self._registry = registry
        self._topics = topics
        #: the subscribers of this broker; only `Host` adds to them
        self._audience = audience

    def of(self, frame: ClientFrame) -> Steps | None:
        """Return the steps to take before `frame` is handled; None if it can be handled at once."""
        match frame:
            case Publish(batch=batch):
                return self._publish(batch) if self._is_long(batch) else None
            case Subscribe():
                return self._subscribe(frame) if self._needs_steps(frame) else None
            case Topic():
                return self._topics.steps(frame)
            case _:
                return None

    def _is_long(self, batch: EventBatch) -> bool:
        if len(batch.shapes) > SHAPES_FEW:
            return True
        topics, schemas = self._registry.topics, self._registry.schemas
        for topic, fingerprint in batch.shapes:
            if topic in topics and fingerprint in schemas:
                if not self._audience.is_ready(topic) or schemas.work(fingerprint) is not None:
                    return True
                if self._audience.wants(topic) and topics[topic].is_reader_due:
                    return True
        return is_long_check(batch, schemas)

    def _publish(self, batch: EventBatch) -> Steps:
        topics, schemas = self._registry.topics, self._registry.schemas
        for _, fingerprint in batch.shapes:
            parsing = schemas.work(fingerprint)
            if parsing is not None:
                yield parsing
                schemas.take(parsing)
        if is_long_check(batch, schemas):
            yield from check_in_steps(batch, schemas)
        for topic in dict.fromkeys(shape.topic for shape in batch.shapes):
            if topic in topics and self._audience.wants(topic):
                yield from self._read(topic)
                yield from self._audience.steps_before(topic)

    def _needs_steps(self, frame: Subscribe) -> bool:
        topic = self._registry.topics.get(frame.pattern)
        return self._audience.owes or (topic is not None and topic.is_reader_due)

    def _subscribe(self, frame: Subscribe) -> Steps:
        yield from self._audience.steps_owed()
        if frame.pattern in self._registry.topics:
            yield from self._read(frame.pattern)

    def _read(self, name: str) -> Steps:
        """Make the reader of a topic, if it is large."""
        topic = self._registry.topics[name]
        work = topic.reader_work()
        if work is not None:
            yield work
            topic.take(work)
