"""What commands show to a user with a rule and a hidden field: newest events, a topic, what one is owed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.live_node import LiveNode, live_node
from tests.node.security.secured import PASSWORDS, RULES, document
from tidemark import sync
from tidemark.cli.root import main

SECRET = "someone-unseen"
TEXT = document().replace(RULES, RULES.replace("[roles.writer]", 'hide."t.>" = ["party"]\n[roles.writer]'))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveNode]:
    """A broker with events, at which the command line is alice: she sees n up to 5, and no party."""
    (tmp_path / "access.toml").write_text(TEXT)
    (tmp_path / "password").write_text(PASSWORDS["alice"])
    options = {"security.mode": "accounts", "security.access": str(tmp_path / "access.toml")}
    with live_node(tmp_path, **options) as node:
        with sync.connect(node.url, user="paula", password=PASSWORDS["paula"]) as tm:
            tm.create_topic("t.x", "[n: int, party: string]")
            with sync.connect(node.url, user="alice", password=PASSWORDS["alice"]) as alice:
                alice.subscribe("t.>", durable="alice.s").close()
            tm.publish_many("t.x", [{"n": n, "party": SECRET} for n in (1, 7, 2, 8, 3, 9)])
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("TIDEMARK_BROKER", node.url)
        monkeypatch.setenv("TIDEMARK_USER", "alice")
        monkeypatch.setenv("TIDEMARK_PASSWORD_FILE", str(tmp_path / "password"))
        yield node


def call(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == code, done.output
    assert SECRET not in done.output
    return done.output


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.usefixtures("node")
def test_tail_shows_what_a_rule_shows() -> None:
    told = call("tail", "t.>", "--start", "earliest", "--wait", "1s", "--json")
    assert [each["value"] for each in lines(told)] == [{"n": 1}, {"n": 2}, {"n": 3}]
    refused = call("tail", "t.x", "--where", f"party = '{SECRET[:4]}'", "--wait", "1s", code=1)
    assert "may not name the field 'party'" in refused


@pytest.mark.usefixtures("node")
def test_a_topic_is_shown_without_what_is_hidden() -> None:
    assert "party" not in call("topic", "show", "t.x", "--json")


@pytest.mark.usefixtures("node")
def test_one_is_told_of_ones_own_subscription_what_a_rule_shows() -> None:
    shown = call("subs", "show", "alice.s", "--json")
    assert "party" not in shown
    assert "may not" in call("subs", "list", code=1)
