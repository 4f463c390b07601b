"""A frame that cannot be handled ends the connection it came over; whoever else is there does not notice."""

from __future__ import annotations

import asyncio
import gc
from json import dumps
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from tests.live_node import config_at
from tests.node.speech import Stage, play
from tests.ports import free_ports
from tests.waiting import until
from tidemark.broker.hosting.admission import Admission
from tidemark.node.config.loading import load
from tidemark.node.config.settings import Config
from tidemark.node.node import Node
from tidemark.node.server import REFUSED_SECONDS_MAX, REFUSED_SECONDS_MIN, RefusedNeighbours
from tidemark.node.topology.text import to_text
from tidemark.wire.codec import encode
from tidemark.wire.frames import (
    Answer,
    Ask,
    Claim,
    Fetched,
    Hello,
    Overlay,
    Ping,
    Pong,
    Refused,
    Subscribe,
    Unsubscribe,
)

DEEP = "[" * 1_000


def broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("nobody has thought of this")


def with_stamp(stamp: int) -> bytes:
    """A Subscribe with a stamp that no encoder writes."""
    mark = 1_234_567_890_123_456
    raw = b"".join(bytes(each) for each in encode(Subscribe("evil", ">", "", True, 1, None, mark)))
    return raw.replace(pack("<q", mark), pack("<q", stamp))


def test_a_refused_frame_ends_its_connection_and_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        good, evil = await stage.client(node, "good"), await stage.client(node, "evil")
        await good.declare()
        await good.subscribe()
        await good.started()
        refusal = Admission.refusal

        def sometimes(self: Admission, client: int, frame: Subscribe, known: Any) -> Any:
            return broken() if frame.name == "evil" else refusal(self, client, frame, known)

        monkeypatch.setattr(Admission, "refusal", sometimes)
        # What comes in one read with the refused frame is not handled.
        await evil.say(Subscribe("evil", ">", "", True, 1), Unsubscribe("s"))
        refused = await evil.hear(Refused)
        assert (refused.what, refused.code) == ("connect", "frame")
        assert "Subscribe cannot be handled: ZeroDivisionError" in refused.reason
        assert await evil.is_closed()
        await good.publish(1, 3)
        assert (await good.numbers(3))[0] == [1, 2, 3]
        assert node.runtime.broker.counters["frames_refused"] == 1
        assert node.runtime.broker.hosts("s")
        await until(lambda: len(node.server.connections) == 1)
        assert len(node.runtime.clients) == 1

    play(story)


def test_a_number_without_a_successor_is_refused_by_name(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        evil = await stage.client(node, "evil")
        evil.writer.write(with_stamp(2**63 - 1))
        refused = await evil.hear(Refused)
        assert refused.code == "frame"
        assert f"stamp: the number {2**63 - 1} is outside" in refused.reason
        assert await evil.is_closed()
        assert node.server.malformed == 1

    play(story)


@pytest.mark.parametrize("what", ["topics", "status", "propose", "remove"])
def test_arguments_that_nest_too_deeply_or_count_too_far_are_refused(tmp_path: Path, what: str) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        evil = await stage.client(node, "evil")
        for ticket, arguments in enumerate((DEEP, '{"base": ' + "9" * 5_000 + "}", "[]"), 1):
            await evil.say(Ask(ticket, what, arguments))
            heard: Refused | Answer = await (evil.hear(Answer) if what == "status" else evil.hear(Refused))
            assert isinstance(heard, Answer) or heard.name == str(ticket)
        assert not node.failed.done()

    play(story)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1e308", "true", "[]"])
@pytest.mark.parametrize("what", ["propose", "propose_access", "snapshot_read", "topics", "connections"])
def test_every_number_of_an_argument_is_answered(tmp_path: Path, what: str, number: str) -> None:
    async def story(stage: Stage) -> None:
        unretrieved: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unretrieved.append(context))
        node = await stage.node(config_at(tmp_path / "data"))
        evil = await stage.client(node, "evil")
        keys = ("base", "offset", "bytes", "limit", "last")
        arguments = ", ".join(f'"{key}": {number}' for key in keys)
        await evil.say(Ask(1, what, f'{{"text": "", "snapshot": "x", "file": "y", {arguments}}}'), Ping(2))
        await evil.hear(Pong)
        if "e999" in number or what not in ("topics", "connections"):
            assert (await evil.hear(Refused)).name == "1"
        gc.collect()
        await asyncio.sleep(0)
        assert unretrieved == []
        assert not node.failed.done()

    play(story)


def test_an_error_in_what_a_question_has_begun_is_a_refusal_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        evil = await stage.client(node, "evil")
        monkeypatch.setattr(node.membership, "propose", broken)
        await evil.say(Ask(1, "propose", '{"base": 0, "text": ""}'))
        assert "ZeroDivisionError" in (await evil.hear(Refused)).reason
        assert node.runtime.broker.counters["frames_refused"] == 1

    play(story)


def test_a_refusal_that_would_repeat_a_long_text_is_shortened(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        evil = await stage.client(node, "evil")
        text = "bundles.x.cells = ['a', 'b']\nbundles.x.links = '" + "x" * 200_000 + "'"
        await evil.say(Ask(1, "propose", dumps({"base": 0, "text": text})))
        assert len((await evil.hear(Refused)).reason) < 5_000

    play(story)


def test_a_topology_that_nests_too_deeply_is_refused(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        evil = await stage.client(node, "evil")
        await evil.say(Ask(1, "propose", '{"base": 0, "text": "a = ' + "[" * 10_000 + '"}'))
        assert (await evil.hear(Refused)).name == "1"

    play(story)


def pair(path: Path) -> Config:
    """The broker `a`, whose neighbour `b` is to be played by a test, and is not called by it."""
    ports = free_ports(2)
    file = path / "overlay.toml"
    file.write_text(
        f'[brokers.a]\nlisten = "127.0.0.1:{ports[0]}"\npubends = ["pa"]\n'
        f'[brokers.b]\nlisten = "127.0.0.1:{ports[1]}"\npubends = ["pb"]\nparent = "a"\n'
    )
    return load(file, broker="a", options={"storage.data_dir": str(path / "a"), "http.listen": ""})


def test_a_neighbour_that_was_refused_is_left_alone_for_a_while(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node: Node = await stage.node(pair(tmp_path))
        evil = await stage.stranger(node)
        await evil.say(Hello("b", 1))
        await evil.hear(Hello)
        raw = b"".join(bytes(each) for each in encode(Claim("s", 1_234_567, "b", True)))
        evil.writer.write(raw.replace(pack("<q", 1_234_567), pack("<q", 2**63 - 1)))
        refused = await evil.hear(Refused)
        assert "Claim is damaged: epoch" in refused.reason
        assert await evil.is_closed()
        await until(lambda: "b" not in node.runtime.peers)
        again = await stage.stranger(node)
        await again.say(Hello("b", 2))
        assert "come again in" in (await again.hear(Refused)).reason
        assert await again.is_closed()
        assert not node.failed.done()

    play(story)


def test_a_neighbour_that_answers_another_fetch_is_refused(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        from tidemark.wire.frames import Fetch

        node = await stage.node(pair(tmp_path))
        evil = await stage.stranger(node)
        await evil.say(Hello("b", 1))
        await evil.hear(Hello)
        asker = await stage.client(node, "asker")
        await asker.say(Fetch(5, "pb", 0, 10, ">", "", 100))
        asked = await evil.hear(Fetch)
        await evil.say(Fetched(asked.ticket, "pa", 0, 10, 0))
        assert "Fetched cannot be handled" in (await evil.hear(Refused)).reason
        assert await evil.is_closed()
        await until(lambda: "b" not in node.runtime.peers)
        assert not node.failed.done()

    play(story)


def test_the_time_doubles_for_a_neighbour_that_keeps_being_refused() -> None:
    now = 100.0
    refused = RefusedNeighbours(lambda: now)
    assert refused.seconds_left("b") == 0
    waits: list[float] = []
    for _ in range(10):
        refused.add("b")
        waits.append(refused.seconds_left("b"))
        now += waits[-1] + 1
        assert refused.seconds_left("b") == 0
    assert waits[:3] == [REFUSED_SECONDS_MIN, 2 * REFUSED_SECONDS_MIN, 4 * REFUSED_SECONDS_MIN]
    assert waits[-1] == REFUSED_SECONDS_MAX
    now += REFUSED_SECONDS_MAX
    refused.add("b")
    assert refused.seconds_left("b") == REFUSED_SECONDS_MIN
    assert refused.seconds_left("other") == 0


@pytest.mark.open_broker(reason="who has proved a name may bring a topology")
def test_a_topology_of_somebody_who_only_says_a_name_is_not_read(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(pair(tmp_path))
        text = to_text(node.topology)
        evil = await stage.stranger(node)
        await evil.say(Hello("nobody", 1), Overlay(7, "zz", text))
        assert (await evil.hear(Refused)).code == "unknown"
        assert await evil.is_closed()
        assert node.topology.version == 0
        neighbour = await stage.stranger(node)
        await neighbour.say(Hello("b", 1), Overlay(7, "zz", text))
        await until(lambda: node.topology.version == 7)

    play(story)
