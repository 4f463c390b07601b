"""Topics at a broker: declared, refused when they conflict, described, and spread to neighbours once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.desk import SCHEMA, Desk, batch, sent, told
from tidemark.broker import topics as module
from tidemark.broker.effects import (
    CommitTables,
    Effect,
    LinkDown,
    SaveTopic,
    SendClient,
    SendPeer,
    TablesCommitted,
)
from tidemark.broker.topics import TopicLimits
from tidemark.message import evolve
from tidemark.message.schema import Schema, fingerprint_of
from tidemark.wire.frames import Deliver, Describe, Heard, Hello, Knowledge, Refused, Subscribe, Topic

FIRST, WIDER, OTHER = "[n: int]", "[n: int, note: string?]", "[n: string]"


def linked() -> Desk:
    """A broker between two neighbours that both listen."""
    at = Desk(downstream=("left", "right"))
    for peer in ("left", "right"):
        at.link(peer)
        at.finish(at.hear(peer, Hello(peer, 1)))
    return at


def test_a_topic_is_on_disk_before_its_client_is_told_and_neighbours_hear_of_it_once() -> None:
    at = linked()
    frame = Topic("t", False, (FIRST,))
    (save, commit, left, right) = at.say(1, frame)
    assert save == SaveTopic("t", False, (FIRST,))
    assert [left, right] == [SendPeer("left", frame), SendPeer("right", frame)]
    assert isinstance(commit, CommitTables)
    assert at.give(TablesCommitted(commit.ticket)) == [SendClient(1, frame)]
    (commit,) = at.say(2, frame)  # nothing new: only a commit to wait for
    assert isinstance(commit, CommitTables)
    assert at.give(TablesCommitted(commit.ticket)) == [SendClient(2, frame)]
    assert at.broker.counters["topics_learnt"] == 1


def test_a_further_version_is_told_to_clients_with_those_before_and_alone_to_neighbours_and_disk() -> None:
    at = linked()
    at.do(1, Topic("t", False, (FIRST,)))
    both = Topic("t", False, (FIRST, WIDER))
    effects = at.finish(at.say(1, Topic("t", False, (WIDER,))))
    assert told(effects, 1) == [both]
    assert sent(effects, "left", Topic) == [Topic("t", False, (WIDER,))]
    assert SaveTopic("t", False, (WIDER,)) in effects


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (Topic("t", False, (OTHER,)), "n"),
        (Topic("t", True, (FIRST,)), "declared"),
        (Topic("u", False, ()), "needs a schema"),
        (Topic("u", False, ("[n: int",)), "line 1"),
        (Topic("u", False, ("int",)), "named fields"),
        (Topic("u", True, ("int",)), "named fields"),
        (Topic("u", True, (FIRST, "[n: int")), "line 1"),
        (Topic("u.>", False, (FIRST,)), "wildcards"),
        (Topic("u..v", False, (FIRST,)), "u..v"),
    ],
    ids=["conflict", "kind", "no schema", "syntax", "no fields", "open", "open syntax", "wildcard", "name"],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(frame: Topic, reason: str) -> None:
    at = linked()
    at.do(1, Topic("t", False, (FIRST,)))
    effects = at.say(1, frame)
    (refused,) = told(effects, 1)
    assert isinstance(refused, Refused)
    assert (refused.what, refused.name, refused.code) == ("topic", frame.topic, "schema")
    assert reason in refused.reason
    assert sent(effects, "left", Topic) == []
    assert at.do(1, Describe("t")) == [Topic("t", False, (FIRST,))]
    assert at.do(1, Describe("u")) == [Topic("u", False, ())]


def test_there_is_a_limit_to_topics_but_not_to_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 1)
    at = linked()
    at.do(1, Topic("t", False, (FIRST,)))
    (refused,) = at.do(1, Topic("u", False, (FIRST,)))
    assert isinstance(refused, Refused)
    assert at.do(1, Topic("t", False, (WIDER,))) == [Topic("t", False, (FIRST, WIDER))]


def test_an_open_topic_gathers_shapes() -> None:
    at = linked()
    assert at.do(1, Topic("t", True, ())) == [Topic("t", True, ())]
    assert at.do(1, Topic("t", True, (FIRST,))) == [Topic("t", True, (FIRST,))]
    assert at.do(1, Topic("t", True, (OTHER,))) == [Topic("t", True, (OTHER,))]
    assert at.do(1, Topic("t", True, (OTHER,))) == [Topic("t", True, (OTHER,))]
    assert at.do(1, Describe("t")) == [Topic("t", True, (FIRST, OTHER))]


def test_of_an_open_topic_those_shapes_are_told_that_were_asked_for() -> None:
    at = linked()
    first, other = fingerprint_of(FIRST), fingerprint_of(OTHER)
    assert at.do(1, Describe("t", (first,))) == [Topic("t", False, ())]
    at.do(1, Topic("t", True, (FIRST, OTHER)))
    at.do(1, Topic("u", False, (FIRST,)))
    assert at.do(1, Describe("t", (other, 7))) == [Topic("t", True, (OTHER,))]
    assert at.do(1, Describe("t", (7,))) == [Topic("t", True, ())]
    assert at.do(1, Describe("u", (7,))) == [Topic("u", False, (FIRST,))]


def shape(number: int) -> str:
    """One of many shapes that events of one meaning have: some of 12 fields."""
    return Schema.of({f"field_{at}": at for at in range(12) if number >> at & 1} or {"none": True}).text


def sizes(effects: list[Effect], peer: str) -> list[int]:
    """How many schemas the frames to a neighbour have."""
    return [len(frame.schemas) for frame in sent(effects, peer, Topic)]


def test_a_new_shape_costs_what_it_brings_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    at = linked()
    at.do(1, Topic("t", True, tuple(map(shape, range(1_500)))))
    parsed: list[str] = []
    parse = Schema.parse

    def counted(text: str) -> Schema:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(Schema, "parse", counted)
    new = shape(1_500)
    effects = at.finish(at.say(1, Topic("t", True, (shape(7), new))))
    assert parsed == [new]
    assert told(effects, 1) == [Topic("t", True, (shape(7), new))]
    assert sizes(effects, "left") == sizes(effects, "right") == [1]
    assert [effect for effect in effects if isinstance(effect, SaveTopic)] == [SaveTopic("t", True, (new,))]


def test_a_neighbour_is_told_of_many_shapes_in_frames_that_every_broker_takes() -> None:
    at = linked()
    at.do(1, Topic("t", True, tuple(map(shape, range(2_500)))))
    at.give(LinkDown("right"))
    at.link("right")
    assert sizes(at.finish(at.hear("right", Hello("right", 2))), "right") == [1_000, 1_000, 500]


def test_a_shape_that_changes_nothing_about_how_a_topic_is_read_keeps_its_reader() -> None:
    at = linked()
    at.do(1, Topic("t", True, tuple(map(shape, range(100)))))
    reader = at.registry.topics["t"].reader
    at.do(1, Topic("t", True, (shape(101),)))
    assert at.registry.topics["t"].reader is reader


def test_a_new_version_of_a_declared_topic_is_compared_once_with_all_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = linked()
    for number in range(50):
        at.do(1, Topic("t", False, (f"[id: int, field_{number}: int]",)))
    compared = 0
    check = evolve._Known.check

    def counted(self: Any, node: Any, path: Any) -> None:
        nonlocal compared
        compared += 1
        check(self, node, path)

    monkeypatch.setattr(evolve._Known, "check", counted)
    (refused,) = at.do(1, Topic("t", False, ("[id: int, field_7: string]",)))
    assert isinstance(refused, Refused)
    assert "field_7: was int, would be string" in refused.reason
    assert compared == 2  # the tuple, and the field that differs


def test_schemas_have_limits_that_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHAPES_MAX", 2)
    monkeypatch.setattr(module, "VERSIONS_MAX", 2)
    at = Desk(topic_limits=TopicLimits(topic_bytes_max=100, all_bytes_max=130))

    def problem(frame: Topic) -> str:
        (refused,) = at.do(1, frame)
        return refused.reason if isinstance(refused, Refused) else ""

    assert not problem(Topic("open", True, (FIRST, WIDER)))
    assert "may have 2: give events with the same meaning" in problem(Topic("open", True, (OTHER,)))
    assert not problem(Topic("open", True, (FIRST,)))
    assert not problem(Topic("t", False, (FIRST,)))
    assert not problem(Topic("t", False, (WIDER,)))
    assert "may have 2: use a topic of another name" in problem(Topic("t", False, ("[n: int, b: int]",)))
    large = "[" + ", ".join(f"field_{number}: int" for number in range(8)) + "]"
    assert "limits.topic_schemas allows 100" in problem(Topic("large", True, (large,)))
    fits = large.replace(", field_7: int", "").replace(", field_6: int", "")
    assert "limits.all_schemas allows 130" in problem(Topic("large", True, (fits,)))


def test_what_is_not_on_disk_yet_is_not_described_yet() -> None:
    at = linked()
    effects = at.say(1, Topic("t", False, (FIRST,)))
    assert told(at.say(2, Describe("t")), 2) == []
    assert told(at.finish(effects), 2) == [Topic("t", False, (FIRST,))]
    assert at.say(2, Describe("t")) == [SendClient(2, Topic("t", False, (FIRST,)))]


def test_a_neighbours_topic_goes_to_the_others_and_not_back() -> None:
    at = linked()
    frame = Topic("t", False, (FIRST,))
    effects = at.finish(at.hear("left", frame))
    assert SaveTopic("t", False, (FIRST,)) in effects
    assert sent(effects, "right", Topic) == [frame]
    assert sent(effects, "left", Topic) == []
    assert at.finish(at.hear("right", frame)) == []  # it comes round: known


def test_a_neighbours_topic_that_conflicts_does_not_win_but_can_be_read() -> None:
    at = linked()
    at.do(1, Topic("t", False, (FIRST,)))
    assert at.finish(at.hear("left", Topic("t", False, (OTHER,)))) == []
    assert at.broker.counters["topics_conflicting"] == 1
    assert at.do(1, Describe("t")) == [Topic("t", False, (FIRST,))]
    assert len(at.registry.schemas) == 2


def test_a_neighbours_schema_that_cannot_be_understood_does_no_harm() -> None:
    at = linked()
    assert at.finish(at.hear("left", Topic("t", False, (FIRST, "[n: int, newer: syntax!]")))) == []
    assert at.broker.counters["topics_conflicting"] == 1
    assert len(at.registry.schemas) == 1
    assert at.do(1, Topic("t", False, (FIRST,))) == [Topic("t", False, (FIRST,))]


def test_a_neighbour_that_has_just_come_is_told_everything() -> None:
    at = linked()
    at.do(1, Topic("t", False, (FIRST,)))
    at.do(1, Topic("u", False, (WIDER,)))
    effects = at.hear("left", Hello("left", 2))
    assert sent(effects, "left", Topic) == [Topic("t", False, (FIRST,)), Topic("u", False, (WIDER,))]
    assert sent(effects, "right", Topic) == []


def test_an_event_waits_for_its_topic() -> None:
    at = Desk(upstream="up")
    at.link("up")
    at.finish(at.hear("up", Hello("up", 1)))
    at.finish(at.say(1, Subscribe("s", "t", "n > 1", True, 1_000)))
    at.finish(at.hear("up", Knowledge("p", 10, 20, 0, True, (1 << 33) - 1)))
    at.finish(at.hear("up", Heard("p", "b", at.last_said)))
    at.finish(at.hear("up", Knowledge("p", 20, 22, 0, True, (1 << 33) - 1)))
    at.finish(at.hear("up", Knowledge("p", 22, 30, 0, True, (1 << 33) - 1, batch(25))))
    assert at.broker.counters["topics_unknown"] > 0
    assert at.broker.counters["events_matched"] == 0
    effects = at.finish(at.hear("up", Topic("t", False, (SCHEMA.text,))))
    (deliver,) = [f for f in told(effects, 1) if isinstance(f, Deliver) and f.batch is not None]
    assert deliver.batch is not None
    assert deliver.batch.ticks.tolist() == [25]
