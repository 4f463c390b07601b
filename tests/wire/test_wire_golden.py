"""The bytes of one small frame of each kind: the format cannot change by accident.

A frame whose bytes must change gets a new layout version; these stay readable as long as someone speaks them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.wire.frame_strategies import KINDS, batch_of, bytes_of
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import CheckpointToken
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    Ack,
    Acked,
    AckExpected,
    Answer,
    Ask,
    Claim,
    Connect,
    Credit,
    Deliver,
    Describe,
    Fetch,
    Fetched,
    Frame,
    Gap,
    Heard,
    Hello,
    Interest,
    Knowledge,
    Lease,
    Leased,
    Line,
    LinkGrade,
    Links,
    Nack,
    Offer,
    Overlay,
    Ping,
    Pong,
    Publish,
    Published,
    Pushing,
    Recall,
    Recalled,
    RecallMore,
    RecallOver,
    Refused,
    Release,
    ReleaseRow,
    Rest,
    Resume,
    Subscribe,
    Subscribed,
    Together,
    Topic,
    Unfollow,
    Unsubscribe,
    Unsubscribed,
    Ways,
    Welcome,
    Yielded,
)
from tidemark.wire.moving.frames import Come, Leave, Left
from tidemark.wire.security.frames import Access, Challenge, LinkProof, Login, Proof

GOLDEN: list[tuple[Frame, str]] = [
    (
        Ping(1),
        "08000000010100000100000000000000",
    ),
    (
        Pong(-2),
        "0800000002010000feffffffffffffff",
    ),
    (
        Topic("t", True, ("[a: int]",)),
        "14000000030100000100740101000000080000005b613a20696e745d",
    ),
    (
        Hello("b1", 7, 2, 2),
        "100000001001000007000000000000000200020002006231",
    ),
    (
        Knowledge("p", 1, 9, 0, True, 5, batch_of([4]), ((6, 8),)),
        "8000000011010000"
        "0100000000000000090000000000000000000000000000000500000000000000"
        "010100700100000006000000000000000800000000000000544d423101000000"
        "1800000014000000010001000700000000000000010074010070000000000000"
        "0400000000000000140000000000000004000100000000006d6573736167656b",
    ),
    (
        Nack("p", ((1, 2), (4, 8)), 5),
        "2f000000120200000500000000000000010070020000000100000000000000020000000000000004000000000000000800000000000000",
    ),
    (
        AckExpected("p", 9),
        "0b000000130100000900000000000000010070",
    ),
    (
        Release("p", (ReleaseRow("b1", 5, 3, 4, True),)),
        "2400000014020000010070010000000500000000000000030000000000000004000000000000000102006231",
    ),
    (
        Interest("p", 6, (TopicSelector("t.>", "a > 1"),)),
        "1c00000015020000060000000000000001007001010000000300742e3e050061203e2031",
    ),
    (
        Unfollow("p", 6),
        "0b000000160100000600000000000000010070",
    ),
    (
        Links("b1", 2, ("b2", "b3")),
        "1800000017010000020000000000000002006231020000000200623202006233",
    ),
    (
        Ways(("p", "q"), (LinkGrade("b2", 3),)),
        "140000001c0100000200000001007001007101000000030002006232",
    ),
    (
        Heard("p", "b1", 5),
        "0f00000018010000050000000000000001007002006231",
    ),
    (
        Claim("s", 4, "b1", True),
        "100000001b01000004000000000000000101007302006231",
    ),
    (
        Yielded("s", 4, "b1"),
        "0f00000041010000040000000000000001007302006231",
    ),
    (
        Together((AckExpected("p", 9), Heard("p", "b1", 5))),
        "2a000000400100000b000000130100000900000000000000010070"
        "0f00000018010000050000000000000001007002006231",
    ),
    (
        Overlay(3, "ab", "x = 1"),
        "15000000190100000300000000000000020061620500000078203d2031",
    ),
    (
        Leave("p", "q", 3, 2, "r"),
        "190000000401000003000000000000000200000000000000010070010071010072",
    ),
    (
        Left("p", "q", 3, 9, 2, "r"),
        "2100000005010000030000000000000009000000000000000200000000000000010070010071010072",
    ),
    (
        Come("r", "q", 3, 2),
        "160000003f01000003000000000000000200000000000000010072010071",
    ),
    (
        Connect("c"),
        "070000002001000001000100010063",
    ),
    (
        Welcome("b1", 7, 1, ("p",)),
        "1500000021010000070000000000000001000200623101000000010070",
    ),
    (
        Refused("publish", "q", "full", "no room"),
        "1d0000002201000007007075626c697368010071040066756c6c070000006e6f20726f6f6d",
    ),
    (
        Describe("t"),
        "0300000023010000010074",
    ),
    (
        Publish("p", "q", 3, batch_of([0])),
        "5800000024010000"
        "03000000000000000100700100710000544d4231010000001800000014000000"
        "0100010007000000000000000100740100700000000000000000000000000000"
        "140000000000000004000100000000006d6573736167656b",
    ),
    (
        Published("p", "q", 3, 9),
        "160000002501000003000000000000000900000000000000010070010071",
    ),
    (
        Subscribe("s", "t.*", "a > 1", True, 4_096, CheckpointToken({"p": 9}), 3),
        "300000002601000000100000000000000300000000000000010100730300742e2a050061203e203101010000000100700900000000000000",
    ),
    (
        Subscribed("s", CheckpointToken({"p": 9})),
        "160000002701000001007301000000010070090000000000000000000000",
    ),
    (
        Deliver("s", "p", 3, 9, batch_of([4])),
        "6000000028010000"
        "030000000000000009000000000000000100730100700000544d423101000000"
        "1800000014000000010001000700000000000000010074010070000000000000"
        "0400000000000000140000000000000004000100000000006d6573736167656b",
    ),
    (
        Gap("s", "p", 3, 9),
        "160000002901000003000000000000000900000000000000010073010070",
    ),
    (
        Ack((("s", CheckpointToken({"p": 9})),), 2),
        "1e0000002a010000020000000000000001000000010073010000000100700900000000000000",
    ),
    (
        Acked(2),
        "080000002b0100000200000000000000",
    ),
    (
        Credit("s", 4_096),
        "0b0000002c0100000010000000000000010073",
    ),
    (
        Unsubscribe("s"),
        "030000002d010000010073",
    ),
    (
        Unsubscribed("s"),
        "030000002e010000010073",
    ),
    (
        Lease(60, "127.0.0.1:9", "k"),
        "18000000380100003c000000000000000b003132372e302e302e313a3901006b",
    ),
    (
        Leased(60, "t"),
        "0b000000390100003c00000000000000010074",
    ),
    (
        Rest(60),
        "080000003a0100003c00000000000000",
    ),
    (
        Pushing("b", "k"),
        "060000003b01000001006201006b",
    ),
    (
        Resume("t", 1, 2),
        "070000003c01000001000200010074",
    ),
    (
        Ask(2, "status"),
        "160000002f01000002000000000000000600737461747573020000007b7d",
    ),
    (
        Answer(2, "{}"),
        "0e000000300100000200000000000000020000007b7d",
    ),
    (
        Fetch(2, "p", 1, 9, "t.>", "n > 1", 4_096),
        "2f0000003101000002000000000000000100000000000000090000000000000000100000000000000100700300742e3e05006e203e2031",
    ),
    (
        Fetched(2, "p", 1, 9, 0, None, ((2, 3),)),
        "370000003201000002000000000000000100000000000000090000000000000000000000000000000100700100000002000000000000000300000000000000",
    ),
    (
        Offer(64),
        "08000000330100004000000000000000",
    ),
    (
        Recall(
            2,
            "p",
            1,
            9,
            (Line(TopicSelector("t.>", "n > 1"), 1, 5), Line(TopicSelector("t.>", ""), 6, 9)),
            4_096,
        ),
        "5a00000034010000"
        "0200000000000000010000000000000009000000000000000010000000000000"
        "01007002000000010000000000000005000000000000000300742e3e05006e20"
        "3e2031060000000000000009000000000000000300742e3e0000",
    ),
    (
        Recalled(2, 1, 9, batch_of([4]), ((6, 8),)),
        "7800000035010000"
        "0200000000000000010000000000000009000000000000000100000006000000"
        "00000000080000000000000000000000544d4231010000001800000014000000"
        "0100010007000000000000000100740100700000000000000400000000000000"
        "140000000000000004000100000000006d6573736167656b",
    ),
    (
        RecallMore(2, 4_096),
        "100000003601000002000000000000000010000000000000",
    ),
    (
        RecallOver(2),
        "08000000370100000200000000000000",
    ),
    (
        Login(("SCRAM-SHA-256",), "x"),
        "180000003d010000010000000d00534352414d2d5348412d3235360100000078",
    ),
    (
        Proof("BEARER", "x"),
        "0d0000003e01000006004245415245520100000078",
    ),
    (
        Challenge("ab"),
        "040000001d01000002006162",
    ),
    (
        LinkProof("cd"),
        "040000001e01000002006364",
    ),
    (
        Access(3, "ab", "x = 1"),
        "150000001f0100000300000000000000020061620500000078203d2031",
    ),
]


def test_every_kind_of_frame_is_here() -> None:
    assert [type(frame) for frame, _ in GOLDEN] == list(dict.fromkeys(type(frame) for frame, _ in GOLDEN))
    assert {type(frame) for frame, _ in GOLDEN} == set(KINDS)


@pytest.mark.parametrize(("frame", "raw"), GOLDEN, ids=[type(frame).__name__ for frame, _ in GOLDEN])
def test_a_frame_has_the_bytes_it_always_had(frame: Frame, raw: str) -> None:
    assert bytes_of(frame).hex() == raw
    assert FrameDecoder().feed(bytes.fromhex(raw)) == [frame]


def test_a_refusal_ends_with_the_addresses_of_other_brokers_if_there_are_any() -> None:
    frame = Refused("publish", "q", "full", "no room", ("b:1", "c:2"))
    fields = "07007075626c697368010071040066756c6c070000006e6f20726f6f6d"
    raw = f"2b00000022010000{fields}020000000300623a310300633a32"
    assert bytes_of(frame).hex() == raw
    assert FrameDecoder().feed(bytes.fromhex(raw)) == [frame]


def test_frames_that_have_grown_are_as_before_without_what_was_added() -> None:
    topic = Topic("t", True, ("[a: int]",), 3)
    raw = "1c000000030100000100740101000000080000005b613a20696e745d0300000000000000"
    assert bytes_of(topic).hex() == raw
    assert FrameDecoder().feed(bytes.fromhex(raw)) == [topic]
    claim = Claim("s", 4, "b1", True, "b2")
    assert bytes_of(claim).hex() == "140000001b0100000400000000000000010100730200623102006232"
    owned = Claim("s", 4, "b1", True, "", "ab")
    raw = "160000001b01000004000000000000000101007302006231000002006162"
    assert bytes_of(owned).hex() == raw
    assert FrameDecoder().feed(bytes.fromhex(raw)) == [owned]
    subscribe = Subscribe("s", "t", "", True, 5)
    assert len(bytes_of(replace(subscribe, last="b2"))) == len(bytes_of(subscribe)) + 4
    ack = Ack((("s", CheckpointToken()),), 1)
    assert len(bytes_of(replace(ack, credits=(Credit("s", 7),)))) == len(bytes_of(ack)) + 4 + 8 + 3
