"""What clients and a broker say to each other is counted by the kind of frame, and every byte once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live_node import config_at
from tests.node.speech import Stage, events, play, root_of_leaf
from tidemark.wire.codec import encode, size_of
from tidemark.wire.frames import Connect, Frame, Hello, Ping, Pong, Publish, Published, Welcome


def frames_bytes(*frames: Frame) -> int:
    return sum(size_of(encode(each)) for each in frames)


def test_frames_and_bytes_of_clients_are_counted_by_kind_in_both_directions(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path))
        client = await stage.client(node)
        await client.declare()
        await client.subscribe()
        await client.started()
        # Publishes that arrive in one read are decoded as one frame, and count as what they are.
        said = [Publish("main", "p", first, events(first, 10)) for first in (1, 11, 21)]
        await client.say(*said)
        while (await client.hear(Published)).sequence < 30:
            pass
        await client.numbers(30)
        await client.say(Ping(3))
        await client.hear(Pong)
        counts = {(way, kind): count for way, kind, count in node.server.client_traffic.all()}
        assert counts["received", "Publish"].frames == 3
        assert counts["received", "Publish"].bytes == frames_bytes(*said)
        assert counts["received", "Connect"].frames == 1
        assert counts["sent", "Published"].frames == 3, "each Publish is answered"
        assert counts["sent", "Pong"].frames == 1
        assert counts["sent", "Deliver"].frames >= 1
        (connection,) = node.server.connections
        sent = sum(count.bytes for (way, _), count in counts.items() if way == "sent")
        assert sent == connection.said_bytes
        page = node.metrics.page().body.decode()
        assert 'tidemark_client_frames_total{direction="received",kind="Publish"} 3.0' in page
        assert (
            f'tidemark_client_bytes_total{{direction="sent",kind="Pong"}} {frames_bytes(Pong(3))}.0' in page
        )

    play(story)


@pytest.mark.open_broker(reason="the test speaks right behind its Connect, where a login would be")
def test_what_comes_in_the_read_of_the_introduction_counts_and_a_frame_in_parts_counts_once(
    tmp_path: Path,
) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path))
        client = await stage.stranger(node)
        await client.say(Connect("c", 1, 7), Ping(1))
        await client.hear(Welcome)
        await client.hear(Pong)
        raw = b"".join(bytes(piece) for piece in encode(Ping(2)))
        client.writer.write(raw[:5])
        await client.writer.drain()
        client.writer.write(raw[5:])
        await client.hear(Pong)
        counts = {(way, kind): count for way, kind, count in node.server.client_traffic.all()}
        assert (counts["received", "Connect"].frames, counts["received", "Ping"].frames) == (1, 2)
        assert counts["received", "Ping"].bytes == 2 * len(raw)

    play(story)


def test_brokers_do_not_count_among_clients(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(root_of_leaf(tmp_path))
        leaf = await stage.neighbour(node, "leaf")
        await leaf.hear(Hello)
        await leaf.say(Ping(3))
        await leaf.hear(Pong)
        assert list(node.server.client_traffic.all()) == []

    play(story)
