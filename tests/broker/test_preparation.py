"""What may take long is done before a frame is handled, in steps, and comes to the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.broker.desk import Desk, told
from tidemark.broker.effects import FetchLog, LogFetched, LogRead, RefuseClient
from tidemark.broker.preparation import Steps
from tidemark.broker.topics import DECLARED_BYTES_MAX
from tidemark.matching import audience
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.selector import Selector
from tidemark.message import registry
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.batches.checking import STEP_BYTES, CheckWork
from tidemark.message.codec.rest import Rest, no_rest
from tidemark.message.registry import ParseWork, ReaderWork
from tidemark.message.schema import Schema
from tidemark.message.topic_selector import TopicSelector
from tidemark.wire.frames import (
    ClientFrame,
    Deliver,
    Fetch,
    Fetched,
    Hello,
    Interest,
    Knowledge,
    Links,
    Publish,
    Published,
    Refused,
    Subscribe,
    Together,
    Topic,
)

LISTS = Schema.parse("[n: int, many: *(string)*]")
NUMBERS = Schema.parse("[n: int]")


def wide(fields: int, prefix: str = "field") -> str:
    """The text of a schema with so many fields."""
    return Schema.parse("[" + ", ".join(f"{prefix}_{at}: int?" for at in range(fields)) + "]").text


def events(schema: Schema, *messages: bytes, topic: str = "t") -> EventBatch:
    builder = BatchBuilder()
    for message in messages:
        builder.add(Shape(topic, schema.fingerprint), message)
    return builder.build()


def take(steps: Steps | None) -> list[type | None]:
    """Take all steps, as a connection does; what kind each was."""
    assert steps is not None
    kinds: list[type | None] = []
    for step in steps:
        kinds.append(type(step) if step is not None else None)
        if step is not None:
            step(no_rest)
    return kinds


def say(desk: Desk, frame: ClientFrame) -> list[ClientFrame]:
    """A client says something that is prepared first; what it is told."""
    take(desk.broker.preparation.of(frame))
    return desk.do(1, frame)


def lists(count: int, *, is_last_damaged: bool = False) -> EventBatch:
    """A batch of so many events with lists."""
    message = LISTS.encode({"n": 1, "many": ["text"] * 20})
    messages = [message] * count
    if is_last_damaged:
        messages[-1] = message.replace(b"text", b"\xff\xfe\xff\xfe")
    return events(LISTS, *messages)


def test_a_large_schema_is_parsed_in_a_step_of_its_own_and_not_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, text = Desk(), wide(200)
    frame = Topic("t", False, (text,))
    assert take(desk.broker.preparation.of(frame)) == [ParseWork]

    def parse(text: str, _: Rest) -> Schema:
        raise AssertionError(f"parsed again: {text}")

    monkeypatch.setattr(Schema, "_parse", parse)
    assert desk.do(1, frame) == [frame]
    assert desk.broker.preparation.of(Topic("u", False, (NUMBERS.text,))) is None, (
        "a small one needs no steps"
    )


def test_a_large_text_that_is_no_schema_is_refused_with_the_same_words() -> None:
    frame = Topic("t", False, (wide(200)[:-1],))
    assert say(Desk(), frame) == Desk().do(1, frame) != []


def test_a_small_text_that_defines_names_is_parsed_in_a_step_since_much_may_be_made_of_it() -> None:
    desk = Desk()
    names = "; ".join(f"s{n}: [a: s{n + 1}, b: s{n + 1}]" for n in range(6)) + "; s6: [x: int]"
    schema = Schema.parse(f"[a: s0]; {names}")
    assert len(schema.text) < registry.LARGE_BYTES
    assert take(desk.broker.preparation.of(Topic("t", False, (schema.text,)))) == [ParseWork]
    desk.do(1, Topic("t", False, (schema.text,)))
    desk.registry.schemas._young.clear()
    assert isinstance(desk.registry.schemas.work(schema.fingerprint), ParseWork), "for its next event too"


def test_an_error_that_nobody_foresaw_is_met_once_on_the_thread_and_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, parsed = Desk(), []

    def parse(text: str, rest: Rest) -> Schema:
        rest()
        parsed.append(text)
        raise RecursionError("too deep")

    monkeypatch.setattr(Schema, "_parse", parse)
    frame = Topic("t", False, ("x: [a: int]",))
    take(desk.broker.preparation.of(frame))
    (refused,) = [each for each in desk.say(1, frame) if isinstance(each, RefuseClient)]
    assert "too deep" in refused.reason
    assert len(parsed) == 1


def test_what_was_parsed_for_a_client_that_is_gone_is_forgotten() -> None:
    desk = Desk()
    steps = desk.broker.preparation.of(Topic("t", False, (wide(200), wide(201))))
    assert steps is not None
    for _ in range(2):
        step = next(steps)
        assert step is not None
        step(no_rest)
    assert desk.broker._topics._prepared
    del steps
    assert not desk.broker._topics._prepared


def test_more_schemas_than_one_declaration_may_have_are_refused_before_they_are_parsed() -> None:
    desk = Desk()
    text = wide(2_000)
    frame = Topic("t", False, (text,) * (DECLARED_BYTES_MAX // len(text) + 1))
    assert desk.broker.preparation.of(frame) is None
    (refused,) = desk.do(1, frame)
    assert isinstance(refused, Refused)
    assert f"may have {DECLARED_BYTES_MAX}" in refused.reason


@pytest.mark.parametrize("is_last_damaged", [False, True])
def test_the_messages_of_a_large_batch_are_looked_at_in_steps(is_last_damaged: bool) -> None:
    answers = []
    for is_prepared in (False, True):
        desk = Desk()
        desk.do(1, Topic("t", False, (LISTS.text,)))
        frame = Publish("p", "me", 1, lists(500, is_last_damaged=is_last_damaged))
        steps = take(desk.broker.preparation.of(frame)) if is_prepared else []
        assert len(steps) == (len(frame.batch.body) // STEP_BYTES + 1 if is_prepared else 0)
        assert set(steps) <= {CheckWork}
        answers.append(desk.do(1, frame))
    assert answers[0] == answers[1]
    assert isinstance(answers[0][0], Refused if is_last_damaged else Published)


def test_a_message_that_was_looked_at_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.do(1, Topic("t", False, (LISTS.text,)))
    frame = Publish("p", "me", 1, lists(500))
    take(desk.broker.preparation.of(frame))

    def check(*_: object) -> None:
        raise AssertionError("looked at again")

    monkeypatch.setattr(Schema, "check", check)
    assert isinstance(desk.do(1, frame)[0], Published)


def subscribed(desk: Desk, count: int, pattern: str) -> None:
    for number in range(count):
        desk.do(1, Subscribe(f"s{number}", pattern, f"n = {number}", False, 1 << 20))
    desk.pass_time(0.5)


def test_the_matcher_of_a_topic_that_many_want_is_made_in_steps_before_its_first_event() -> None:
    heard = []
    for is_prepared in (False, True):
        desk = Desk()
        subscribed(desk, 100, "t.>")
        desk.do(1, Topic("t.new", False, (NUMBERS.text,)))
        frame = Publish("p", "me", 1, events(NUMBERS, NUMBERS.encode({"n": 7}), topic="t.new"))
        if is_prepared:
            steps = take(desk.broker.preparation.of(frame))
            assert len(steps) >= 100 // audience.STEP_MEMBERS
            assert set(steps) == {None}
            assert desk.broker.preparation.of(frame) is None
        told_to_all = told(desk.finish(desk.say(2, frame)), 1)
        heard.append([each.name for each in told_to_all if isinstance(each, Deliver) and each.batch])
    assert heard[0] == heard[1]
    assert len(heard[0]) == 1


def test_an_event_that_comes_between_two_steps_is_matched_with_all() -> None:
    desk = Desk()
    subscribed(desk, 100, "t.>")
    desk.do(1, Topic("t.new", False, (NUMBERS.text,)))
    frame = Publish("p", "me", 1, events(NUMBERS, NUMBERS.encode({"n": 99}), topic="t.new"))
    steps = desk.broker.preparation.of(frame)
    assert steps is not None
    next(steps)
    assert [type(each) for each in told(desk.finish(desk.say(2, frame)), 1)] == [Deliver]
    assert list(steps) == [], "nothing is left to do"


def test_who_subscribes_to_many_topics_pays_for_a_few_and_each_other_pays_with_its_next_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    topics = [f"t.{number}" for number in range(4 * audience.AT_ONCE_MAX)]
    for name in topics:
        desk.do(1, Topic(name, False, (NUMBERS.text,)))
    desk.do(1, Subscribe("other", "t.*", "n = 2", False, 1 << 20))
    desk.pass_time(0.5)
    for number, name in enumerate(topics, 1):  # each of them has a matcher then
        desk.do(1, Publish("p", "me", number, events(NUMBERS, NUMBERS.encode({"n": 1}), topic=name)))
    added: list[int] = []
    add = Matcher.add

    def counted(self: Matcher, subscriber: int, selector: Selector) -> None:
        added.append(subscriber)
        add(self, subscriber, selector)

    monkeypatch.setattr(Matcher, "add", counted)
    for number in range(20):
        desk.do(1, Subscribe(f"s{number}", "t.*", "n = 1", False, 1 << 20))
        assert len(added) == (number + 1) * audience.AT_ONCE_MAX
    desk.pass_time(0.5)
    oldest = Publish("p", "he", 1, events(NUMBERS, NUMBERS.encode({"n": 1}), topic=topics[0]))
    assert len(take(desk.broker.preparation.of(oldest))) == 20 // audience.STEP_MEMBERS, (
        "it catches up in steps"
    )
    assert desk.broker.preparation.of(oldest) is None
    assert len(told(desk.finish(desk.say(2, oldest)), 1)) == 20
    newest = Publish("p", "he", 2, events(NUMBERS, NUMBERS.encode({"n": 1}), topic=topics[-1]))
    assert desk.broker.preparation.of(newest) is None


def test_a_large_topic_is_read_in_a_step_of_its_own_when_it_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "READY_BYTES_MAX", 8 << 10)
    monkeypatch.setattr(registry, "READERS_BYTES_MAX", 8 << 10)
    desk = Desk()
    texts = {f"t{number}": wide(300, f"f{number}") for number in range(4)}
    for name, text in texts.items():
        say(desk, Topic(name, False, (text,)))
    frame = Subscribe("s", "t0", "f0_1 = 1", False, 1 << 20)
    assert take(desk.broker.preparation.of(frame)) == [ReaderWork]
    assert desk.broker.preparation.of(frame) is None
    desk.do(1, frame)
    schema = Schema.parse(texts["t3"])
    say(desk, Subscribe("v", "t3", "", False, 1 << 20))
    desk.registry.schemas._young.clear()
    desk.registry.schemas._old.clear()
    batch = events(schema, schema.encode({}), topic="t3")
    assert take(desk.broker.preparation.of(Publish("p", "me", 1, batch)))[0] is ParseWork
    assert isinstance(desk.do(1, Publish("p", "me", 1, batch))[0], Published)


def test_a_subscription_to_many_large_topics_reads_few_of_them() -> None:
    desk = Desk()
    for number in range(20):
        desk.do(1, Topic(f"t.{number}", False, (wide(300, f"f{number}"),)))
    desk.registry._readers.clear()
    assert desk.do(1, Subscribe("s", "t.*", "nobody_has = 1", False, 1 << 20))
    assert len(desk.registry._readers) <= 6


def test_steps_are_only_for_frames_that_need_them() -> None:
    desk = Desk()
    desk.declare()
    small: Iterator[ClientFrame] = iter(
        (
            Publish("p", "me", 1, events(NUMBERS, *[NUMBERS.encode({"n": 1})] * 1_000)),
            Subscribe("s", "t", "n = 1", False, 1 << 20),
            Topic("t", False, (NUMBERS.text,)),
        )
    )
    assert [desk.broker.preparation.of(each) for each in small] == [None] * 3


def test_a_topic_that_a_neighbour_tells_of_is_parsed_before_and_comes_to_the_same() -> None:
    frame = Topic("t", False, (wide(300), wide(301)))
    known = []
    for is_prepared in (False, True):
        desk = Desk(downstream=("d",))
        desk.link("d")
        desk.hear("d", Hello("d", 1))
        together = Together((frame, Links("d", 1, ())))
        if is_prepared:
            assert take(desk.broker.preparation.of_peer(together)) == [ParseWork, ParseWork]
        desk.finish(desk.hear("d", together))
        known.append(desk.registry.topics["t"].texts)
        assert desk.broker.preparation.of_peer(Topic("u", False, (NUMBERS.text,))) is None
        assert not desk.broker._topics._prepared, "nothing is kept"
    assert known[0] == known[1]


def test_events_of_a_neighbour_and_of_a_log_are_matched_by_matchers_that_were_made_in_steps() -> None:
    desk = Desk()
    desk.do(1, Topic("t.new", False, (NUMBERS.text,)))
    subscribed(desk, 100, "t.>")
    message = events(NUMBERS, NUMBERS.encode({"n": 1}), topic="t.new")
    message.fill_ticks(np.array([7], np.int64))
    first = Knowledge("p", 0, 10, 0, True, 1, message)
    read = LogRead("p", 0, 10, 10, 0, (message,))
    desk.broker._host.audience._topics.clear()
    assert len(take(desk.broker.preparation.of_peer(first))) == 100 // audience.STEP_MEMBERS
    assert desk.broker.preparation.of_peer(first) is None
    assert desk.broker.preparation.of_read(read) is None
    desk.broker._host.audience._topics.clear()
    assert len(take(desk.broker.preparation.of_read(read))) == 100 // audience.STEP_MEMBERS


def test_what_followers_want_is_made_ready_too() -> None:
    desk = Desk(downstream=("d",))
    desk.do(1, Topic("t.new", False, (NUMBERS.text,)))
    desk.link("d")
    desk.hear("d", Hello("d", 1))
    lines = tuple(TopicSelector("t.>", f"n = {number}") for number in range(20))
    desk.finish(desk.hear("d", Interest("p", (1 << 32) + 1, lines)))
    frame = Publish("p", "me", 1, events(NUMBERS, NUMBERS.encode({"n": 1}), topic="t.new"))
    assert len(take(desk.broker.preparation.of(frame))) == 20 // audience.STEP_MEMBERS
    assert desk.broker.preparation.of(frame) is None, "it is ready"


def test_a_large_topic_is_read_before_a_fetch_is_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "READY_BYTES_MAX", 8 << 10)
    monkeypatch.setattr(registry, "READERS_BYTES_MAX", 8 << 10)
    desk = Desk()
    schemas = [Schema.parse(wide(300, f"f{number}")) for number in range(4)]
    for number, schema in enumerate(schemas):
        say(desk, Topic(f"t{number}", False, (schema.text,)))
        desk.do(1, Publish("p", "me", number + 1, events(schema, schema.encode({}), topic=f"t{number}")))
    (fetch,) = [
        e for e in desk.say(1, Fetch(1, "p", 0, 1 << 60, ">", "f0_1 = 1", 1 << 20)) if type(e) is FetchLog
    ]
    answer = desk._disk.answer(fetch)
    assert isinstance(answer, LogFetched)
    works = take(desk.broker.preparation.of_read(answer))
    assert works
    assert set(works) <= {ParseWork, ReaderWork, None}
    assert [type(each) for each in told(desk.finish(desk.give(answer)), 1)] == [Fetched]


def test_what_reads_messages_of_a_large_schema_is_made_in_a_step_before_the_first_of_them() -> None:
    at = Desk()
    schema = wide_schema()
    at.do(1, Topic("wide", False, (schema.text,)))
    builder = BatchBuilder()
    builder.add(Shape("wide", schema.fingerprint), schema.encode({}))
    publish = Publish("p", "me", 1, builder.build())
    steps = at.broker.preparation.of(publish)
    assert steps is not None
    works = take_all(steps)
    assert any(isinstance(each, ParseWork) for each in works)
    assert at.registry.schemas[schema.fingerprint].is_ready
    assert at.broker.preparation.of(publish) is None


def test_a_large_schema_that_another_topic_has_is_not_parsed_again() -> None:
    at = Desk()
    schema = wide_schema()
    at.do(1, Topic("first", False, (schema.text,)))
    steps = at.broker.preparation.of(Topic("second", False, (schema.text,)))
    assert steps is None or take_all(steps) == []
    at.do(1, Topic("second", False, (schema.text,)))
    assert at.registry.topics["second"].has(schema.text)


def wide_schema() -> Schema:
    """A schema of so many fields that it counts as large."""
    return Schema.parse("[" + ", ".join(f"field_{n}: int?" for n in range(400)) + "]")


def take_all(steps: Steps) -> list[object]:
    """Take all steps, and do their works; returns the works."""
    works: list[object] = []
    for work in steps:
        if work is not None:
            work(no_rest)
            works.append(work)
    return works
