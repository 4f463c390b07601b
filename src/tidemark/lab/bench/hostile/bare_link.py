"""BareLink: a broker that holds the key of the overlay, and sends any frames at all over its link."""

from __future__ import annotations

import asyncio
from pathlib import Path
from secrets import token_hex

from tidemark.lab.bench.hostile.bare_client import BareClient
from tidemark.node.security.link_proof import LinkKey, LinkProving
from tidemark.wire.frames import Frame, Hello
from tidemark.wire.security.frames import Challenge, LinkProof

#: The broker that is attacked, and how often brokers that attack have started.
BROKER = "tidemark"
INCARNATION = 1
#: The brokers that attack: each is a neighbour of its own.
NEIGHBOURS = ("asking", "claiming", "reporting", "fetching")


def overlay_settings(directory: Path) -> dict[str, str]:
    """Returns settings of a broker that has attackers as neighbours; writes the files that they name."""
    overlay, key = directory / "overlay.toml", key_file(directory)
    attacked = f'[brokers.{BROKER}]\nlisten = "127.0.0.1:0"\npubends = ["main"]\n'
    overlay.write_text(
        attacked
        + "".join(
            f'[brokers.{name}]\nlisten = "127.0.0.1:{port}"\nparent = "{BROKER}"\n'
            for port, name in enumerate(NEIGHBOURS, 1)
        )
    )
    key.write_text(token_hex())
    return {"broker.name": BROKER, "broker.topology": str(overlay), "security.overlay_key": str(key)}


def key_file(directory: Path) -> Path:
    """Returns the file with the key of the overlay that `overlay_settings` has written."""
    return directory / "key"


class BareLink(BareClient):
    """One link. What the broker sends is counted and forgotten."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._nonce = ""

    @classmethod
    async def linked(cls, url: str, name: str, key: Path) -> BareLink:
        """A link that the broker has taken; ConnectionError if the broker closes it instead."""
        self = await cls.strange(url)
        await self.send(Hello(name, INCARNATION))
        while not self._nonce:
            await self.wait_for(self.heard + 1)
        proving = LinkProving(LinkKey.load(str(key)), is_caller=True)
        proving.challenged(self._nonce)
        heard = self.heard
        await self.send(Challenge(proving.nonce), LinkProof(proving.proof(name, BROKER)))
        await self.wait_for(heard + 1)  # before it has proved itself, long frames of it are refused
        return self

    def _take(self, frames: list[Frame]) -> None:
        for frame in frames:
            if isinstance(frame, Challenge):
                self._nonce = frame.nonce
        super()._take(frames)
