"""What the tests of security share: an access document with users, and a node that asks for logins."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.live_node import config_at
from tests.node.speech import Speaker, Stage
from tidemark.client.client import Client, connect
from tidemark.node.node import Node
from tidemark.node.security.certificates import Issued, issue, make_authority
from tidemark.node.security.login import make_verifier
from tidemark.wire.frames import Connect, Welcome
from tidemark.wire.limits import PROTOCOL_NEWEST, PROTOCOL_OLDEST

PASSWORDS = {name: f"{name}'s secret" for name in ("alice", "bob", "paula", "ops")}
RULES = """
[roles.reader]
subscribe = ["t.>"]
durable = ["{user}.*"]
read."t.>" = "n <= :claims.most"
[roles.writer]
publish = ["t.>"]
declare = ["t.>"]
[roles.operator]
administer = true
"""
USERS = {
    "alice": 'roles = ["reader"]\nclaims = { most = 5 }',
    "bob": 'roles = ["reader"]\nclaims = { most = 2 }',
    "paula": 'roles = ["writer"]',
    "ops": 'roles = ["operator"]',
}


def document(users: dict[str, str] | None = None) -> str:
    """The text of an access document with these users, each with its password."""
    tables = [
        f'[users.{name}]\n{roles}\npassword = "{make_verifier(PASSWORDS[name]).text}"\n'
        for name, roles in (users or USERS).items()
    ]
    return "".join(tables) + RULES


async def secured(stage: Stage, path: Path, *, text: str = "", **options: str) -> Node:
    """A node with accounts."""
    path.mkdir(parents=True, exist_ok=True)
    access = path / "access.toml"
    access.write_text(text or document())
    return await stage.node(
        config_at(path / "data", security__mode="accounts", security__access=str(access), **options)
    )


def client_of(node: Node, name: str, *, scheme: str = "tidemark", **more: str) -> Client:
    """A client that logs in as one of the users."""
    return connect(f"{scheme}://{node.address}", user=name, password=PASSWORDS[name], **more)  # type: ignore[arg-type]


def authority_in(path: Path) -> tuple[Issued, Path]:
    """A new authority, and the file with its certificate."""
    path.mkdir(parents=True, exist_ok=True)
    made = make_authority()
    (path / "ca.pem").write_bytes(made.certificate)
    return made, path / "ca.pem"


def broker_files(
    authority: Issued, path: Path, name: str, *, days: int = 10, host: str = "127.0.0.1"
) -> dict[str, str]:
    """The settings with a broker's certificate and its key."""
    made = issue(authority, name, hosts=[host], broker=name, days=days)
    files = path / f"{name}-{days}-{host}"
    made.save(files / "cert.pem", files / "key.pem")
    return {"security__certificate": str(files / "cert.pem"), "security__key": str(files / "key.pem")}


async def settled(seconds: float = 0.2) -> None:
    """Let what is under way come about."""
    await asyncio.sleep(seconds)


async def logged_in(stage: Stage, node: Node, name: str) -> Speaker:
    """A client that speaks plain frames and has logged in as one of the users."""
    speaker = await stage.stranger(node)
    await speaker.say(Connect(f"{name}'s program", PROTOCOL_OLDEST, PROTOCOL_NEWEST))
    await speaker.log_in(name, PASSWORDS[name])
    await speaker.hear(Welcome)
    return speaker
