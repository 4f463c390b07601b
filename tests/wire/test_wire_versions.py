"""Which version two sides speak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemark.errors import VersionError, WireError
from tidemark.ticks import CheckpointToken
from tidemark.wire import versions
from tidemark.wire.codec import encode, encoder_for, encoder_for_link
from tidemark.wire.frames import (
    Ack,
    AckExpected,
    Claim,
    Credit,
    Frame,
    Heard,
    Nack,
    Ping,
    Refused,
    Subscribe,
    Together,
    Topic,
    Ways,
    Yielded,
)
from tidemark.wire.limits import LINK_NEWEST
from tidemark.wire.moving.frames import Leave, Left
from tidemark.wire.versions import agree, agree_link, is_spoken


def test_the_newest_common_version_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PROTOCOL_OLDEST", 2)
    monkeypatch.setattr(versions, "PROTOCOL_NEWEST", 4)
    assert [agree(1, 2), agree(1, 3), agree(4, 9), agree(1, 9), agree(3, 3)] == [2, 3, 4, 4, 3]


def test_today_there_are_seven_versions_for_clients_and_seven_for_links() -> None:
    assert [agree(1, newest) for newest in range(1, 9)] == [1, 2, 3, 4, 5, 6, 7, 7]
    assert [agree_link(2, newest) for newest in range(2, 10)] == [2, 3, 4, 5, 6, 7, 8, 8]
    with pytest.raises(VersionError, match="update the other side"):
        agree_link(1, 1)


@pytest.mark.parametrize(
    ("oldest", "newest", "advice"), [(8, 9, "update this side"), (0, 0, "update the other side")]
)
def test_without_a_common_version_the_older_side_is_named(oldest: int, newest: int, advice: str) -> None:
    with pytest.raises(VersionError, match=advice):
        agree(oldest, newest)


def test_versions_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(WireError, match="2 to 1"):
        agree(2, 1)


def test_a_client_of_version_1_gets_a_refusal_without_addresses() -> None:
    refused = Refused("connect", "", "draining", "go", ("other:1",))
    assert encoder_for(2)(refused) == encode(refused)
    assert encoder_for(1)(refused) == encode(replace(refused, addresses=()))
    assert encoder_for(1)(Ping(5)) == encode(Ping(5))


def test_a_broker_of_version_4_is_not_told_the_last_broker_and_is_granted_credit_by_itself() -> None:
    subscribe = Subscribe("s", "t", "", True, 5, last="b2")
    assert encoder_for(5)(subscribe) == encode(subscribe)
    assert encoder_for(3)(subscribe) == encode(replace(subscribe, last=""))
    credit = Credit("s", 7)
    ack = Ack((("s", CheckpointToken()),), 1, (credit,))
    assert encoder_for(5)(ack) == encode(ack)
    assert encoder_for(4)(ack) == encoder_for(3)(ack)
    assert encoder_for(3)(ack) == encode(credit) + encode(replace(ack, credits=()))
    assert encoder_for(1)(Ack((), 0, (credit,))) == encode(credit)


def test_generations_of_topics_are_for_those_who_know_them() -> None:
    removed, known = Topic("t", False, ("[n: int]",), 1), Topic("t", False, ("[n: int]",))
    assert encoder_for(6)(removed) == encoder_for_link(5)(removed) == encode(removed)
    for older in (encoder_for(5), encoder_for(1), encoder_for_link(4), encoder_for_link(3)):
        assert older(removed) == encode(known)
    assert encoder_for_link(4)(Topic("t", False, (), 1)) == []


def test_a_link_of_version_3_carries_frames_singly_and_claims_for_all() -> None:
    claim = Claim("s", 4, "b1", True, "b2")
    both = Together((AckExpected("p", 9), claim, Yielded("s", 4, "b1")))
    assert encoder_for_link(4)(both) == encode(both)
    assert encoder_for_link(3)(both) == encode(AckExpected("p", 9)) + encode(replace(claim, to=""))
    assert encoder_for_link(3)(Ping(5)) == encode(Ping(5))
    assert encoder_for_link(3)(Heard("p", "h", 5, 9)) == encode(Heard("p", "h", 5))


def test_a_broker_that_speaks_an_older_version_agrees_on_that_one() -> None:
    assert agree_link(2, LINK_NEWEST, mine=3) == 3
    assert agree_link(2, 2, mine=3) == 2
    with pytest.raises(VersionError):
        agree_link(4, 4, mine=3)


def test_what_a_version_between_brokers_does_not_have_is_not_spoken_in_it() -> None:
    newer: list[Frame] = [
        Together((Nack("p", ((1, 2),), 1),)),
        Yielded("s", 1, "b"),
        Claim("s", 1, "b", True, "c"),
        Heard("p", "h", 1, 9),
    ]
    for frame in newer:
        assert is_spoken(frame, 4)
        assert not is_spoken(frame, 3)
    for frame in (Claim("s", 1, "b", True), Heard("p", "h", 1), Ways()):
        assert is_spoken(frame, 3)
    assert not is_spoken(Ways(), 2)
    claim = Claim("s", 1, "b", True, "c", "ab")
    assert is_spoken(claim, 7)
    assert not is_spoken(claim, 6)
    plain, both = replace(claim, owner=""), Together((AckExpected("p", 9), claim))
    assert encoder_for_link(7)(both) == encode(both)
    assert encoder_for_link(6)(claim) == encoder_for_link(4)(claim) == encode(plain)
    assert encoder_for_link(6)(both) == encode(Together((AckExpected("p", 9), plain)))
    assert encoder_for_link(3)(claim) == encode(replace(plain, to=""))
    for frame in (Leave("p", "q", 1, 1, "r"), Left("p", "q", 1, 1, 1, "r")):
        assert is_spoken(frame, 6)
        assert not is_spoken(frame, 5)
        assert encoder_for_link(6)(frame) == encode(frame)
        assert encoder_for_link(5)(frame) == encoder_for_link(3)(frame) == []
    owned = Leave("p", "q", 1, 1, "r", "ab")
    assert is_spoken(owned, 8)
    assert not is_spoken(owned, 7)
    assert encoder_for_link(8)(owned) == encode(owned)
    assert encoder_for_link(7)(owned) == encoder_for_link(6)(owned) == encode(replace(owned, owner=""))
    assert is_spoken(Topic("t", False, ()), 4)
    assert not is_spoken(Topic("t", False, (), 1), 4)
