"""Hostile values in frames: each ends the connection it came over, and neither the broker nor its tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.desk import MORNING, Desk, batch, told
from tidemark.broker.config import Recovered
from tidemark.broker.effects import (
    ClientFrameReceived,
    CommitTables,
    Effect,
    RefuseClient,
    RefusePeer,
    SaveSubscription,
    SendPeer,
)
from tidemark.broker.hosting.admission import Admission
from tidemark.broker.hosting.sessions import Sessions
from tidemark.errors import FrameError
from tidemark.matching.selectors import parser
from tidemark.persistence.store import Store, StoreDisks
from tidemark.storage.disk.memory_disk import MemoryDisk
from tidemark.storage.tables.sqlite_tables import SqliteTables
from tidemark.ticks import TICK_LAST, TICK_MIN, CheckpointToken
from tidemark.ticks.tick import CLOCKS_APART_MAX
from tidemark.wire.frames import (
    Ack,
    Acked,
    Answer,
    Ask,
    Claim,
    Credit,
    Fetch,
    Fetched,
    Heard,
    Hello,
    Knowledge,
    Publish,
    Refused,
    Subscribe,
    Subscribed,
    Topic,
    Unsubscribe,
)
from tidemark.wire.limits import CREDIT_BYTES_MAX, EPOCH_MAX, STAMP_MAX

INT64_MAX = 2**63 - 1


def refusals(effects: list[Effect]) -> list[RefuseClient | RefusePeer]:
    return [each for each in effects if isinstance(each, RefuseClient | RefusePeer)]


def linked() -> Desk:
    """A broker below the one that hosts the pubend `p`, which is there."""
    desk = Desk(upstream="up", downstream=("down",))
    for peer in ("up", "down"):
        desk.link(peer)
        desk.hear(peer, Hello(peer, 1))
    return desk


# Questions of administrators.


@pytest.mark.parametrize(
    "arguments",
    [
        "[" * 1_000,
        "[" * 100_000,
        '{"a":' * 1_000 + "1" + "}" * 1_000,
        '{"to": ' + "9" * 5_000 + "}",
        '{"to": ' + "[" * 900 + "]" * 900 + "}",
        '{"to": NaN}',
        "7",
        "",
        '"\\ud800"',
    ],
)
@pytest.mark.parametrize("what", ["topics", "seek", "remove", "no such question"])
def test_arguments_that_no_question_has_are_refused_and_the_connection_stays(
    arguments: str, what: str
) -> None:
    desk = Desk()
    desk.do(1, Subscribe("s", ">", "", True, 1))
    (answer,) = desk.do(7, Ask(3, what, arguments))
    assert isinstance(answer, Refused)
    assert (answer.what, answer.name) == ("ask", "3")
    (answer,) = desk.do(7, Ask(4, "topics"))
    assert isinstance(answer, Answer)


def test_a_report_of_the_archive_is_taken_as_a_whole_or_not_at_all() -> None:
    desk = Desk()
    token = CheckpointToken({"p": TICK_LAST, "q": 1}).text()
    (answer,) = desk.do(1, Ask(1, "archived", f'{{"token": "{token}"}}'))
    assert isinstance(answer, Refused)
    assert desk.broker.describe_pubends()[0].archived is None


# Epochs.


def test_a_subscriber_from_the_end_of_time_can_be_taken_over_again_and_again(tmp_path: Path) -> None:
    """An epoch beyond what SQLite holds would end the broker, at once and at each start from then on."""
    desk = Desk()
    tables = SqliteTables(tmp_path / "tables.sqlite")
    store = Store(StoreDisks(MemoryDisk("log"), MemoryDisk("pfs"), tables), identity=1)
    saved: list[SaveSubscription] = []
    for client, pattern in enumerate(("a", "b", "c"), 1):
        token = CheckpointToken({"p": client})
        effects = desk.say(client, Subscribe("s", pattern, "", True, 1, token, STAMP_MAX))
        saved += [each for each in effects + desk.finish(effects) if isinstance(each, SaveSubscription)]
        desk.pass_time(0.3)
    assert saved
    for effect in saved:
        assert effect.epoch <= EPOCH_MAX
        store.carry_out(replace(effect, subscriber=1))
    assert store.carry_out(CommitTables(1)) is not None


def test_a_late_claim_of_a_subscription_that_is_made_twice_before_a_commit_is_heard_after_it() -> None:
    desk = linked()
    desk.finish(desk.say(1, Topic("t", False, ("[n: int]",))))
    subscribe = Subscribe("s", "t", "", True, 1 << 20, CheckpointToken({"p": MORNING}), MORNING)
    effects = desk.say(1, subscribe)
    effects += desk.hear("down", Claim("s", 5, "down", settled=True))
    effects += desk.say(1, Unsubscribe("s"))
    effects += desk.say(2, subscribe)
    done = desk.finish(effects) + desk.pass_time(1.0)
    assert not refusals(done)
    assert desk.broker.hosts("s")


def test_the_last_epoch_of_a_neighbour_has_no_successor_and_needs_none() -> None:
    desk = linked()
    desk.hear("up", Claim("s", EPOCH_MAX, "up", True))
    desk.finish(desk.say(1, Subscribe("s", ">", "", True, 1, CheckpointToken({"p": 5}), 7)))
    effects = desk.finish(desk.say(1, Unsubscribe("s")))
    claims = [each.frame for each in effects if isinstance(each, SendPeer) and isinstance(each.frame, Claim)]
    assert all(claim.epoch <= EPOCH_MAX for claim in claims)
    assert not refusals(effects)


# Fetches.


def fetching(pattern: str = ">") -> tuple[Desk, int]:
    """A broker that has passed a client's fetch on, and the ticket under which it did."""
    desk = linked()
    desk.pass_time(0.1)
    effects = desk.say(1, Fetch(9, "p", 10, 20, pattern, "", 1_000))
    (passed,) = [
        each.frame for each in effects if isinstance(each, SendPeer) and isinstance(each.frame, Fetch)
    ]
    return desk, passed.ticket


@pytest.mark.parametrize(
    "wrong", [{"pubend": "another"}, {"base": 9}, {"base": 11}, {"upto": 21}, {"pubend": "", "base": 0}]
)
def test_an_answer_to_another_fetch_ends_the_link_and_the_fetch_waits_on(wrong: dict[str, Any]) -> None:
    desk, ticket = fetching()
    answer = Fetched(ticket, "p", 10, 20, 0)
    (refused,) = refusals(desk.hear("up", replace(answer, **wrong)))
    assert isinstance(refused, RefusePeer)
    assert refused.peer == "up"
    assert "Fetched" in refused.reason
    assert desk.broker.counters["frames_refused"] == 1
    assert told(desk.hear("up", answer), 1) == [replace(answer, ticket=9)]


def test_an_answer_with_events_of_topics_that_were_not_asked_for_ends_the_link() -> None:
    """A client that may read a few topics asks for these: a neighbour cannot show it others."""
    desk, ticket = fetching(pattern="mine.*")
    wrong = Fetched(ticket, "p", 10, 20, 0, batch(12, topic="yours"))
    (refused,) = refusals(desk.hear("up", wrong))
    assert isinstance(refused, RefusePeer)
    assert "'yours'" in refused.reason
    right = replace(wrong, batch=batch(12, topic="mine.x"))
    assert told(desk.hear("up", right), 1) == [replace(right, ticket=9)]


# Credit and acknowledgements.


def test_credit_without_end_is_bounded() -> None:
    desk = Desk()
    desk.do(1, Subscribe("s", ">", "", True, CREDIT_BYTES_MAX))
    for _ in range(3):
        desk.do(1, Credit("s", CREDIT_BYTES_MAX))
    found = desk.broker._sessions.find("s")
    assert found is not None
    assert found.credit == CREDIT_BYTES_MAX


def test_the_last_tick_can_be_acknowledged() -> None:
    desk = Desk()
    desk.declare()
    desk.do(1, Subscribe("s", ">", "", True, 1))
    desk.pass_time(0.3)
    desk.finish(desk.say(1, Ack((("s", CheckpointToken({"p": TICK_LAST, "q": TICK_LAST})),))))
    desk.pass_time(1.0)


def test_what_a_neighbour_told_of_tomorrow_can_be_acknowledged_and_shown_again() -> None:
    """A stream that runs ahead of the clock here, by a day at most, is believed, and who consumed it too."""
    desk = linked()
    desk.finish(desk.say(1, Subscribe("s", ">", "", True, 1 << 20)))
    desk.pass_time(0.3)
    desk.pass_time(0.3)
    desk.hear("up", Heard("p", "b", desk.last_said))
    desk.pass_time(0.3)
    version = desk.broker.stream("p").attached  # type: ignore[union-attr]
    desk.hear("up", Knowledge("p", 10, 20, TICK_MIN, True, version))
    desk.pass_time(0.3)
    far = MORNING + CLOCKS_APART_MAX
    desk.finish(desk.hear("up", Knowledge("p", 20, far, TICK_MIN, False, version)))
    desk.pass_time(0.3)
    token = CheckpointToken({"p": far})
    (answer,) = desk.do(1, Ack((("s", token),), 5))
    assert answer == Acked(5)
    desk.gone(1)
    answers = desk.do(2, Subscribe("s", ">", "", True, 1, token))
    assert not [each for each in answers if isinstance(each, Refused)]


# Refusing.


def broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("nobody has thought of this")


def test_an_unforeseen_error_while_looking_ends_the_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    with monkeypatch.context() as patch:
        patch.setattr(Admission, "refusal", broken)
        (refused,) = refusals(desk.say(4, Subscribe("s", ">", "", True, 1)))
    assert isinstance(refused, RefuseClient)
    assert refused.client == 4
    assert "the frame Subscribe cannot be handled: ZeroDivisionError" in refused.reason
    assert isinstance(refused.cause, ZeroDivisionError)
    assert desk.broker.counters["frames_refused"] == 1
    assert not desk.broker.hosts("s")


def test_an_unforeseen_error_after_a_change_ends_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    monkeypatch.setattr(Sessions, "_create", broken)
    with pytest.raises(ZeroDivisionError):
        desk.say(4, Subscribe("s", ">", "", True, 1))


def test_an_error_while_looking_after_an_effect_ends_the_broker() -> None:
    desk = Desk()
    turn = desk.broker._turn
    turn.out.add(SendPeer("x", Hello("x", 1)))
    with pytest.raises(FrameError):
        desk.broker._refuse(ClientFrameReceived(1, Unsubscribe("s")), FrameError("too late"))


def test_what_is_foreseen_is_refused_and_the_connection_stays() -> None:
    desk = Desk()
    desk.declare()
    for frame in (
        Subscribe("s", ">", "a = = 1", True, 1),
        Subscribe("s", "", "", True, 1),
        Fetch(1, "p", 0, 5, ">", "(", 10),
    ):
        effects = desk.finish(desk.say(1, frame))
        assert [type(each) for each in told(effects, 1)] == [Refused]
        assert not refusals(effects)


def test_all_looking_is_done_before_anything_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a parser raises, the frames that need it end their connections only."""
    desk = Desk(recovered=Recovered())
    desk.declare()
    monkeypatch.setattr(parser, "parse", broken)
    monkeypatch.setattr("tidemark.broker.selector_fit.parse", broken)
    monkeypatch.setattr("tidemark.broker.publishing.fetching.parse", broken)
    monkeypatch.setattr("tidemark.broker.topics.Schema.parse", broken)
    monkeypatch.setattr("tidemark.broker.topics.check_messages", broken)
    monkeypatch.setattr("tidemark.broker.admin.read_arguments", broken)
    from tests.broker.desk import batch
    from tidemark.wire.frames import Topic

    for frame in (
        Subscribe("s", ">", "a = 1", True, 1),
        Fetch(1, "p", 0, 5, ">", "a = 1", 10),
        Topic("new", False, ("[n: int]",)),
        Publish("p", "me", 1, batch(0)),
        Ask(1, "topics"),
    ):
        (refused,) = refusals(desk.say(1, frame))
        assert type(frame).__name__ in refused.reason


# Sequences.


def test_a_name_that_is_taken_ended_and_taken_again_before_it_is_on_disk_does_not_end_the_broker() -> None:
    """Who waited for the first to be on disk found the second, and tried again without an end."""
    desk = Desk()
    effects = desk.say(1, Subscribe("s", ">", "", True, 1))
    effects += desk.say(1, Subscribe("s", ">", "", True, 1))  # the sync of the first is under way
    for client, frame in (
        (2, Subscribe("t", ">", "", True, 1)),
        (3, Subscribe("t", ">", "", True, 1)),
        (2, Unsubscribe("t")),
        (2, Subscribe("t", ">", "", True, 1)),
    ):
        effects += desk.say(client, frame)
    done = desk.finish(effects)
    assert [type(each) for each in told(done, 3)] == [Subscribed]
    assert Refused in [type(each) for each in told(done, 2)]  # the newer connection has it
