"""Every change that a person makes at the console is in the broker's audit log, with who made it."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

from tests.console.live_console import live_console
from tests.console.test_secured_console import logged_in
from tests.live_node import live_node
from tests.node.security.secured import PASSWORDS, USERS, document
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync


def alices(url: str) -> sync.Client:
    return sync.connect(url, user="alice", password=PASSWORDS["alice"])


def test_each_change_is_in_the_audit_log_with_who_made_it(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    both = 'roles = ["operator", "reader"]\nclaims = { most = 100 }'
    access.write_text(document({**USERS, "ops": both}))
    settings = {"security__mode": "accounts", "security__access": str(access)}
    with live_node(tmp_path, **settings) as node, live_console(node.url) as console:
        with sync.connect(node.url, user="paula", password=PASSWORDS["paula"]) as paula:
            paula.create_topic("t.one", "[n: int]")
            with alices(node.url) as alice, alice.subscribe("t.one", durable="alice.x", ack="client"):
                pass
            ops = logged_in(console, "ops")
            path = "/subscriptions/alice.x/change"
            eventually(lambda: "away" in ops.get("/subscriptions/alice.x").text)
            token = ops.token(f"{path}?what=seek&to=now")
            assert ops.send(path, token, what="seek", to="now").status == 303
            changed = ops.send(path, token, what="selector", to="n >= 0")
            assert changed.status == 303, changed.text
            # The subscription is still hers, and the rule for her holds: she may see up to 5.
            _, tick, _ = paula.publish_many("t.one", [{"n": n} for n in (4, 9, 5)])
            with (
                alices(node.url) as alice,
                alice.subscribe("t.one", "n >= 0", durable="alice.x", ack="client") as sub,
            ):
                found = [sub.next(PATIENCE_SECONDS) for _ in range(2)]
                assert [each["n"] for each in found if each is not None] == [4, 5]
            why = f"/why?pubend=main&tick={tick}"
            owned = ops.get(f"{why}&subscription=alice.x").text
            assert "The event does not match." in owned
            assert "n &lt;= 5" in owned, "the rule of its owner is a part of what a subscription selects"
            assert "The rule of access of alice" in ops.get(f"{why}&user=alice").text
            assert ops.send(path, token, what="remove").status == 303
            text = access.read_text() + '\n[roles.guest]\nsubscribe = ["news.>"]\n'
            assert ops.send("/access/apply", token, text=text, version="0").status == 303
            text = (
                ops.get("/overlay")
                .text.partition("<textarea")[2]
                .partition(">")[2]
                .partition("</textarea>")[0]
            )
            away = unescape(text).replace("[brokers.tidemark]\n", "[brokers.tidemark]\ndraining = true\n")
            assert ops.send("/overlay/apply", token, text=away, version="0").status == 303
        lines: list[dict[str, Any]] = [
            json.loads(line) for line in (tmp_path / "data" / "audit.log").read_text().splitlines()
        ]
    changes = [each for each in lines if each["what"] == "asked" and each["who"] == "ops"]
    assert [each["question"] for each in changes] == ["seek", "select", "remove", "propose_access", "propose"]
    assert [each.get("name") for each in changes[:3]] == ["alice.x"] * 3
    assert changes[1]["where"] == "n >= 0"
    done = [each for each in lines if each["what"] == "answered"]
    assert [(each["question"], each["outcome"]) for each in done] == [
        (each["question"], "done") for each in changes
    ]
    assert done[1]["before"]["selector"] == "n <= 5"
    assert done[1]["after"]["selector"] == "n >= 0 AND n <= 5"
    assert done[2]["before"]["owner"] == "alice"
