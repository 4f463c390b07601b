"""A long acknowledgement is handled in slices, between which others are answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live_node import config_at
from tests.node.speech import Speaker, Stage, play
from tidemark.node.connection import Connection
from tidemark.ticks import CheckpointToken
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Ack, Acked, Answer, Ask, Frame, Ping, Pong, Refused, Subscribe, Subscribed

STRANGERS = tuple((f"nobody {at}", CheckpointToken({"main": at})) for at in range(8_000))


async def subscribed(speaker: Speaker, *names: str) -> None:
    await speaker.say(*(Subscribe(name, "t.x", "", True, 1_000) for name in names))
    for _ in names:
        await speaker.hear(Subscribed)


def test_a_client_beside_it_is_answered_before_it_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    next_step, take_client = FrameDecoder._next_step, Connection._take_client

    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        many, other = await stage.client(node, "many"), await stage.client(node, "other")

        def step(self: FrameDecoder) -> list[Frame]:
            if not steps:
                other.writer.writelines(encode(Ping(1)))
            steps.append("step")
            return next_step(self)

        def take(self: Connection, client: int, frames: list[Frame], until: float) -> list[Frame]:
            steps.extend("ping" for frame in frames if frame == Ping(1))
            return take_client(self, client, frames, until)

        monkeypatch.setattr(FrameDecoder, "_next_step", step)
        monkeypatch.setattr(Connection, "_take_client", take)
        await many.say(Ack(STRANGERS), Ping(2))
        assert (await other.hear(Pong)).stamp == 1
        assert (await many.hear(Pong)).stamp == 2, "what follows waits for it"

    play(story)
    assert steps.count("step") > 30
    assert steps.index("ping") < 30


def test_what_it_says_is_kept_as_if_it_were_short(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        speaker = await stage.client(node)
        names = [f"mine {at}" for at in range(600)]
        await subscribed(speaker, *names)
        mine = tuple((name, CheckpointToken({"main": 5})) for name in names)
        await speaker.say(Ack((*mine, *STRANGERS), 3), Ack(mine, 4), Ack((*STRANGERS, *mine)))
        assert (await speaker.hear(Refused)).name == "3", "all of it is kept, or none"
        assert (await speaker.hear(Acked)).ticket == 4
        await speaker.say(Ping(1))
        await speaker.hear(Pong)

    play(story)


def test_the_longest_slice_is_noted(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        speaker = await stage.client(node)
        took, longest = node.server.turns.took, node.server.turns.longest
        assert longest > 0
        took(longest / 2)
        assert node.server.turns.longest == longest
        took(longest + 7)
        assert node.server.turns.longest == longest + 7
        await speaker.say(Ask(1, "metrics"))
        assert json.loads((await speaker.hear(Answer)).payload)["turn_longest_seconds"] == longest + 7

    play(story)
