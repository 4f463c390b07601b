"""What was sent over each link is counted by the kind of frame, and every byte once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from tests.broker.desk import batch
from tests.node.speech import Stage, play, root_of_leaf
from tidemark.node.admin import QUESTIONS
from tidemark.node.monitoring.link_traffic import LinkTraffic
from tidemark.wire.answers import LINKS, FrameCount, LinkStatus
from tidemark.wire.codec import encode, encoder_for_link, size_of
from tidemark.wire.frames import AckExpected, Interest, Knowledge, Nack, Ping, Pong, Together

ACK, NACK = AckExpected("p", 9), Nack("p", ((1, 2),), 5)
EVENTS = Knowledge("p", 1, 9, 0, True, 5, batch(4, 7))


def test_a_frame_in_a_together_counts_under_its_own_kind_and_every_byte_counts_once() -> None:
    traffic = LinkTraffic()
    said = Together((ACK, EVENTS, NACK, ACK))
    traffic.sent("a", encode(said))
    traffic.sent("a", [*encode(ACK), *encode(EVENTS)])
    traffic.sent("b", encode(NACK))
    counts = traffic.of("a")
    assert {kind: count.frames for kind, count in counts.items()} == {
        "AckExpected": 3,
        "Knowledge": 2,
        "Nack": 1,
        "Together": 1,
    }
    assert counts["Together"].bytes == 8
    total = sum(count.bytes for count in counts.values())
    assert total == sum(size_of(encode(each)) for each in (said, ACK, EVENTS))
    assert traffic.of("b") == {"Nack": FrameCount(1, size_of(encode(NACK)))}
    traffic.keep(["b"])
    assert (traffic.of("a"), [peer for peer, _ in traffic.all()]) == ({}, ["b"])


def test_what_goes_singly_to_an_older_broker_counts_singly() -> None:
    traffic = LinkTraffic()
    traffic.sent("a", encoder_for_link(3)(Together((ACK, NACK))))
    assert {kind: count.frames for kind, count in traffic.of("a").items()} == {"AckExpected": 1, "Nack": 1}


def test_a_local_neighbour_counts_too() -> None:
    traffic = LinkTraffic()
    traffic.sent_locally("a", Together((ACK, NACK)), 300)
    assert traffic.of("a") == {"AckExpected": FrameCount(1, 300), "Nack": FrameCount(1, 0)}


def test_a_broker_says_what_it_has_sent_over_a_link(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(root_of_leaf(tmp_path))
        leaf = await stage.neighbour(node, "leaf")
        await leaf.hear(Interest)
        await leaf.say(Ping(3))
        await leaf.hear(Pong)
        await asyncio.sleep(0)
        (link,) = cast(list[LinkStatus], QUESTIONS[LINKS.what](node))
        assert link.sent["Pong"].frames >= 1
        assert link.sent["Pong"].bytes == 16 * link.sent["Pong"].frames
        page = node.metrics.page().body.decode()
        assert 'tidemark_link_frames_total{kind="Pong",peer="leaf"}' in page
        assert 'tidemark_link_bytes_total{kind="Interest",peer="leaf"}' in page

    play(story)
