"""Accounts on a running broker: who gets in, who sees what, and what is written down about it."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import config_at
from tests.node.security.secured import PASSWORDS, client_of, document, secured
from tests.node.speech import Stage, play
from tests.waiting import until
from tidemark.client.client import connect
from tidemark.errors import ConfigError, RefusedError
from tidemark.node.security.audit_log import LINES_AT_ONCE, SECONDS_A_LINE, AuditLog
from tidemark.node.security.login import FAILED
from tidemark.node.security.login_limits import LoginLimits
from tidemark.ticks import CheckpointToken
from tidemark.wire.answers import ACCESS, ARCHIVE, FORGET_HOST, LET_GO, PROPOSE_ACCESS
from tidemark.wire.frames import Connect, Publish, Refused, Welcome
from tidemark.wire.security.frames import Login, Proof

SCHEMA = "[n: int]"


def test_a_subscriber_sees_what_its_rule_shows_and_a_stranger_nothing(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        async with client_of(node, "paula") as writer, client_of(node, "alice") as reader:
            await writer.create_topic("t.x", SCHEMA)
            async with reader.subscribe("t.>", where="n > 1", durable="alice.s") as subscription:
                for n in (1, 2, 6, 5):
                    await writer.publish("t.x", {"n": n})
                seen = [(await anext(subscription))["n"] for _ in range(2)]
            assert seen == [2, 5]
            with pytest.raises(RefusedError) as caught:
                await reader.publish("t.x", {"n": 1})
            assert caught.value.code == "denied"
            with pytest.raises(RefusedError) as caught:
                await reader.ask("status")
            assert caught.value.code == "denied"

    play(story)


def test_a_wrong_password_an_unknown_user_and_no_user_are_refused_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMARK_USER", raising=False)
    monkeypatch.delenv("TIDEMARK_PASSWORD_FILE", raising=False)

    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        url = f"tidemark://{node.address}"
        for user, password in (("alice", "wrong"), ("nobody", PASSWORDS["alice"])):
            with pytest.raises(RefusedError) as caught:
                await connect(url, user=user, password=password)
            assert caught.value.code == "login"
            assert caught.value.reason == FAILED
        with pytest.raises(RefusedError, match="connect with user and password"):
            await connect(url)

    play(story)


def test_a_client_of_before_is_told_to_be_updated(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        speaker = await stage.stranger(node)
        await speaker.say(Connect("old", 1, 3))
        refused = await speaker.hear(Refused)
        assert refused.code == "login"
        assert "too old to log in" in refused.reason

    play(story)


def test_nothing_but_a_proof_is_heard_before_the_login(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        speaker = await stage.stranger(node)
        await speaker.say(Connect("x", 1, 4))
        assert (await speaker.hear(Login)).mechanisms == ("SCRAM-SHA-256",)
        from tests.node.speech import events

        await speaker.say(Publish("main", "p", 1, events(1, 1)))
        assert (await speaker.hear(Refused)).code == "frame"
        assert await speaker.is_closed()
        for payload in ("", "n,,n=alice,r=", "y" * 5_000, "n,,n=\x00,r=x", "p=tls-unique,,n=alice,r=x"):
            other = await stage.stranger(node)
            await other.say(Connect("x", 1, 4))
            await other.hear(Login)
            await other.say(Proof("SCRAM-SHA-256", payload), Proof("SCRAM-SHA-256", payload))
            assert (await other.hear(Refused)).code == "login"
        assert not any(isinstance(each, Welcome) for each in speaker.unread)

    play(story)


def test_a_changed_document_is_on_disk_holds_at_once_and_outlives_a_restart(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        async with client_of(node, "ops") as ops, client_of(node, "paula") as writer:
            await writer.create_topic("t.x", SCHEMA)
            async with client_of(node, "alice") as reader, reader.subscribe("t.>", durable="alice.s") as sub:
                await writer.publish("t.x", {"n": 4})
                assert (await anext(sub))["n"] == 4
                found = await ops.ask(ACCESS)
                tighter = found.text.replace("most = 5", "most = 3")
                assert (await ops.ask(PROPOSE_ACCESS, text=tighter, base=found.version)).version == 1
                with pytest.raises(RefusedError) as caught:
                    await ops.ask(PROPOSE_ACCESS, text=tighter + "\n", base=found.version)
                assert caught.value.code == "version"
                await writer.publish_many("t.x", [{"n": 4}, {"n": 3}])
                assert (await anext(sub))["n"] == 3
        await stage.stop(node)
        again = await secured(stage, tmp_path)
        assert again.access is not None
        assert again.access.document.version == 1
        assert (tmp_path / "data" / "access.toml").stat().st_mode & 0o777 == 0o600

    play(story)


def test_a_document_without_an_administrator_or_with_a_mistake_is_not_taken(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        async with client_of(node, "ops") as ops:
            for text, reason in (
                (document().replace("administer = true", ""), "no role of the document administers"),
                (document().replace('["operator"]', '["writer"]'), r"no user administers.*role 'operator'"),
                ("[roles.x]\nread = 5", "is not a table of selectors"),
            ):
                with pytest.raises(RefusedError, match=reason):
                    await ops.ask(PROPOSE_ACCESS, text=text, base=0)

    play(story)


def test_a_user_that_is_removed_is_disconnected_and_not_let_in_again(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        async with client_of(node, "bob") as bob, client_of(node, "ops") as ops:
            assert await bob.ask("topics") == []
            found = await ops.ask(ACCESS)
            without = found.text.replace("[users.bob]", "[users.someone-else]")
            await ops.ask(PROPOSE_ACCESS, text=without, base=0)
            await until(lambda: node.server.logins_failed > 0)
            with pytest.raises(RefusedError):
                await client_of(node, "bob")

    play(story)


def test_the_audit_log_says_who_came_and_what_was_refused_and_no_secret(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        async with client_of(node, "alice") as alice, client_of(node, "ops") as ops:
            with pytest.raises(RefusedError):
                await alice.publish("t.x", {"n": 1})
            with pytest.raises(RefusedError):
                await connect(f"tidemark://{node.address}", user="alice", password="wrong")
            found = await ops.ask(ACCESS)
            await ops.ask(PROPOSE_ACCESS, text=found.text + "\n", base=0)
        async with client_of(node, "paula") as paula, client_of(node, "bob") as bob:
            await paula.create_topic("t.x", "[n: int]")
            with pytest.raises(RefusedError, match="may not declare or remove the topic"):
                await bob.remove_topic("t.x")
            await paula.remove_topic("t.x")
        path = tmp_path / "data" / "audit.log"
        text = path.read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        whats = [each["what"] for each in lines]
        assert {"login", "login failed", "denied", "access changed"} <= {*whats}
        assert next(each for each in lines if each["what"] == "denied")["who"] == "alice"
        removals = [each for each in lines if each.get("question") == "remove topic"]
        assert [(each["who"], each["topic"]) for each in removals] == [("bob", "t.x"), ("paula", "t.x")]
        assert path.stat().st_mode & 0o777 == 0o600
        for secret in (*PASSWORDS.values(), "wrong", "SCRAM-SHA-256$"):
            assert secret not in text

    play(story)


def test_the_audit_log_says_who_had_brokers_let_go_what_was_erased_and_by_which_record(
    tmp_path: Path,
) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        async with client_of(node, "ops") as ops:
            with pytest.raises(RefusedError, match="is not hosted here"):
                await ops.ask(LET_GO, token=CheckpointToken({"p": 7}).text(), erasure="0f1e2d3c4b5a")
        lines = [json.loads(line) for line in (tmp_path / "data" / "audit.log").read_text().splitlines()]
        asked = [each for each in lines if each.get("question") == "let_go"]
        assert [(each["what"], each["who"], each["erasure"]) for each in asked] == [
            ("asked", "ops", "0f1e2d3c4b5a"),
            ("answered", "ops", "0f1e2d3c4b5a"),
        ]
        assert CheckpointToken.parse(asked[0]["token"]) == CheckpointToken({"p": 7})

    play(story)


def test_an_audit_log_is_rotated_and_a_full_disk_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.node.security.audit_log.FILE_BYTES_MAX", 300)
    log = AuditLog(tmp_path / "audit.log", "b")
    for number in range(60):
        log.write("x", number=number)
    log.close()
    assert len(list(tmp_path.glob("audit.log*"))) == 9
    broken = AuditLog(tmp_path / "missing" / "audit.log", "b")
    broken.write("x")


def test_nobody_writes_somebody_elses_name_into_the_audit_log(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        forged: dict[str, Any] = {
            "who": "alice",
            "address": "10.0.0.1",
            "time": "never",
            "host": "gone\n{}",
            "x" * 5_000: 1,
        }
        async with client_of(node, "ops") as ops:
            with pytest.raises(RefusedError):
                await ops.ask(FORGET_HOST, **forged)
        text = (tmp_path / "data" / "audit.log").read_text()
        (line,) = [each for each in map(json.loads, text.splitlines()) if each["what"] == "asked"]
        assert (line["who"], line["address"], line["host"]) == ("ops", "127.0.0.1", "gone\n{}")
        assert line["time"] != "never"
        assert len(json.dumps(line)) < 1_000

    play(story)


def test_who_keeps_failing_pushes_nothing_out_of_the_audit_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.node.security.audit_log.FILE_BYTES_MAX", 300_000)
    now = [0.0]
    log = AuditLog(tmp_path / "audit.log", "b", lambda: now[0])
    log.write("asked", who="ops", question="remove", name="d")
    for number in range(50_000):
        log.write("login failed", address=f"10.0.{number % 250}.1", who=f"user-{number}", cause="x" * 900)
    now[0] += 3 * SECONDS_A_LINE
    log.write("login failed", address="10.0.0.1", who="alice", cause="wrong")
    log.write("login", address="10.0.0.1", who="alice")
    log.close()
    files = sorted(tmp_path.glob("audit.log*"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [each["name"] for each in lines if each["what"] == "asked"] == ["d"]
    assert sum(each["what"] == "login failed" for each in lines) == LINES_AT_ONCE + 1
    assert [each["left_out"] for each in lines if "left_out" in each] == [50_000 - LINES_AT_ONCE]
    assert sum(each["what"] == "login" for each in lines) == 1


@pytest.mark.open_broker(reason="an open broker does not listen where others can reach it")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"broker__listen": "0.0.0.0:0"}, "asks nobody who they are"),
        ({"http__listen": "0.0.0.0:0"}, "asks nobody who they are"),
        ({"security__mode": "accounts"}, "no document says who may do what"),
        ({"security__mode": "accounts", "security__access": "missing.toml"}, "No such file"),
        ({"security__certificate": "missing.pem"}, "cannot be used"),
        ({"security__overlay_key": "missing.key"}, "cannot be read"),
    ],
)
def test_a_broker_that_cannot_be_sure_does_not_start(
    tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(ConfigError, match=reason):
            await stage.node(config_at(tmp_path / "data", **options))

    play(story)


def test_an_open_network_can_be_allowed_by_name(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        options = {"http__listen": "", "security__allow_open_network": "true"}
        await stage.node(config_at(tmp_path / "data", broker__listen="0.0.0.0:0", **options))

    play(story)


def test_a_bearer_token_logs_in_is_renewed_and_expires(tmp_path: Path) -> None:
    jwt = pytest.importorskip("jwt")
    secret = "s" * 40
    (tmp_path / "key").write_text(secret)
    made = {"count": 0}

    def token(**claims: object) -> str:
        made["count"] += 1
        return str(
            jwt.encode({"sub": "zoe", "aud": "tm", "exp": time.time() + 600, **claims}, secret, "HS256")
        )

    async def story(stage: Stage) -> None:
        options = {"bearer_keys": str(tmp_path / "key"), "bearer_audience": "tm", "bearer_roles": "roles"}
        node = await secured(
            stage, tmp_path / "b", **{f"security__{name}": value for name, value in options.items()}
        )
        url = f"tidemark://{node.address}"
        async with connect(url, token=token(roles=["writer"], most=3)) as zoe:
            await zoe.create_topic("t.x", SCHEMA)
            await zoe.publish("t.x", {"n": 1})
        for wrong in (
            token(aud="other"),
            token(exp=time.time() - 100),
            str(jwt.encode({"sub": "zoe", "aud": "tm", "exp": time.time() + 60}, "x" * 40, "HS256")),
            str(jwt.encode({"sub": "zoe", "aud": "tm"}, secret, "HS256")),
            str(jwt.encode({"sub": "zoe", "aud": "tm", "exp": time.time() + 60}, "", "none")),
            "no token",
        ):
            with pytest.raises(RefusedError) as caught:
                await connect(url, token=wrong)
            assert caught.value.code == "login"
            node.server.login_limits = LoginLimits(time.monotonic)
        before = made["count"]
        async with connect(url, token=lambda: token(roles=["writer"], exp=time.time() + 1)):
            await until(lambda: made["count"] > before + 3)
        async with connect(url, token=token(roles=["writer"], exp=time.time() + 600)):
            expiring = next(each for each in node.server.connections if each.expires_at is not None)
            expiring.expires_at = 1.0
            await until(lambda: expiring not in node.server.connections)

    play(story)


def test_keys_of_bearer_tokens_are_read_again_when_their_file_changes(tmp_path: Path) -> None:
    jwt = pytest.importorskip("jwt")
    older, newer, file = "o" * 40, "n" * 40, tmp_path / "key"
    file.write_text(older)

    def token(secret: str) -> str:
        claims = {"sub": "zoe", "exp": time.time() + 600, "roles": ["operator"]}
        return str(jwt.encode(claims, secret, "HS256"))

    async def story(stage: Stage) -> None:
        options = {"security__bearer_keys": str(file), "security__bearer_roles": "roles"}
        node = await secured(stage, tmp_path / "b", **options)
        url = f"tidemark://{node.address}"
        async with connect(url, token=token(older)) as first:
            file.write_text(newer)
            node.security.look()
            async with connect(url, token=token(newer)):
                pass
            with pytest.raises(RefusedError):
                await connect(url, token=token(older))
            file.write_text("too short")
            node.security.look()
            async with connect(url, token=token(newer)):
                pass
            assert (await first.ask("status"))["broker"] == "tidemark"

    play(story)


def test_parallel_logins_do_not_disturb_each_other(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        clients = await asyncio.gather(
            *(client_of(node, name).open() for name in ("alice", "bob", "ops") * 5)
        )
        assert len(node.runtime.clients) == 15
        for client in clients:
            await client.close()

    play(story)


def test_where_the_archive_is_is_told_to_those_who_may_see_everything(tmp_path: Path) -> None:
    users = {
        "alice": 'roles = ["reader"]\nclaims = { most = 5 }',
        "bob": 'roles = ["all"]',
        "paula": 'roles = ["all", "blind"]',
        "ops": 'roles = ["operator"]',
    }
    more = '[roles.all]\nsubscribe = [">"]\n[roles.blind]\nhide."t.>" = ["n"]\n'

    async def story(stage: Stage) -> None:
        archived = {"retention__archive": "true", "archive__path": str(tmp_path / "archive")}
        node = await secured(stage, tmp_path, text=document(users) + more, **archived)
        for name in users:
            async with client_of(node, name) as client:
                found = await client.ask(ARCHIVE)
                assert found == ((str(tmp_path / "archive"),) if name == "bob" else ()), name

    play(story)
