"""Queues at a broker with accounts: a queue gets what its user may see, and keeps no secret."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

import tidemark.queue
from tests.live_node import LiveNode, live_node
from tests.waiting import PATIENCE_SECONDS
from tidemark.errors import RefusedError
from tidemark.node.security.login import make_verifier
from tidemark.queue import Queue

PASSWORDS = {name: f"{name}'s secret" for name in ("alice", "paula")}
RULES = """
[roles.reader]
subscribe = ["t.>"]
durable = ["*"]
read."t.>" = "n <= 5"
hide."t.>" = ["party"]
[roles.operator]
administer = true
[roles.writer]
publish = ["t.>"]
declare = ["t.>"]
publisher = ["*"]
[users.alice]
roles = ["reader"]
password = "{alice}"
[users.paula]
roles = ["writer", "operator"]
password = "{paula}"
"""


def opened(node: LiveNode, user: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue of a user, who is named in the environment."""
    (path / f"{user}.password").write_text(PASSWORDS[user])
    monkeypatch.setenv("TIDEMARK_USER", user)
    monkeypatch.setenv("TIDEMARK_PASSWORD_FILE", str(path / f"{user}.password"))
    return tidemark.queue.connect(node.url, name=user, state=path / f"{user}.db", timeout=PATIENCE_SECONDS)


def test_a_queue_goes_by_the_rules_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = RULES
    for name, password in PASSWORDS.items():
        document = document.replace(f"{{{name}}}", make_verifier(password).text)
    (tmp_path / "access.toml").write_text(document)
    options = {"security.mode": "accounts", "security.access": str(tmp_path / "access.toml")}
    with live_node(tmp_path / "broker", **options) as node, ExitStack() as stack:
        with opened(node, "paula", tmp_path, monkeypatch) as writer:
            writer.put("t.x", {"n": 1})  # from here on it is connected as paula
            reader = opened(node, "alice", tmp_path, monkeypatch)
            stack.callback(reader.close)
            reader.subscribe("t.x")
            for number in (7, 4, 9, 5):
                writer.put("t.x", {"n": number, "party": "unseen"})
            assert [reader.get("t.x") for _ in range(2)] == [{"n": 4}, {"n": 5}]
            with pytest.raises(RefusedError, match="may not"):
                writer.subscribe("t.x")
        for secret in PASSWORDS.values():
            for file in tmp_path.rglob("*"):
                if file.is_file() and file.suffix != ".password":
                    assert secret.encode() not in file.read_bytes(), file
