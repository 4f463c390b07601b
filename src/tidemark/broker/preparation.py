"""Preparation: what is done in small steps before a frame, or what was read from a log, is handled.

Handling a frame is not divided. What may take long, and changes nothing that anybody sees, is therefore done
before: parsing large schemas, looking at the messages of large batches, and making the matcher of a topic
that many subscribers want. Whoever has the connection takes the steps, and handles the frames of other
connections between them. A frame that was not prepared is handled just as well, only in one piece: the
simulator does so.

A step is either a `Work`, which may be done on any thread, since it changes nothing but itself, and has to be
done before the next step is taken; or None, when a short step has been taken just now. A `Work` is given a
`Rest`, which it calls every few fields or messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from tidemark.broker.effects import CacheRead, LogFetched, LogRead, Stimulus
from tidemark.broker.publishing.fetching import FETCH_BATCHES_MAX, FETCH_TOPICS_MAX, Fetching
from tidemark.broker.streams.interest import Interests
from tidemark.broker.topics import Topics
from tidemark.matching.audience import Audience
from tidemark.message.batches.batch import EventBatch, Shape
from tidemark.message.batches.checking import check_in_steps, is_long_check
from tidemark.message.codec.rest import Rest
from tidemark.message.registry import Registry
from tidemark.wire.frames import ClientFrame, Knowledge, PeerFrame, Publish, Subscribe, Topic
from tidemark.wire.peer_layouts import singly

Work = Callable[[Rest], None]
Steps = Iterator[Work | None]

#: Shapes of a batch that are looked at to find out whether the batch needs any preparation.
SHAPES_FEW = 8


class Preparation:
    """Finds out what needs steps, and takes them: between any two stimuli, or not at all."""

    def __init__(
        self,
        registry: Registry,
        topics: Topics,
        audience: Audience,
        interests: Interests,
        fetching: Fetching,
    ) -> None:
        #: the topics that the broker knows; only `Topics` adds to them
        self._registry = registry
        self._topics = topics
        #: the subscribers of this broker; only `Host` adds to them
        self._audience = audience
        #: what followers want, and what is read in bulk; each has matchers of its own
        self._interests = interests
        self._fetching = fetching

    def of(self, frame: ClientFrame) -> Steps | None:
        """Return the steps to take before a client's frame is handled; None if it needs none."""
        match frame:
            case Publish(pubend=pubend, batch=batch):
                # In this order: a long check is found by looking at schemas, which are to be ready for that.
                is_new = self._is_new(pubend, batch.shapes)
                is_long = is_new or is_long_check(batch, self._registry.schemas)
                return self._publish(pubend, batch) if is_long else None
            case Subscribe():
                return self._subscribe(frame) if self._needs_steps(frame) else None
            case Topic():
                return self._topics.steps(frame)
            case _:
                return None

    def of_peer(self, frame: PeerFrame) -> Steps | None:
        """Return the steps to take before a neighbour's frame is handled; None if it needs none."""
        parts = singly(frame)
        return self._of_parts(parts) if any(map(self._is_long_part, parts)) else None

    def of_read(self, stimulus: Stimulus) -> Steps | None:
        """Return the steps to take before what was read from a disk is handled; None if it needs none."""
        match stimulus:
            case LogRead(pubend=pubend, batches=batches) if batches:
                shapes, audiences = _shapes(batches), self._audiences(pubend)
            case CacheRead(asked, _, EventBatch() as batch):
                shapes, audiences = batch.shapes, self._audiences(asked.pubend)
            case LogFetched(ticket, read) if read.batches:
                shapes = _of_few_topics(_shapes(read.batches[:FETCH_BATCHES_MAX]))
                audiences = self._fetching.audiences(ticket)
            case _:
                return None
        return self._read_all(shapes, audiences) if self._is_strange(shapes, audiences) else None

    def _audiences(self, pubend: str) -> list[Audience]:
        """Whoever events of a pubend are matched for."""
        return [self._audience, *self._interests.selections(pubend)]

    def _is_new(self, pubend: str, shapes: Sequence[Shape]) -> bool:
        return self._is_strange(shapes, self._audiences(pubend))

    def _is_strange(self, shapes: Sequence[Shape], audiences: Sequence[Audience]) -> bool:
        """Whether events of these shapes, or of some of many, cannot be read and matched in one step."""
        if len(shapes) > SHAPES_FEW:
            return True
        topics, schemas = self._registry.topics, self._registry.schemas
        for topic, fingerprint in shapes:
            if topic in topics and fingerprint in schemas:
                if schemas.work(fingerprint) is not None:
                    return True
                for audience in audiences:
                    if not audience.is_ready(topic):
                        return True
                    if topics[topic].is_reader_due and audience.wants(topic):
                        return True
        return False

    def _publish(self, pubend: str, batch: EventBatch) -> Steps:
        yield from self._parse(batch.shapes)
        if is_long_check(batch, self._registry.schemas):
            yield from check_in_steps(batch, self._registry.schemas)
        yield from self._match(batch.shapes, self._audiences(pubend))

    def _read_all(self, shapes: Sequence[Shape], audiences: Sequence[Audience]) -> Steps:
        yield from self._parse(shapes)
        yield from self._match(shapes, audiences)

    def _parse(self, shapes: Sequence[Shape]) -> Steps:
        """Parse the schemas of these shapes that are large and not ready."""
        schemas = self._registry.schemas
        for _, fingerprint in shapes:
            parsing = schemas.work(fingerprint)
            if parsing is not None:
                yield parsing
                schemas.take(parsing)

    def _match(self, shapes: Sequence[Shape], audiences: Sequence[Audience]) -> Steps:
        """Make the matchers of the topics of these shapes."""
        for topic in dict.fromkeys(shape.topic for shape in shapes):
            for audience in audiences:
                if topic in self._registry.topics and audience.wants(topic):
                    yield from self._read(topic)
                    yield from audience.steps_before(topic)

    def _needs_steps(self, frame: Subscribe) -> bool:
        topic = self._registry.topics.get(frame.pattern)
        return topic is not None and topic.is_reader_due

    def _subscribe(self, frame: Subscribe) -> Steps:
        if frame.pattern in self._registry.topics:
            yield from self._read(frame.pattern)

    def _read(self, name: str) -> Steps:
        """Make the reader of a topic, if it is large."""
        topic = self._registry.topics[name]
        work = topic.reader_work()
        if work is not None:
            yield work
            topic.take(work)

    def _is_long_part(self, frame: PeerFrame) -> bool:
        match frame:
            case Topic():
                return self._topics.is_large(frame)
            case Knowledge(pubend=pubend, batch=EventBatch() as batch):
                return self._is_new(pubend, batch.shapes)
            case _:
                return False

    def _of_parts(self, parts: Sequence[PeerFrame]) -> Steps:
        for frame in parts:
            if isinstance(frame, Topic):
                yield from self._topics.steps_heard(frame)
            elif isinstance(frame, Knowledge) and frame.batch is not None:
                yield from self._read_all(frame.batch.shapes, self._audiences(frame.pubend))


def _shapes(batches: Iterable[EventBatch]) -> tuple[Shape, ...]:
    """The shapes of all batches, each once."""
    together = dict.fromkeys(chain.from_iterable(dict.fromkeys(batch.shapes for batch in batches)))
    return tuple(together)


def _of_few_topics(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """The shapes of the first FETCH_TOPICS_MAX topics."""
    topics: dict[str, None] = {}
    few: list[Shape] = []
    for shape in shapes:
        topics[shape.topic] = None
        if len(topics) > FETCH_TOPICS_MAX:
            break
        few.append(shape)
    return tuple(few)
