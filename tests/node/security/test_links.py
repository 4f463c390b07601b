"""Links between brokers: nobody takes a broker's place without the key or the certificate of the overlay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.node.security.secured import authority_in, broker_files, client_of, document
from tests.node.speech import Stage, play
from tests.ports import free_ports
from tests.waiting import until
from tidemark.node.config.loading import load
from tidemark.node.node import Node
from tidemark.node.security.link_proof import LinkKey, LinkProving
from tidemark.node.topology.text import to_text
from tidemark.wire.answers import PROPOSE, PROPOSE_ACCESS
from tidemark.wire.frames import Hello, Overlay, Refused
from tidemark.wire.security.frames import Access, Challenge, LinkProof


async def two(stage: Stage, path: Path, **of: dict[str, str]) -> tuple[Node, Node]:
    """Two linked brokers, each with its own options."""
    ports = free_ports(2)
    file = path / "overlay.toml"
    file.write_text(
        "".join(
            f'[brokers.{name}]\nlisten = "127.0.0.1:{port}"\ncell = "{name}"\n{more}'
            for name, port, more in zip("ab", ports, ('pubends = ["main"]\n', ""), strict=True)
        )
        + '[bundles.ab]\ncells = ["a", "b"]\n'
    )
    nodes = []
    for name in "ab":
        options = {key.replace("__", "."): value for key, value in of[name].items()}
        options |= {"storage.data_dir": str(path / name), "http.listen": ""}
        nodes.append(await stage.node(load(file, broker=name, options=options)))
    return nodes[0], nodes[1]


def key_file(path: Path, name: str, key: str) -> dict[str, str]:
    (path / name).write_text(key)
    return {"security__overlay_key": str(path / name)}


def test_brokers_with_the_same_key_link_and_others_do_not(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        key = key_file(tmp_path, "key", "0123456789abcdef0123456789abcdef")
        a, b = await two(stage, tmp_path, a=key, b=key)
        await until(lambda: "b" in a.runtime.peers and "a" in b.runtime.peers)
        await stage.stop(b)
        other = key_file(tmp_path, "other", "another key of the same length!!")
        options = {
            "storage.data_dir": str(tmp_path / "evil"),
            "http.listen": "",
            "security.overlay_key": other["security__overlay_key"],
        }
        evil = await stage.node(load(tmp_path / "overlay.toml", broker="b", options=options))
        await until(lambda: a.server.logins_failed + evil.server.logins_failed > 0)
        assert "b" not in a.runtime.peers
        assert "a" not in evil.runtime.peers

    play(story)


def test_a_hello_alone_displaces_nobody_and_topologies_of_strangers_do_not_count(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        key = key_file(tmp_path, "key", "0123456789abcdef0123456789abcdef")
        a, b = await two(stage, tmp_path, a=key, b=key)
        await until(lambda: "b" in a.runtime.peers and "a" in b.runtime.peers)
        link = a.runtime.peers["b"]
        before = a.topology.version
        for frames in (
            [Hello("b", 1_000)],
            [Hello("b", 1_000), Overlay(2**40, "x", "[brokers.b]")],
            [Hello("b", 1_000), LinkProof("0" * 64)],
            [Hello("b", 1_000), Challenge("0" * 64), LinkProof("0" * 64)],
            [Overlay(2**40, "x", "[brokers.b]")],
            [LinkProof("0" * 64)],
        ):
            stranger = await stage.stranger(a)
            await stranger.say(*frames)
            if len(frames) > 1 or not isinstance(frames[0], Hello):
                assert (await stranger.hear(Refused)).code in ("login", "frame")
            else:
                await stranger.hear(Challenge)
            await stranger.close()
        assert a.runtime.peers["b"] is link
        assert a.topology.version == before

    play(story)


@pytest.mark.parametrize("frame", [Overlay(2**40, "x", "[brokers.b]"), Overlay(2**40, "x")], ids=repr)
def test_a_neighbour_with_the_key_cannot_tell_of_a_version_to_which_nobody_comes(
    tmp_path: Path, frame: Overlay
) -> None:
    async def story(stage: Stage) -> None:
        key = key_file(tmp_path, "key", "0123456789abcdef0123456789abcdef")
        a, b = await two(stage, tmp_path, a=key, b=key)
        await until(lambda: "b" in a.runtime.peers and "a" in b.runtime.peers)
        before = a.topology.version
        b.server.spread(frame)
        await until(lambda: a.runtime.broker.counters["neighbours_refused"] > 0)
        assert a.topology.version == before
        await until(lambda: "b" in a.runtime.peers and "a" in b.runtime.peers)

    play(story)


def test_a_neighbour_with_the_key_cannot_tell_of_an_access_document_that_leaps(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    authority, ca = authority_in(tmp_path / "ca")
    (tmp_path / "access.toml").write_text(document())
    trust = {
        "security__authority": str(ca),
        "security__mode": "accounts",
        "security__access": str(tmp_path / "access.toml"),
    }

    async def story(stage: Stage) -> None:
        files = {name: broker_files(authority, tmp_path, name) | trust for name in "ab"}
        a, b = await two(stage, tmp_path, **files)
        await until(lambda: "b" in a.runtime.peers and "a" in b.runtime.peers)
        b.server.spread(Access(2**40, "x", document() + "# mine\n"))
        await until(lambda: a.runtime.broker.counters["neighbours_refused"] > 0)
        assert a.access is not None
        assert a.access.document.version == 0

    play(story)


def test_the_audit_log_of_every_broker_has_a_topology_before_and_after_a_change(tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text(document())
    options = key_file(tmp_path, "key", "0123456789abcdef0123456789abcdef") | {
        "security__mode": "accounts",
        "security__access": str(tmp_path / "access.toml"),
    }

    async def story(stage: Stage) -> None:
        a, b = await two(stage, tmp_path, a=options, b=options)
        await until(lambda: "b" in a.runtime.peers and "a" in b.runtime.peers)
        before = a.topology
        async with client_of(a, "ops") as ops:
            drained = to_text(before).replace("[brokers.b]", "[brokers.b]\ndraining = true")
            await ops.ask(PROPOSE, text=drained, base=before.version)
        await until(lambda: b.topology.version == before.version + 1)
        for node, name in ((a, "a"), (b, "b")):
            lines = map(json.loads, (tmp_path / name / "audit.log").read_text().splitlines())
            (changed,) = [each for each in lines if each["what"] == "topology changed"]
            assert (changed["before"], changed["digest"]) == (before.digest, node.topology.digest)
            assert changed["version"] == before.version + 1

    play(story)


def test_a_user_at_another_broker_cannot_take_a_subscription_of_somebody_else(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text(document().replace('durable = ["{user}.*"]', 'durable = ["*"]'))
    options = {
        "security__mode": "accounts",
        "security__access": str(access),
        **key_file(tmp_path, "key", "0123456789abcdef0123456789abcdef"),
    }

    async def story(stage: Stage) -> None:
        a, b = await two(stage, tmp_path, a=options, b=options)
        await until(lambda: "b" in a.runtime.peers and "a" in b.runtime.peers)
        async with (
            client_of(a, "paula") as paula,
            client_of(a, "alice") as alice,
            client_of(b, "bob") as bob,
        ):
            await paula.create_topic("t.x", "[n: int]")
            mine = await alice.subscribe("t.x", durable="shared")
            await until(lambda: "main" in mine.checkpoint)
            theirs = await bob.subscribe("t.x", durable="shared", start=mine.checkpoint)
            await until(lambda: a.runtime.broker.counters["claims_of_others"] > 0)
            assert a.runtime.broker.hosts("shared")
            await paula.publish("t.x", {"n": 1})
            assert (await anext(mine))["n"] == (await anext(theirs))["n"] == 1

    play(story)


def test_who_reaches_two_brokers_cannot_have_one_prove_what_the_other_asks(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        key = key_file(tmp_path, "key", "0123456789abcdef0123456789abcdef")
        a, b = await two(stage, tmp_path, a=key, b=key)
        await until(lambda: "b" in a.runtime.peers and "a" in b.runtime.peers)
        links = a.runtime.peers["b"], b.runtime.peers["a"]
        as_b, as_a = await stage.stranger(a), await stage.stranger(b)
        await as_b.say(Hello("b", 1_000))
        await as_a.say(Hello("a", 1_000))
        of_a, of_b = await as_b.hear(Challenge), await as_a.hear(Challenge)
        # Each broker is asked what the other one has asked.
        await as_b.say(Challenge(of_b.nonce))
        await as_a.say(Challenge(of_a.nonce))
        for speaker, other in ((as_a, as_b), (as_b, as_a)):
            await speaker.say(LinkProof("0" * 64))
            assert (await speaker.hear(Refused)).code == "login"
            # What it proved, if anything, is what the other one wants to hear.
            await other.say(*(each for each in speaker.unread if isinstance(each, LinkProof)))
        assert (a.runtime.peers["b"], b.runtime.peers["a"]) == links

    play(story)


def test_a_proof_is_good_for_one_connection_one_prover_and_one_verifier() -> None:
    key = LinkKey(b"k" * 32)
    mine, theirs = LinkProving(key, is_caller=False), LinkProving(key, is_caller=True)
    theirs.challenged(mine.nonce)
    proof = theirs.proof("b", "a")
    assert not mine.check(proof, "b", "a"), "its challenge has not come"
    mine.challenged(theirs.nonce)
    assert mine.check(proof, "b", "a")
    assert theirs.check(mine.proof("a", "b"), "a", "b")
    assert not LinkProving(key, is_caller=False).check(proof, "b", "a")
    both_called = LinkProving(key, is_caller=False), LinkProving(key, is_caller=False)
    both_called[0].challenged(both_called[1].nonce)
    both_called[1].challenged(both_called[0].nonce)
    assert not both_called[0].check(both_called[1].proof("b", "a"), "b", "a"), "nobody has called"
    reflected = LinkProving(key, is_caller=True)
    reflected.challenged(reflected.nonce)
    echo = reflected.proof("a", "b")
    assert not reflected.check(echo, "a", "a")
    assert not reflected.check(echo, "b", "a")
    assert "k" * 8 not in repr(key)


def test_certificates_prove_links_and_only_the_name_in_them(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    authority, ca = authority_in(tmp_path / "ca")
    trust = {"security__authority": str(ca), "security__mode": "accounts"}
    (tmp_path / "access.toml").write_text(document())
    trust["security__access"] = str(tmp_path / "access.toml")

    async def story(stage: Stage) -> None:
        files = {name: broker_files(authority, tmp_path, name) | trust for name in "ab"}
        a, b = await two(stage, tmp_path, **files)
        await until(lambda: "b" in a.runtime.peers and "a" in b.runtime.peers)
        assert a.access is not None
        assert b.access is not None
        await a.access.propose(document() + "# changed\n", 0)
        await until(lambda: b.access is not None and b.access.document.version == 1)
        assert PROPOSE_ACCESS.right == "administer"
        await stage.stop(b)
        wrong = broker_files(authority, tmp_path, "c") | trust
        options = {key.replace("__", "."): value for key, value in wrong.items()}
        options |= {"storage.data_dir": str(tmp_path / "evil"), "http.listen": ""}
        evil = await stage.node(load(tmp_path / "overlay.toml", broker="b", options=options))
        await until(lambda: a.server.logins_failed + evil.server.logins_failed > 0)
        assert "b" not in a.runtime.peers

    play(story)
