"""What the audit log has: quotas, links, tickets, renewed tokens, and changes with what came of them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.node.security.secured import (
    PASSWORDS,
    RULES,
    authority_in,
    broker_files,
    client_of,
    document,
    logged_in,
    secured,
)
from tests.node.security.test_links import key_file, two
from tests.node.security.test_parked_clients import parked
from tests.node.speech import Stage, play
from tests.waiting import until
from tidemark.errors import RefusedError
from tidemark.node.security.audit_log import LINES_AT_ONCE, SELDOM_SECONDS, AuditLog
from tidemark.wire.answers import ACCESS, PROPOSE_ACCESS, REMOVE, SEEK, SELECT, SNAPSHOT
from tidemark.wire.frames import (
    Ask,
    Connect,
    Lease,
    Ping,
    Pong,
    Refused,
    Resume,
    Subscribe,
    Subscribed,
    Welcome,
)
from tidemark.wire.limits import PROTOCOL_NEWEST, PROTOCOL_OLDEST
from tidemark.wire.security.frames import Login, Proof


def lines(path: Path, *whats: str) -> list[dict[str, Any]]:
    """The lines of these kinds in the audit log of a broker."""
    found = [json.loads(line) for line in (path / "audit.log").read_text().splitlines()]
    return [each for each in found if each["what"] in whats]


def with_quota(role: str, quota: str) -> str:
    return document().replace(RULES, RULES.replace(f"[roles.{role}]", f"[roles.{role}]\n{quota}"))


def test_a_connection_over_its_quota_is_no_login_in_the_audit_log(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path, text=with_quota("reader", "quota.connections = 1"))
        await logged_in(stage, node, "alice")
        second = await stage.stranger(node)
        await second.say(Connect("second", PROTOCOL_OLDEST, PROTOCOL_NEWEST))
        await second.log_in("alice", PASSWORDS["alice"])
        assert (await second.hear(Refused)).code == "limit"
        first, refused = lines(tmp_path / "data", "login", "over limit")
        assert (first["what"], first["who"], first["client"]) == ("login", "alice", "alice's program")
        assert (refused["what"], refused["who"], refused["how"]) == ("over limit", "alice", "password")
        assert (refused["request"], refused["address"]) == ("connect", "127.0.0.1")
        assert "quota.connections" in refused["reason"]

    play(story)


def test_a_subscription_over_its_quota_is_in_the_audit_log(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path, text=with_quota("reader", "quota.subscriptions = 1"))
        alice = await logged_in(stage, node, "alice")
        await alice.say(Subscribe("alice.1", "t.>", "", True, 100))
        await alice.hear(Subscribed)
        await alice.say(Subscribe("alice.2", "t.>", "", True, 100))
        assert (await alice.hear(Refused)).code == "limit"
        (refused,) = lines(tmp_path / "data", "over limit")
        assert (refused["who"], refused["request"], refused["name"]) == ("alice", "subscribe", "alice.2")
        assert "quota.subscriptions" in refused["reason"]

    play(story)


def test_a_publisher_that_waits_for_its_quota_is_in_the_audit_log_once_a_minute(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path, text=with_quota("writer", "quota.publish_events = 50"))
        async with client_of(node, "paula") as writer:
            await writer.create_topic("t.x", "[n: int]")
            for _ in range(3):
                await asyncio.gather(*(writer.publish("t.x", {"n": 1}) for _ in range(50)))
        assert node.runtime.broker.counters["quota_waits"] >= 1
        (waits,) = lines(tmp_path / "data", "publishing waits")
        assert waits["who"] == "paula"
        assert waits["reason"] == "it has published more than quota.publish_events of its roles allows"

    play(story)
    now = [0.0]
    log = AuditLog(tmp_path / "audit.log", "b", lambda: now[0])
    for number in range(LINES_AT_ONCE):
        now[0] = number / LINES_AT_ONCE
        log.write("publishing waits", who="paula")
    now[0] += SELDOM_SECONDS
    log.write("publishing waits", who="paula")
    log.close()
    assert [each.get("left_out") for each in lines(tmp_path, "publishing waits")] == [None, LINES_AT_ONCE - 1]


@pytest.mark.parametrize("how", ["key", "certificate"])
def test_a_broker_that_links_is_in_the_audit_log_of_the_other_with_its_proof(
    tmp_path: Path, how: str
) -> None:
    (tmp_path / "access.toml").write_text(document())
    of = {"security__mode": "accounts", "security__access": str(tmp_path / "access.toml")}
    if how == "certificate":
        pytest.importorskip("cryptography")
        authority, ca = authority_in(tmp_path / "ca")
        own = {name: broker_files(authority, tmp_path, name) for name in "ab"}
        of |= {"security__authority": str(ca)}
    else:
        own = dict.fromkeys("ab", key_file(tmp_path, "key", "0123456789abcdef0123456789abcdef"))

    async def story(stage: Stage) -> None:
        a, b = await two(stage, tmp_path, **{name: of | own[name] for name in "ab"})
        await until(lambda: "b" in a.runtime.peers and "a" in b.runtime.peers)
        for name, other in ("ab", "ba"):
            linked = lines(tmp_path / name, "link")[-1]
            assert (linked["who"], linked["how"], linked["address"]) == (other, how, "127.0.0.1")

    play(story)


def test_a_client_that_comes_back_with_its_ticket_is_in_the_audit_log_and_so_is_a_wrong_ticket(
    tmp_path: Path,
) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        ticket = await parked(node, await logged_in(stage, node, "alice"))
        for each in ("0" * len(ticket), ticket):
            again = await stage.stranger(node)
            await again.say(Resume(each))
            await again.hear(Refused if each != ticket else Welcome)
        first, failed, came = lines(tmp_path / "data", "login", "login failed")
        assert (first["what"], first["how"]) == ("login", "password")
        assert (failed["what"], failed["cause"]) == (
            "login failed",
            "the ticket is of no client that is away",
        )
        assert (came["what"], came["who"], came["how"]) == ("login", "alice", "ticket")
        assert ticket not in (tmp_path / "data" / "audit.log").read_text()

    play(story)


def test_a_token_that_is_brought_anew_is_in_the_audit_log(tmp_path: Path) -> None:
    jwt = pytest.importorskip("jwt")
    secret = "s" * 40
    tokens: list[str] = []
    (tmp_path / "key").write_text(secret)

    def token() -> Proof:
        claims = {"sub": "zoe", "roles": ["writer"], "exp": time.time() + 600, "jti": str(len(tokens))}
        tokens.append(str(jwt.encode(claims, secret, "HS256")))
        return Proof("BEARER", tokens[-1])

    async def story(stage: Stage) -> None:
        options = {"security__bearer_keys": str(tmp_path / "key"), "security__bearer_roles": "roles"}
        node = await secured(stage, tmp_path, **options)
        zoe = await stage.stranger(node)
        await zoe.say(Connect("zoe's program", PROTOCOL_OLDEST, PROTOCOL_NEWEST))
        await zoe.hear(Login)
        await zoe.say(token())
        await zoe.hear(Welcome)
        await zoe.say(token(), Ping(7))
        await zoe.hear(Pong)
        (came,) = lines(tmp_path / "data", "login")
        assert (came["who"], came["how"]) == ("zoe", "bearer")
        renewed = lines(tmp_path / "data", "login renewed")[0]
        assert (renewed["who"], renewed["how"], renewed["client"]) == ("zoe", "bearer", came["client"])
        text = (tmp_path / "data" / "audit.log").read_text()
        assert not any(each in text for each in tokens)

    play(story)


def test_changes_of_subscriptions_are_in_the_audit_log_with_what_was_before_and_what_came_of_them(
    tmp_path: Path,
) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        async with client_of(node, "paula") as writer, client_of(node, "ops") as ops:
            await writer.create_topic("t.x", "[n: int]")
            async with client_of(node, "alice") as alice:
                await alice.subscribe("t.x", "n > 1", durable="alice.s", ack="client")
                with pytest.raises(RefusedError):
                    await ops.ask(SELECT, name="alice.s", where="n > 2")
            tick = await writer.publish("t.x", {"n": 3})
            await until(lambda: node.runtime.broker.known_from("alice.s", "main") is not None)
            await ops.ask(SELECT, name="alice.s", where="n > 2")
            await ops.ask(SEEK, name="alice.s", to="now")
            await ops.ask(REMOVE, name="alice.s")
            with pytest.raises(RefusedError):
                await ops.ask(REMOVE, name="alice.s")
        connected, selected, sought, removed, missing = lines(tmp_path / "data", "answered")
        assert {each["who"] for each in (connected, selected, sought, removed, missing)} == {"ops"}
        assert (connected["outcome"], connected["code"]) == ("refused", "taken")
        assert connected["before"]["selector"] == "n > 1 AND n <= 5"
        assert "after" not in connected
        assert (selected["question"], selected["name"], selected["outcome"]) == ("select", "alice.s", "done")
        assert selected["before"]["selector"] == "n > 1 AND n <= 5"
        assert selected["after"]["selector"] == "n > 2 AND n <= 5"
        assert (sought["question"], sought["before"]) == ("seek", selected["after"])
        assert sought["after"]["checkpoint"] != sought["before"]["checkpoint"]
        assert (removed["question"], removed["outcome"]) == ("remove", "done")
        assert removed["before"] == sought["after"] | {"topic": "t.x", "owner": "alice"}
        assert "after" not in removed
        assert (missing["question"], missing["outcome"], missing["code"]) == ("remove", "refused", "unknown")
        assert "before" not in missing
        assert tick is not None

    play(story)


def test_changes_of_the_process_are_in_the_audit_log_with_what_came_of_them_and_without_secrets(
    tmp_path: Path,
) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        async with client_of(node, "ops") as ops:
            await ops.ask(SNAPSHOT)
            text = (await ops.ask(ACCESS)).text
            with pytest.raises(RefusedError, match="a secret"):
                await ops.ask(PROPOSE_ACCESS, text=f"{text}[roles.x]\nadminister = 'a secret'\n", base=0)
            await ops.ask(PROPOSE_ACCESS, text=text + "# more\n", base=0)
        found = lines(tmp_path / "data", "answered")
        assert [(each["question"], each["outcome"]) for each in found] == [
            ("snapshot", "done"),
            ("propose_access", "refused"),
            ("propose_access", "done"),
        ]
        assert found[1]["code"] == "frame"
        assert "a secret" not in (tmp_path / "data" / "audit.log").read_text()

    play(story)


def test_who_reads_the_verifiers_of_the_access_document_is_in_the_audit_log(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        async with client_of(node, "ops") as ops, client_of(node, "alice") as alice:
            assert "SCRAM-SHA-256$" in (await ops.ask(ACCESS)).text
            with pytest.raises(RefusedError):
                await alice.ask(ACCESS)
        read, denied = lines(tmp_path / "data", "read", "denied")
        assert (read["what"], read["who"], read["question"]) == ("read", "ops", "access")
        assert read["address"] == "127.0.0.1"
        assert (denied["what"], denied["who"], denied["request"]) == ("denied", "alice", "ask")
        assert "SCRAM-SHA-256$" not in (tmp_path / "data" / "audit.log").read_text()

    play(story)


def test_a_lease_that_is_denied_is_in_the_audit_log(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        await parked(node, await logged_in(stage, node, "alice"))
        bob = await logged_in(stage, node, "bob")
        await bob.say(Lease(60, "127.0.0.1:9", "k" * 32))
        assert (await bob.hear(Refused)).code == "denied"
        await bob.say(Ask(1, "status", "{}"))
        assert (await bob.hear(Refused)).code == "denied"
        found = lines(tmp_path / "data", "denied")
        assert [(each["who"], each["request"]) for each in found] == [("bob", "lease"), ("bob", "ask")]

    play(story)
