"""Audience: the members that want events, over all topics.

A member is a number with a topic pattern and a selector. What a number stands for is the owner's affair: a
subscription at a host, a line of a neighbour's interest at a relay, a returning subscriber in deep catch-up.
The audience keeps a matcher for each topic that it has met, with the members whose pattern matches the topic.
It follows the registry: when a topic gets a new version of its schema, the topic's matcher gets the
changed types, and members whose selector did not fit before are tried again. Events of a creation of a topic
that was removed since have a matcher of their own, by the schema of that time.

A member whose pattern has wildcards may want thousands of topics. It joins and leaves at once the few that
had events last; the others catch up with who came and went when they have their next event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DecodeError, TidemarkError
from tidemark.matching.index.arrays import distinct
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.single import SingleMatcher, single_matcher
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import PRELUDE, EventBatch, Shape
from tidemark.message.batches.checking import damaged_rows
from tidemark.message.batches.columns import Bools
from tidemark.message.registry import Registry, TopicSchemas

Rows = NDArray[np.int64]
Members = NDArray[np.uint32]
Sets = NDArray[np.uint32]

#: Versions of a topic's schema for which a matcher of single events is kept.
SINGLES_MAX = 64
#: Topics for which `prepare` makes a matcher, and topics that it looks at for a pattern with wildcards; the
#: bytes of the schemas that it reads for them, at most.
PREPARED_MAX = 16
LOOKED_AT_MAX = 256
PREPARED_BYTES_MAX = 16 << 10
#: Patterns with wildcards that are tried to find out whether anybody wants a topic; of more, one may match.
WILDCARDS_MAX = 32
#: Topics with the latest events, which a member with wildcards joins and leaves at once.
AT_ONCE_MAX = 16
#: Members with wildcards that came or went and are remembered for topics that have not caught up with them. A
#: topic that is further behind begins anew.
CHANGES_MAX = 65_536
#: Members that join a topic in one step, which takes about a millisecond.
STEP_MEMBERS = 4
#: Topics of one batch for which it is found out which events a neighbour wants; of the others it gets all.
WANTED_TOPICS_MAX = 64
#: Creations that were removed for which a matcher is kept: few have events on their way.
REMOVED_MAX = 16
#: What the matchers of all topics of an audience may take in memory, about: those used last are kept.
HELD_BYTES_MAX = 512 << 20
#: Of which a member of a topic takes so much, and each byte of the text of the topic's schema so much.
MEMBER_BYTES = 640
SCHEMA_FACTOR = 224
#: the rows of a batch of one event; shared by all answers, hence not writable
_ONLY_ROW: Rows = np.zeros(1, np.int64)
_ONLY_ROW.flags.writeable = False


class _Topic:
    """The members whose pattern matches one topic."""

    def __init__(self, schemas: TopicSchemas) -> None:
        self.name = schemas.topic
        self.creation = schemas.creation
        self.reader = schemas.reader
        self.matcher = Matcher(self.reader)
        #: the members that are in `matcher`
        self.joined: set[int] = set()
        #: the members whose selector does not fit the topic's fields, so that it is true for no event
        self.misfits: set[int] = set()
        #: the members that have not been looked at yet, in order; no event is matched before they are
        self.unjoined: dict[int, None] = {}
        #: how many changes of members with wildcards this topic has caught up with
        self.seen = 0
        #: fingerprint of a schema -> the matcher of an event that comes alone; None where `matcher` has to do
        #: it. Emptied whenever members or types change.
        self.singles: dict[int, SingleMatcher | None] = {}

    @property
    def held_bytes(self) -> int:
        """The memory that this takes, about."""
        return SCHEMA_FACTOR * self.reader.schema.weight + MEMBER_BYTES * len(self.joined)

    def single(self, fingerprint: int) -> SingleMatcher | None:
        """The matcher for single events of this schema, for the present members.

        None if there can be none.
        """
        if fingerprint not in self.singles:
            if len(self.singles) >= SINGLES_MAX:
                self.singles.clear()
            self.singles[fingerprint] = single_matcher(self.matcher, self.reader, fingerprint)
        return self.singles[fingerprint]


class Audience:
    """All members, and a matcher for each topic.

    `matches`, `match_sets` and `chosen` need the schema of every event: ask `unknown_from` first.
    """

    def __init__(self, registry: Registry, *, held_bytes_max: int = HELD_BYTES_MAX) -> None:
        #: shared with the owner, who adds topics and schemas to it; the audience only reads it
        self._registry = registry
        self._held_bytes_max = held_bytes_max
        self._members: dict[int, tuple[TopicPattern, str]] = {}
        #: the members whose pattern names one topic, by the topic, and the other members
        self._of_one_topic: dict[str, set[int]] = {}
        self._of_more_topics: set[int] = set()
        #: the patterns of the other members, and how many members have each
        self._wildcards: dict[TopicPattern, int] = {}
        #: topics that were met, the one that was used longest ago first, and what they take in memory
        self._topics: dict[str, _Topic] = {}
        self._held_bytes = 0
        #: topic and creation -> its members, of creations that were removed; as in `_topics`
        self._removed: dict[tuple[str, int], _Topic] = {}
        #: members with wildcards that came or went, the last of `_changed` such changes
        self._changes: list[int] = []
        self._changed = 0

    def add(self, member: int, pattern: str, selector: str) -> None:
        """Add a member, which must be new. TopicError if `pattern` is no topic pattern.

        A selector that does not fit the fields of a topic is true for no event of that topic.
        """
        assert member not in self._members
        parsed = TopicPattern.parse(pattern)
        self._members[member] = (parsed, selector)
        if parsed.is_exact:
            self._of_one_topic.setdefault(pattern, set()).add(member)
        else:
            self._of_more_topics.add(member)
            self._wildcards[parsed] = self._wildcards.get(parsed, 0) + 1
        if not parsed.is_exact:
            self._change(member)
            return
        for topic in self._of_name(pattern):
            self._join(topic, member)

    def _of_name(self, name: str) -> list[_Topic]:
        """The topic of this name that was met, and its creations that were removed."""
        removed = [each for each in self._removed.values() if each.name == name]
        return [self._topics[name], *removed] if name in self._topics else removed

    def _change(self, member: int) -> None:
        """A member with wildcards came or went: topics that had events lately catch up at once."""
        self._changes.append(member)
        self._changed += 1
        if len(self._changes) > CHANGES_MAX:
            del self._changes[: CHANGES_MAX // 2]
        for topic in [self._topics[name] for name in islice(reversed(self._topics), AT_ONCE_MAX)]:
            # One that was forgotten meanwhile, to make room, is left alone.
            if self._behind(topic) <= STEP_MEMBERS and self._topics.get(topic.name) is topic:
                self._catch_up(topic)

    def _behind(self, topic: _Topic) -> int:
        """How many members have to be looked at before events of a topic can be matched."""
        return len(topic.unjoined) + self._changed - topic.seen

    def _is_outdated(self, topic: _Topic) -> bool:
        """Whether changes that a topic has not caught up with are not remembered any more."""
        return self._changed - topic.seen > len(self._changes)

    def _catch_up(self, topic: _Topic, most: int | None = None) -> None:
        """Let members join and leave a topic that has not caught up with them: all of them, or so many."""
        for member in list(islice(topic.unjoined, most)):
            self._join(topic, member)
            most = None if most is None else most - 1
        first = len(self._changes) - (self._changed - topic.seen)
        for member in self._changes[first : None if most is None else first + most]:
            topic.seen += 1
            self._leave(topic, member)
            if member in self._members:
                self._join(topic, member)

    def steps_before(self, name: str) -> Iterator[None]:
        """Make the matcher of a topic in steps, before an event of the topic comes; yields after each step.

        There is nothing to do for a topic that is not known. An event that comes meanwhile makes the rest.
        """
        if name not in self._registry.topics:
            return
        topic = self._met(self._registry.topics[name])
        while self._behind(topic) and self._topics.get(name) is topic and not self._is_outdated(topic):
            self._catch_up(topic, STEP_MEMBERS)
            yield

    def wants(self, name: str) -> bool:
        """Return whether a member may want events of this topic: what nobody wants is not even read."""
        met = self._topics.get(name)
        if name in self._of_one_topic or (met is not None and met.joined and not self._behind(met)):
            return True
        patterns = self._wildcards
        return len(patterns) > WILDCARDS_MAX or any(pattern.matches(name) for pattern in patterns)

    def wanting(self, name: str) -> list[int]:
        """Return the members whose pattern matches a topic, in order."""
        more = [each for each in self._of_more_topics if self._members[each][0].matches(name)]
        return sorted([*self._of_one_topic.get(name, ()), *more])

    def is_ready(self, name: str) -> bool:
        """Return whether an event of this topic can be matched in one step."""
        topic = self._topics.get(name)
        if topic is None:
            return len(self._of_more_topics) + len(self._of_one_topic.get(name, ())) <= STEP_MEMBERS
        return self._behind(topic) <= STEP_MEMBERS

    def prepare(self, member: int) -> None:
        """Make the matchers now that the next events would make, for topics that the member wants.

        Otherwise the first event of a topic would wait until all its members have joined. A member that wants
        many topics prepares a few. A topic that many others want already is left to `steps_before`.
        """
        pattern, _ = self._members[member]
        known = self._registry.topics
        found = pattern.found_in(self._registry.names, LOOKED_AT_MAX)
        unmet = (name for name in found if name is not None and name not in self._topics)
        size = 0
        for name in list(islice(unmet, PREPARED_MAX)):
            size += known[name].weight
            if size > PREPARED_BYTES_MAX and not pattern.is_exact:
                break
            if self.is_ready(name):
                self._topic(known[name])

    def joined_topics(self, member: int) -> int:
        """Return how many topics a member leaves when it is removed, at most: that takes as long."""
        pattern, _ = self._members[member]
        return 1 if pattern.is_exact else min(len(self._topics), AT_ONCE_MAX)

    def remove(self, member: int) -> None:
        """Remove a member; does nothing if there is no such member."""
        pattern, _ = self._members.pop(member, (None, ""))
        if pattern is None:
            return
        if not pattern.is_exact:
            self._of_more_topics.discard(member)
            self._wildcards[pattern] -= 1
            if not self._wildcards[pattern]:
                del self._wildcards[pattern]
            self._change(member)
            return
        alike = self._of_one_topic[str(pattern)]
        alike.discard(member)
        if not alike:
            del self._of_one_topic[str(pattern)]
        for topic in self._of_name(str(pattern)):
            self._leave(topic, member)

    def _leave(self, topic: _Topic, member: int) -> None:
        topic.misfits.discard(member)
        topic.unjoined.pop(member, None)
        if member in topic.joined:
            topic.joined.remove(member)
            topic.matcher.remove(member)
            topic.singles.clear()
            self._held_bytes -= MEMBER_BYTES

    def knows(self, shapes: Iterable[Shape]) -> bool:
        """Whether the registry knows all these topics and schemas."""
        return all(self._is_known(*shape) for shape in shapes)

    def unknown_from(self, batch: EventBatch) -> int | None:
        """The first row whose topic, or whose schema, the registry does not know; None if it knows all."""
        for shape in batch.shapes:
            if not self._is_known(*shape):
                break
        else:
            return None
        unknown = [index for index, shape in enumerate(batch.shapes) if not self._is_known(*shape)]
        rows = np.flatnonzero(np.isin(batch.prelude("shape"), unknown))
        return int(rows[0]) if len(rows) else None

    def matches(self, batch: EventBatch) -> Iterator[tuple[Rows, Members]]:
        """Yields rows of the batch and the members that want these rows; rows that nobody wants are left out.

        A row is in one group only; rows with the same members may come in several groups.
        """
        alone = self._only_message(batch) if batch.count == 1 else None
        if alone is not None:
            members = _members(*alone)
            if members is not None and len(members):
                yield _ONLY_ROW, members
            return
        for schemas, rows, part in self._by_topic(batch):
            if not self.wants(schemas.topic):
                continue
            topic = self._topic(schemas)
            sets = _match(topic, part, otherwise=0)
            for match_set in distinct(sets):
                if match_set:
                    chosen = sets == match_set
                    yield (rows if chosen.all() else rows[chosen]), topic.matcher.members(match_set)

    def match_sets(self, batch: EventBatch) -> Iterator[tuple[str, Rows, Sets, Matcher]]:
        """Yields for each topic its rows, the match set of each row, and the matcher with their members.

        A topic comes once for each of its creations of which there are events.
        """
        for schemas, rows, part in self._by_topic(batch):
            topic = self._topic(schemas)
            yield topic.name, rows, _match(topic, part, otherwise=0), topic.matcher

    def wanted(self, batch: EventBatch) -> Bools:
        """wanted[row]: some member wants the event, or it cannot be ruled out that one does.

        It cannot be ruled out where the topic or the schema is not known, where a member's selector does not
        fit the fields known here, and where the message cannot be read. Of a batch of many topics, those
        beyond WANTED_TOPICS_MAX that a pattern matches are not looked at either: each takes as long as a
        hundred events of one topic.
        """
        wanted = np.zeros(batch.count, np.bool_)
        looked_at = 0
        for name, rows in _rows_by_topic(batch):
            if not self.wants(name):
                continue
            looked_at += 1
            if looked_at > WANTED_TOPICS_MAX:
                wanted[rows] = True
                continue
            part = batch if len(rows) == batch.count else batch.take(rows)
            if self.unknown_from(part) is not None:
                wanted[rows] = any(pattern.matches(name) for pattern, _ in self._members.values())
                continue
            for schemas, of_part, piece in self._by_creation(name, part):
                topic = self._topic(schemas)
                wanted[rows[of_part]] = bool(topic.misfits) or _match(topic, piece, otherwise=1) != 0
        return wanted

    def chosen(self, member: int, batch: EventBatch) -> Bools:
        """chosen[row]: this member wants the event."""
        chosen = np.zeros(batch.count, np.bool_)
        for rows, members in self.matches(batch):
            if member in members:
                chosen[rows] = True
        return chosen

    def _only_message(self, batch: EventBatch) -> tuple[SingleMatcher, bytes] | None:
        """The matcher for single events and the message of the only event.

        None if a batch matcher must do it.
        """
        at, _, _, _, key_bytes, _ = PRELUDE.unpack_from(batch.body.data)
        shape = batch.shapes[at]
        if not self.wants(shape.topic):
            return None
        schemas = self._registry.of_event(*shape)
        assert schemas is not None, "unknown_from comes first"
        single = self._topic(schemas).single(shape.fingerprint)
        if single is None:
            return None
        return single, bytes(batch.body.data[PRELUDE.size : len(batch.body) - key_bytes])

    def _is_known(self, topic: str, fingerprint: int) -> bool:
        known = topic in self._registry.topics or topic in self._registry.removed
        return known and fingerprint in self._registry.schemas

    def _by_topic(self, batch: EventBatch) -> Iterator[tuple[TopicSchemas, Rows, EventBatch]]:
        """Yields each creation of a topic that the batch has events of, with its rows and a batch of them."""
        for name, rows, part in _by_topic(batch):
            for schemas, of_part, piece in self._by_creation(name, part):
                yield schemas, rows[of_part] if piece is not part else rows, piece

    def _by_creation(self, name: str, part: EventBatch) -> Iterator[tuple[TopicSchemas, Rows, EventBatch]]:
        """The same for a batch of events of one topic."""
        if name not in self._registry.removed:
            yield self._registry.topics[name], np.arange(part.count), part
            return
        shapes: dict[TopicSchemas, list[int]] = {}
        for index, shape in enumerate(part.shapes):
            schemas = self._registry.of_event(*shape) if shape.topic == name else None
            if schemas is not None:
                shapes.setdefault(schemas, []).append(index)
        of_shape = part.prelude("shape")
        for schemas, indices in shapes.items():
            rows = np.flatnonzero(np.isin(of_shape, indices))
            if len(rows):
                yield schemas, rows, part if len(rows) == part.count else part.take(rows)

    def _topic(self, schemas: TopicSchemas) -> _Topic:
        """The topic of these versions, which all members that want it have joined."""
        name = schemas.topic
        found = self._topics.get(name)
        if (
            found is not None
            and found.seen == self._changed
            and not found.unjoined
            and found.creation == schemas.creation
            and found.reader is schemas.reader
            and self._registry.topics.get(name) is schemas
        ):
            self._topics[name] = self._topics.pop(name)  # it is the last one that was asked for
            return found
        found = self._met(schemas)
        self._catch_up(found)
        return found

    def _met(self, schemas: TopicSchemas) -> _Topic:
        """The topic as its newest schema has it; members may still have to join it."""
        if self._registry.topics.get(schemas.topic) is not schemas:
            return self._met_removed(schemas)
        name = schemas.topic
        found, reader = self._topics.pop(name, None), schemas.reader
        if found is not None and (found.creation != schemas.creation or self._is_outdated(found)):
            self._held_bytes -= found.held_bytes
            found = None  # the topic was removed and created again, or is too far behind
        if found is None:
            found = self._new(schemas)
        elif found.reader is not reader:
            self._held_bytes -= found.held_bytes
            found.reader = reader
            self._held_bytes += found.held_bytes
            found.matcher.retype(reader)
            found.singles.clear()
            found.unjoined |= dict.fromkeys(sorted(found.misfits))
            found.misfits = set()
        self._topics[name] = found
        self._make_room(name)
        return found

    def _met_removed(self, schemas: TopicSchemas) -> _Topic:
        key = (schemas.topic, schemas.creation)
        found = self._removed.pop(key, None)
        if found is None or found.reader is not schemas.reader or self._is_outdated(found):
            self._held_bytes -= found.held_bytes if found is not None else 0
            found = self._new(schemas)
        self._removed[key] = found
        while len(self._removed) > REMOVED_MAX:
            self._held_bytes -= self._removed.pop(next(iter(self._removed))).held_bytes
        return found

    def _new(self, schemas: TopicSchemas) -> _Topic:
        """A topic that no member has joined yet."""
        found = _Topic(schemas)
        self._held_bytes += found.held_bytes
        joining = self._of_one_topic.get(found.name, set()) | self._of_more_topics
        found.unjoined = dict.fromkeys(sorted(joining))
        found.seen = self._changed
        return found

    def _make_room(self, name: str) -> None:
        """Forget matchers that were not used for the longest time, but not that of `name`, if all are large.

        They are made again when they are needed.
        """
        while self._held_bytes > self._held_bytes_max and len(self._topics) > 1:
            oldest = next(each for each in self._topics if each != name)
            self._held_bytes -= self._topics.pop(oldest).held_bytes

    def _join(self, topic: _Topic, member: int) -> None:
        topic.unjoined.pop(member, None)
        pattern, selector = self._members.get(member, (None, ""))
        if pattern is None or member in topic.joined or not pattern.matches(topic.name):
            return
        try:
            parsed = Selector.fitting(selector, topic.reader, topic.name)
        except TidemarkError:
            parsed = None
        if parsed is None:
            topic.misfits.add(member)
            return
        topic.matcher.add(member, parsed)
        topic.joined.add(member)
        topic.singles.clear()
        self._held_bytes += MEMBER_BYTES
        self._make_room(topic.name)


def _members(single: SingleMatcher, message: bytes) -> Members | None:
    """The members that want the event; None if the message cannot be read."""
    try:
        return single.members(message)
    except DecodeError:
        return None


def _match(topic: _Topic, part: EventBatch, *, otherwise: int) -> Sets:
    """sets[row]: the match set of each row, or `otherwise` for a row whose message cannot be read.

    A broker refuses a message that cannot be decoded when it is published; an older version let some in. A
    damaged message must not stop the events around it: they are matched together, and each damaged one alone,
    since the fields that selectors ask for may be sound.
    """
    try:
        return topic.matcher.match(topic.reader.columns(part))
    except DecodeError:
        if part.count == 1:
            return np.array([otherwise], np.uint32)
    damaged = damaged_rows(part, topic.reader.schemas)
    alone = damaged if 0 < len(damaged) < part.count else range(part.count)
    sets = np.zeros(part.count, np.uint32)
    for row in alone:
        sets[row] = _match(topic, part.slice(row, row + 1), otherwise=otherwise)[0]
    others = np.setdiff1d(np.arange(part.count), alone)
    if len(others):
        sets[others] = _match(topic, part.take(others), otherwise=otherwise)
    return sets


def _by_topic(batch: EventBatch) -> Iterator[tuple[str, Rows, EventBatch]]:
    """Yields each topic of the batch with its rows and a batch of them."""
    for topic, rows in _rows_by_topic(batch):
        yield topic, rows, batch if len(rows) == batch.count else batch.take(rows)


def _rows_by_topic(batch: EventBatch) -> Iterator[tuple[str, Rows]]:
    """Yields each topic of the batch with its rows."""
    topics = sorted({shape.topic for shape in batch.shapes})
    if len(topics) == 1:
        yield topics[0], np.arange(batch.count)
        return
    numbers = {topic: number for number, topic in enumerate(topics)}
    of_row = np.array([numbers[shape.topic] for shape in batch.shapes])[batch.prelude("shape")]
    order = np.argsort(of_row, kind="stable")
    ends = np.searchsorted(of_row[order], np.arange(len(topics)), side="right").tolist()
    for topic, first, last in zip(topics, [0, *ends], ends, strict=False):
        if first < last:
            yield topic, order[first:last]
