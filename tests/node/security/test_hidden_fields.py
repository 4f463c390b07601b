"""Hidden fields at a running broker: what a real client can read, and what it can find out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.security.secured import RULES, client_of, document, secured
from tests.node.speech import Stage, play
from tidemark.errors import RefusedError
from tidemark.wire.answers import PROPOSE_ACCESS

SCHEMA = "[n: int, party: string, note: string?]"
HIDING = RULES.replace("[roles.writer]", 'hide."t.>" = ["party"]\n[roles.writer]')


def _hiding(text: str) -> str:
    return text.replace(RULES, HIDING)


def test_a_client_reads_events_without_what_is_hidden_from_it(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path, text=_hiding(document()))
        async with client_of(node, "paula") as writer, client_of(node, "alice") as reader:
            await writer.create_topic("t.x", SCHEMA)
            async with reader.subscribe("t.>", durable="alice.s") as subscription:
                await writer.publish("t.x", {"n": 1, "party": "secret", "note": "a"})
                event = await anext(subscription)
                assert event.value == {"n": 1, "note": "a"}
                with pytest.raises(KeyError):
                    event["party"]
            for n in (2, 3):
                await writer.publish("t.x", {"n": n, "party": "secret"})
            async with reader.subscribe("t.>", durable="alice.s") as subscription:
                missed = [(await anext(subscription)).value for _ in range(2)]
            assert missed == [{"n": 2, "note": None}, {"n": 3, "note": None}]
            with pytest.raises(RefusedError, match="may not name the field 'party'"):
                await reader.subscribe("t.x", where="party = 'secret'")
            # An open topic has no schema to be checked by.
            await writer.publish("t.open", {"n": 4, "party": "secret"})
            async with reader.subscribe("t.open", start="earliest") as subscription:
                assert (await anext(subscription)).value == {"n": 4}

    play(story)


def test_a_field_is_hidden_from_the_moment_the_rule_is_applied(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        before = document()
        node = await secured(stage, tmp_path, text=before)
        async with client_of(node, "paula") as writer, client_of(node, "alice") as reader:
            await writer.create_topic("t.x", SCHEMA)
            async with reader.subscribe("t.>", durable="alice.s") as subscription:
                await writer.publish("t.x", {"n": 1, "party": "open"})
                assert (await anext(subscription))["party"] == "open"
                async with client_of(node, "ops") as admin:
                    version = (await admin.ask("access"))["version"]
                    await admin.ask(PROPOSE_ACCESS, text=_hiding(before), base=version)
                await writer.publish("t.x", {"n": 2, "party": "secret"})
                assert (await anext(subscription)).value == {"n": 2, "note": None}

    play(story)
