"""Names of subscriptions with accounts: nobody learns from them what another user has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.broker.access.test_access_control import (
    ALICE,
    BOB,
    EYE,
    OPS,
    RULES,
    come,
    desk,
    publish,
    subscribe,
    values,
)
from tests.broker.desk import Desk, told
from tidemark.access.document import AccessDocument
from tidemark.broker.effects import AccessChanged
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import (
    Ack,
    Acked,
    Answer,
    Ask,
    Credit,
    Deliver,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)

RICHER = AccessDocument.parse(RULES.replace("[users.bob]", "[users.bob]\nclaims = { most = 9 }"), 2)


def two_readers() -> Desk:
    """A broker at which alice has the durable subscription `alice.s`, and bob may read too."""
    at = desk()
    at.give(AccessChanged(RICHER))
    at.gone(BOB)
    come(at, BOB, RICHER)
    at.do(ALICE, subscribe("alice.s"))
    at.pass_time(0.3)
    return at


def passing(name: str) -> Subscribe:
    return Subscribe(name, "t", "", False, 1_000)


def said(at: Desk, client: int, *frames: Any) -> list[Any]:
    """What a client is told when it says these frames."""
    found: list[Any] = []
    for frame in frames:
        found += at.do(client, frame) + told(at.pass_time(0.3), client)
    return found


def without_names(frames: list[Any], name: str) -> list[Any]:
    """The frames with the name that they are about left out, and without the ticks of their time."""
    found = []
    for each in frames:
        if isinstance(each, Subscribed):
            each = replace(each, token=CheckpointToken(), since=CheckpointToken())
        found.append(repr(each).replace(name, "NAME"))
    return found


def test_whatever_is_asked_under_a_name_the_answer_is_the_same_if_another_user_has_it() -> None:
    at, token = two_readers(), CheckpointToken({"p": 1})
    for frames in (
        [Ack((("NAME", token),), 7)],
        [Ack((("NAME", token),), 0), Credit("NAME", 5)],
        [Unsubscribe("NAME")],
        [Ask(1, "subscription", json.dumps({"name": "NAME"}))],
        [passing("NAME"), Ack((("NAME", CheckpointToken()),), 8), Unsubscribe("NAME"), Unsubscribe("NAME")],
        [subscribe("NAME")],
    ):
        there, not_there = (
            without_names(said(at, BOB, *(_named(each, name) for each in frames)), name)
            for name in ("alice.s", "alice.z")
        )
        assert there == not_there
        assert there or len(frames) > 1


def _named(frame: Any, name: str) -> Any:
    match frame:
        case Ack(tokens):
            return replace(frame, tokens=tuple((name, token) for _, token in tokens))
        case Ask():
            return replace(frame, arguments=frame.arguments.replace("NAME", name))
        case _:
            return replace(frame, name=name)


def test_users_have_passing_subscriptions_of_one_name_beside_each_other() -> None:
    at = two_readers()
    for client in (ALICE, BOB):
        assert [type(each) for each in at.do(client, passing("live"))] == [Subscribed]
    assert [type(each) for each in at.do(BOB, passing("alice.s"))] == [Subscribed]
    at.pass_time(0.3)
    effects = publish(at, 4, 8) + at.pass_time(0.3)
    names = {each.name: values([each]) for each in told(effects, BOB) if isinstance(each, Deliver)}
    assert names == {"live": [4, 8], "alice.s": [4, 8]}
    # What ends, is acknowledged and is asked about is one's own.
    (mine,) = (json.loads(each.payload) for each in at.do(BOB, _asked("alice.s")) if isinstance(each, Answer))
    assert not mine["durable"]
    assert [type(each) for each in at.do(BOB, Ack((("live", CheckpointToken()),), 3))] == [Acked]
    assert [type(each) for each in at.do(BOB, Unsubscribe("live"))] == [Unsubscribed]
    assert [type(each) for each in at.do(BOB, Unsubscribe("alice.s"))] == [Unsubscribed]
    (other,) = (
        json.loads(each.payload) for each in at.do(EYE, _asked("alice.s")) if isinstance(each, Answer)
    )
    assert other["durable"]
    assert other["connected"]
    effects = publish(at, 5) + at.pass_time(0.3)
    assert not told(effects, BOB)
    assert {each.name for each in told(effects, ALICE) if isinstance(each, Deliver)} == {"live", "alice.s"}
    at.gone(ALICE)
    at.pass_time(1)
    (gone,) = at.do(OPS, _asked("live"))
    assert isinstance(gone, Refused)


def _asked(name: str) -> Ask:
    return Ask(1, "subscription", json.dumps({"name": name}))


def test_a_user_has_one_subscription_of_a_name() -> None:
    at = two_readers()
    (refused,) = at.do(ALICE, passing("alice.s"))
    assert isinstance(refused, Refused)
    assert refused.code == "taken"
    at.do(ALICE, passing("alice.t"))
    (refused,) = at.do(ALICE, subscribe("alice.t"))
    assert isinstance(refused, Refused)
    assert refused.code == "taken"
    (refused,) = at.do(OPS, Ack((("alice.s", CheckpointToken()),), 9))
    assert isinstance(refused, Refused)
    assert refused.code == "taken"
