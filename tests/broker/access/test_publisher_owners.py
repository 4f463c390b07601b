"""Whose a publisher's name is: who may publish under it and make it leave, also after a crash or a change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.desk import MORNING, SCHEMA, Desk, batch, sent, told
from tidemark.access.document import AccessDocument
from tidemark.access.principal import Principal
from tidemark.broker.access.owner_digest import digest_of
from tidemark.broker.config import Recovered
from tidemark.broker.effects import (
    AccessChanged,
    AppendEvents,
    AppendMove,
    ClientCame,
    ClientFrameReceived,
    Effect,
    LogFull,
    RecoveredPubend,
    SyncLog,
)
from tidemark.broker.publishing import remembered_publishers
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.batches.trace_context import with_traceparent
from tidemark.message.publisher_names import PublisherMove, made_name
from tidemark.wire.frames import ClientFrame, Hello, Publish, Published, Refused, Topic
from tidemark.wire.moving.frames import Come, Leave, Left

RULES = """
[users.alice]
roles = ["writer"]
[users.mallory]
roles = ["writer"]
[users.ops]
roles = ["writer", "operator"]
[roles.writer]
publish = ["t"]
declare = ["t"]
publisher = ["desk", "other", "spark-*"]
[roles.operator]
administer = true
"""
DOCUMENT = AccessDocument.parse(RULES, 1)
ALICE, MALLORY, OPS, TOKEN = range(1, 5)
NAMES = {ALICE: "alice", MALLORY: "mallory", OPS: "ops", TOKEN: "token"}
MADE = made_name("0123456789abcdef")
SINK = "spark-job-0123456789ab"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def come(at: Desk, client: int, document: AccessDocument = DOCUMENT) -> None:
    roles = ("writer",) if client == TOKEN else ()
    principal = document.principal(NAMES[client]) or Principal(NAMES[client], roles=roles)
    at.give(ClientCame(client, principal))


def desk(**settings: Any) -> Desk:
    at = Desk(access=DOCUMENT, **settings)
    for client in NAMES:
        come(at, client)
    at.do(OPS, Topic("t", False, (SCHEMA.text,)))
    return at


def publish(sequence: int, publisher: str = "desk", count: int = 1) -> Publish:
    return Publish("p", publisher, sequence, batch(*range(count)))


def moves(effects: list[Effect]) -> list[AppendMove]:
    return [each for each in effects if isinstance(each, AppendMove)]


def is_logged(frames: list[ClientFrame]) -> bool:
    (answer,) = frames
    return isinstance(answer, Published)


def denial(frames: list[ClientFrame]) -> str:
    (refused,) = frames
    assert isinstance(refused, Refused)
    assert refused.code == "denied"
    return refused.reason


@pytest.mark.parametrize("name", ["desk", MADE])
def test_a_name_belongs_to_who_publishes_first_and_nobody_takes_the_numbers_of_its_events(name: str) -> None:
    at = desk()
    assert is_logged(at.do(ALICE, publish(1, name)))
    reason = denial(at.do(MALLORY, publish(2, name)))
    assert "belongs to another user" in reason
    assert "alice" not in reason
    assert is_logged(at.do(ALICE, publish(2, name)))
    assert at.broker.counters["events_published"] == 2
    assert at.broker.counters["denied"] == 1


def test_others_do_not_learn_what_is_logged_under_a_name() -> None:
    at = desk()
    at.do(ALICE, publish(1))
    assert denial(at.do(MALLORY, publish(1)))
    assert denial(at.do(MALLORY, Leave("p", "desk", 0, 1, "p")))


def test_whose_a_name_is_goes_to_the_disk_with_the_first_event() -> None:
    at = desk()
    effects = at.say(ALICE, publish(1))
    (given,) = moves(effects)
    assert (given.publisher, given.sequence, given.move) == ("desk", 0, PublisherMove(0, "", "alice"))
    assert told(effects, ALICE) == []
    assert is_logged(told(at.finish(effects), ALICE))
    assert moves(at.say(ALICE, publish(2))) == []


def test_an_owner_that_is_not_on_disk_when_the_disk_is_full_is_none() -> None:
    at = desk()
    effects = at.say(ALICE, publish(1))
    (sync,) = [each for each in effects if isinstance(each, SyncLog)]
    at.finish(at.give(LogFull(sync.ticket)))
    assert is_logged(at.do(MALLORY, publish(1)))
    assert denial(at.do(ALICE, publish(1)))


def test_owners_are_recovered() -> None:
    state = RecoveredPubend(
        last=MORNING, publishers={"desk": (5, MORNING)}, moves={"desk": PublisherMove(0, "", "alice")}
    )
    at = desk(recovered=Recovered(pubends={"p": state}))
    assert denial(at.do(MALLORY, publish(6)))
    assert is_logged(at.do(ALICE, publish(6)))


def test_a_name_of_before_there_were_accounts_belongs_to_the_first_that_goes_on() -> None:
    state = RecoveredPubend(last=MORNING, publishers={"desk": (5, MORNING)})
    at = desk(recovered=Recovered(pubends={"p": state}))
    assert is_logged(at.do(ALICE, publish(4, count=2)))  # a repetition says nothing of who comes next
    assert is_logged(at.do(MALLORY, publish(6)))
    assert denial(at.do(ALICE, publish(7)))


def test_an_administrator_may_use_a_name_and_leaves_it_with_its_owner() -> None:
    at = desk()
    at.do(ALICE, publish(1))
    assert is_logged(at.do(OPS, publish(2)))
    assert is_logged(at.do(ALICE, publish(3)))
    assert denial(at.do(MALLORY, publish(4)))


def test_a_name_that_the_document_denies_its_owner_goes_to_the_next_that_uses_it() -> None:
    at = desk()
    at.do(ALICE, publish(1))
    at.do(TOKEN, publish(1, "other"))
    without = AccessDocument.parse(RULES.replace('alice]\nroles = ["writer"]', "alice]\nroles = []"), 2)
    at.give(AccessChanged(without))
    come(at, MALLORY, without)
    assert is_logged(at.do(MALLORY, publish(2)))
    # The document does not have this owner, which may have its roles from a bearer token.
    assert denial(at.do(MALLORY, publish(2, "other")))
    at.give(AccessChanged(AccessDocument.parse(RULES, 3)))
    come(at, ALICE)
    assert denial(at.do(ALICE, publish(3)))


def test_names_of_clients_that_are_forgotten_take_their_owners_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remembered_publishers, "MADE_NAMES_MAX", 2)
    at = desk()
    at.do(ALICE, publish(1, MADE))
    for number in range(2):
        assert denial(at.do(MALLORY, publish(1, MADE)))
        at.do(ALICE, publish(1, made_name(f"{number:016x}")))
    assert is_logged(at.do(MALLORY, publish(1, MADE)))


# Publishers that move.


def test_only_the_owner_makes_a_publisher_leave_and_the_name_is_its_own_where_it_comes() -> None:
    at = desk()
    at.do(ALICE, publish(1))
    assert denial(at.do(MALLORY, Leave("p", "desk", 0, 1, "q")))
    assert is_logged(at.do(ALICE, publish(2)))
    (left,) = at.do(ALICE, Leave("p", "desk", 0, 1, "q"))
    assert isinstance(left, Left)
    assert left.to == "q"
    assert denial(at.do(MALLORY, Come("p", "desk", 2, 2)))
    assert is_logged(at.do(ALICE, Come("p", "desk", 2, 2)))
    assert is_logged(at.do(ALICE, publish(3)))


def test_a_name_belongs_to_who_comes_with_it() -> None:
    at = desk()
    effects = at.say(ALICE, Come("p", "desk", 57, 3))
    assert [each.move for each in moves(effects)] == [PublisherMove(3, "", "alice")]
    at.finish(effects)
    assert denial(at.do(MALLORY, publish(58)))


def test_a_move_follows_the_events_that_came_before_it_into_the_log() -> None:
    state = RecoveredPubend(last=MORNING, publishers={"desk": (5, MORNING)})
    at = Desk(recovered=Recovered(pubends={"p": state}))
    at.declare()
    effects: list[Effect] = []
    for frame in (publish(6), Leave("p", "desk", 0, 1, "q")):
        effects += at.broker.hear(ClientFrameReceived(1, frame), at.now, MORNING)
    effects += at.broker.settle()
    appended = [type(each) for each in effects if isinstance(each, AppendEvents | AppendMove)]
    assert appended == [AppendEvents, AppendMove]


def test_the_question_says_on_its_way_who_asks_whatever_the_client_says() -> None:
    at = Desk(access=DOCUMENT, upstream="up")
    at.link("up")
    at.hear("up", Hello("up", 1))
    come(at, MALLORY)
    forged = Leave("p", "desk", 0, 1, "q", digest_of("alice"))
    assert [each.owner for each in sent(at.say(MALLORY, forged), "up", Leave)] == [digest_of("mallory")]


def test_a_pubend_lets_a_publisher_go_for_its_owner_only_wherever_that_asks() -> None:
    at = desk(downstream=("down",))
    at.link("down")
    at.hear("down", Hello("down", 1))
    at.do(ALICE, publish(1))
    leave = Leave("p", "desk", 0, 1, "q")
    for owner in ("", digest_of("mallory")):
        forged = Leave("p", "desk", 0, 1, "q", owner)
        assert sent(at.finish(at.hear("down", forged)), "down", Left) == []
    assert is_logged(at.do(ALICE, publish(2)))
    owned = Leave(leave.pubend, leave.publisher, 0, 1, "q", digest_of("alice"))
    (left,) = sent(at.finish(at.hear("down", owned)), "down", Left)
    assert (left.sequence, left.to) == (2, "q")


# The name that each event shows, as the header `_publisher`.


def named(*publishers: str) -> EventBatch:
    builder = BatchBuilder()
    for n, publisher in enumerate(publishers):
        builder.add(Shape("t", SCHEMA.fingerprint), SCHEMA.encode({"n": n}), publisher=publisher)
    return builder.build()


@pytest.mark.parametrize("name", ["desk", MADE, SINK])
@pytest.mark.parametrize("count", [1, 2])
def test_events_show_the_name_that_they_are_published_under_and_no_other(name: str, count: int) -> None:
    at, sequence = desk(), 1
    traced = with_traceparent(name, TRACE)
    for shown in (name, "", traced, "spark-job" if name == SINK else name):
        assert is_logged(at.do(ALICE, Publish("p", name, sequence, named(*[shown] * count)))), shown
        sequence += count
    for shown in ("the-bank", "other", with_traceparent("other", TRACE), f"{name}-1", "spark-other", "spark"):
        events = named(*[name] * (count - 1), shown)
        reason = denial(at.do(ALICE, Publish("p", name, sequence, events)))
        assert (
            reason == f"'alice' may not publish events that name {shown!r} as their publisher under {name!r}"
        )


def test_where_there_are_no_accounts_events_show_any_name() -> None:
    at = Desk()
    at.do(OPS, Topic("t", False, (SCHEMA.text,)))
    assert is_logged(at.do(ALICE, Publish("p", "desk", 1, named("the-bank"))))
