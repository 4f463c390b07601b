"""Events that a broker keeps for a client that does not read, when the rules of that client change."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.node.security.secured import client_of, document, logged_in, secured
from tests.node.speech import Stage, play
from tests.waiting import until
from tidemark.wire.answers import ACCESS, PROPOSE_ACCESS
from tidemark.wire.frames import Subscribe, Subscribed


def test_what_waits_for_a_client_that_does_not_read_is_not_given_out_once_its_rules_have_changed(
    tmp_path: Path,
) -> None:
    async def story(stage: Stage) -> None:
        text = document()
        node = await secured(stage, tmp_path, text=text)
        async with client_of(node, "ops") as ops, client_of(node, "paula") as writer:
            await writer.create_topic("t.x", "[n: int, pad: string]")
            slow = await logged_in(stage, node, "alice")
            (connection,) = (each for each in node.server.connections if each.name == "alice's program")
            await slow.say(Subscribe("s", "t.>", "", False, 1 << 30))
            await slow.hear(Subscribed)
            slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(40):
                await writer.publish("t.x", {"n": 4, "pad": "x" * 600_000})
            await until(lambda: connection.queued_bytes > 8 << 20)
            found = await ops.ask(ACCESS)
            taken = connection.said_bytes - connection.queued_bytes
            await ops.ask(PROPOSE_ACCESS, text=text.replace("most = 5", "most = 3"), base=found.version)
            slow.reader._transport.resume_reading()  # type: ignore[attr-defined]
            received = 0
            with suppress(ConnectionError):
                while piece := await slow.reader.read(1 << 20):
                    received += len(piece)
            assert received <= taken

    play(story)
