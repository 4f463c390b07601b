"""What a refused login leaves: nothing that only the garbage collector finds."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.live_node import live_node
from tests.waiting import eventually
from tidemark import sync
from tidemark.errors import TidemarkError
from tidemark.node.connection import Connection
from tidemark.node.security.login import LoginAttempt, make_verifier

DOCUMENT = """
[roles.desk]
administer = true
[users.desk]
roles = ["desk"]
password = "{verifier}"
"""
LOGINS = 5


def left() -> list[str]:
    """The connections and logins that a broker in this process has, by their types."""
    return [type(each).__name__ for each in gc.get_objects() if isinstance(each, Connection | LoginAttempt)]


def test_a_refused_login_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text(DOCUMENT.format(verifier=make_verifier("the right one").text))
    options = {"security.mode": "accounts", "security.access": str(tmp_path / "access.toml")}
    with live_node(tmp_path, **options) as node:
        gc.collect()
        gc.disable()
        try:
            before = len(left())
            for _ in range(LOGINS):
                with pytest.raises(TidemarkError), sync.connect(node.url, user="desk", password="wrong"):
                    pass
            eventually(lambda: len(left()) <= before)
        finally:
            gc.enable()
