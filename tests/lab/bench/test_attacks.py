"""The attacks of `./run bench hostile` that ask for much with few bytes do what they are named for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.live_node import config_at
from tests.node.speech import Stage, play
from tests.waiting import until
from tidemark.lab.bench.hostile import attacks
from tidemark.lab.bench.hostile.attacker import ATTACKS
from tidemark.lab.bench.hostile.attacks import QUICK, TINY, Attack, Sizes
from tidemark.lab.bench.hostile.bare_link import key_file, overlay_settings
from tidemark.wire.frames import Ping, Pong

LARGER = replace(QUICK, document_bytes=64 << 10, acknowledged=4_000)


@pytest.mark.open_broker(reason="attackers of the benchmark do not log in")
@pytest.mark.parametrize("sizes", [TINY, QUICK], ids=["tiny", "quick"])
@pytest.mark.parametrize(
    "name",
    [
        "dotted keys",
        "large questions",
        "large acknowledgements",
        "own acknowledgements",
        "unread topics",
        "fan-out",
        "a broker's nacks",
        "a broker's claims",
        "a broker's rows",
        "a broker's fetches",
    ],
)
def test_an_attack_goes_on_and_a_client_beside_it_is_answered(
    tmp_path: Path, name: str, sizes: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks, "UNREAD_SECONDS", 0.2)

    async def story(stage: Stage) -> None:
        settings = overlay_settings(tmp_path)
        options = {name.replace(".", "__"): value for name, value in settings.items()}
        node = await stage.node(config_at(tmp_path / "data", **options))
        good = await stage.client(node, "good")
        host, port = node.address
        attack = Attack(f"tidemark://{host}:{port}", sizes, key_file(tmp_path))

        async def attacks_on() -> None:
            await ATTACKS[name](attack)

        attacking = asyncio.create_task(attacks_on())
        await until(lambda: attack.done >= 2 or attacking.done())
        assert not attacking.done() or name == "unread topics"
        await good.say(Ping(1))
        await good.hear(Pong)
        assert not node.failed.done()
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)
        attack.end()
        await until(lambda: len(node.server.connections) == 1)
        assert not node.server.malformed, "what attackers say has the allowed forms"

    play(story)
