"""TLS: versions, names, expired and swapped certificates, those of clients, and certificates read again."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.node.security.secured import (
    PASSWORDS,
    authority_in,
    broker_files,
    client_of,
    document,
    secured,
)
from tests.node.speech import Stage, play
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, until
from tidemark import listen
from tidemark.client.client import connect
from tidemark.errors import NotConnectedError, RefusedError
from tidemark.node import server as server_module
from tidemark.node.node import Node
from tidemark.node.security import handshakes as handshakes_module
from tidemark.node.security.certificates import describe, issue
from tidemark.node.security.tls import BROKER_URI, USER_URI, name_in
from tidemark.wire.codec import encode
from tidemark.wire.frames import Pushing

pytest.importorskip("cryptography")


def test_clients_talk_over_tls_and_know_the_broker_by_its_certificate(tmp_path: Path) -> None:
    authority, ca = authority_in(tmp_path / "ca")

    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path / "b", **broker_files(authority, tmp_path, "b"))
        async with client_of(node, "paula", scheme="tidemark+tls", ca=str(ca)) as tm:
            await tm.create_topic("t.x", "[n: int]")
            await tm.publish_many("t.x", [{"n": n} for n in range(1_000)])
        _, other = authority_in(tmp_path / "other")
        with pytest.raises(ssl.SSLCertVerificationError):
            await client_of(node, "paula", scheme="tidemark+tls", ca=str(other))

    play(story)


def test_a_certificate_for_another_host_or_one_that_has_expired_is_not_believed(tmp_path: Path) -> None:
    authority, ca = authority_in(tmp_path / "ca")

    async def story(stage: Stage) -> None:
        for files in (
            broker_files(authority, tmp_path, "b", host="example.org"),
            broker_files(authority, tmp_path, "b", days=-1),
        ):
            node = await secured(stage, tmp_path / files["security__certificate"].replace("/", "_"), **files)
            with pytest.raises(ssl.SSLCertVerificationError):
                await client_of(node, "paula", scheme="tidemark+tls", ca=str(ca))

    play(story)


def test_a_client_certificate_names_the_user_and_one_of_another_authority_nobody(tmp_path: Path) -> None:
    authority, ca = authority_in(tmp_path / "ca")
    stranger, _ = authority_in(tmp_path / "stranger")

    async def story(stage: Stage) -> None:
        options = broker_files(authority, tmp_path, "b") | {
            "security__authority": str(ca),
            "security__client_certificates": "required",
        }
        node = await secured(stage, tmp_path / "b", **options)
        url = f"tidemark+tls://{node.address}"
        for signer, user in ((authority, "ops"), (authority, "nobody"), (stranger, "ops")):
            made = issue(signer, user, user=user)
            files = tmp_path / f"{user}-{id(signer)}"
            made.save(files / "cert.pem", files / "key.pem")
            login = {"ca": str(ca), "certificate": str(files / "cert.pem"), "key": str(files / "key.pem")}
            if signer is authority and user == "ops":
                async with connect(url, **login) as tm:  # type: ignore[arg-type]
                    assert (await tm.ask("status"))["broker"] == "tidemark"
            else:
                # A broker that does not know the authority ends the connection without a word.
                with pytest.raises((RefusedError, NotConnectedError, OSError)):
                    await connect(url, connect_timeout=1.0, **login)  # type: ignore[arg-type]

    play(story)


@pytest.mark.parametrize("rule", ["cn", "dns", "email", "uri"])
def test_the_certificate_of_a_broker_names_no_user(rule: str) -> None:
    names = (("DNS", "ops"), ("email", "ops"), ("URI", BROKER_URI + "ops"))
    certificate = {"subject": ((("commonName", "ops"),),), "subjectAltName": names}
    assert name_in(certificate, rule) == ""
    of_user = {**certificate, "subjectAltName": (*names[:2], ("URI", USER_URI + "ops"))}
    assert name_in(of_user, rule) == "ops"


def test_certificates_are_read_again_and_connections_go_on(tmp_path: Path) -> None:
    authority, ca = authority_in(tmp_path / "ca")
    newer, newer_ca = authority_in(tmp_path / "newer")

    async def story(stage: Stage) -> None:
        files = broker_files(authority, tmp_path, "b")
        node = await secured(stage, tmp_path / "b", **files)
        async with client_of(node, "ops", scheme="tidemark+tls", ca=str(ca)) as before:
            made = broker_files(newer, tmp_path / "made", "b")
            for name in ("security__certificate", "security__key"):
                shutil.copy(made[name], files[name])
            node.reload()
            async with client_of(node, "ops", scheme="tidemark+tls", ca=str(newer_ca)) as after:
                assert (await after.ask("status"))["broker"] == "tidemark"
            assert (await before.ask("status"))["broker"] == "tidemark"
            Path(files["security__certificate"]).write_text("broken")
            node.reload()
            async with client_of(node, "ops", scheme="tidemark+tls", ca=str(newer_ca)) as still:
                assert (await still.ask("status"))["broker"] == "tidemark"

    play(story)


def test_a_process_reads_certificates_again_when_they_change_and_on_sighup(tmp_path: Path) -> None:
    authority, ca = authority_in(tmp_path / "ca")
    newer, newer_ca = authority_in(tmp_path / "newer")
    files = broker_files(authority, tmp_path, "b")
    said = tmp_path / "said"
    (port,) = free_ports(1)
    (tmp_path / "access.toml").write_text(document())
    settings = {key.replace("__", "."): value for key, value in files.items()} | {
        "storage.data_dir": str(tmp_path / "data"),
        "broker.listen": f"127.0.0.1:{port}",
        "http.listen": "",
        "security.mode": "accounts",
        "security.access": str(tmp_path / "access.toml"),
    }
    arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    login = {"user": "ops", "password": PASSWORDS["ops"], "connect_timeout": PATIENCE_SECONDS}

    def times_read() -> int:
        return said.read_text().count("certificates were read again")

    async def story(_: Stage) -> None:
        url = f"tidemark+tls://127.0.0.1:{port}"
        await until(lambda: '"ready"' in said.read_text())
        async with connect(url, ca=str(ca), **login) as before:  # type: ignore[arg-type]
            made = broker_files(newer, tmp_path / "made", "b")
            for name in ("security__key", "security__certificate"):
                shutil.copy(made[name], files[name])
            await until(lambda: times_read() == 1)
            process.send_signal(signal.SIGHUP)
            await until(lambda: times_read() == 2)
            async with connect(url, ca=str(newer_ca), **login) as after:  # type: ignore[arg-type]
                assert (await after.ask("status"))["broker"] == "tidemark"
            assert (await before.ask("status"))["broker"] == "tidemark"

    with said.open("w") as stderr:
        process = subprocess.Popen([sys.executable, "-m", "tidemark.node", *arguments], stderr=stderr)
    try:
        play(story)
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def test_an_authority_that_was_taken_out_vouches_for_nobody_any_more(tmp_path: Path) -> None:
    authority, ca = authority_in(tmp_path / "ca")
    newer, newer_ca = authority_in(tmp_path / "newer")
    logins = {}
    for signer, name in ((authority, "older"), (newer, "newer")):
        made = issue(signer, "ops", user="ops")
        made.save(tmp_path / name / "cert.pem", tmp_path / name / "key.pem")
        logins[name] = {
            "ca": str(ca),
            "certificate": str(tmp_path / name / "cert.pem"),
            "key": str(tmp_path / name / "key.pem"),
        }

    async def story(stage: Stage) -> None:
        trusted = tmp_path / "trusted.pem"
        shutil.copy(ca, trusted)
        options = broker_files(authority, tmp_path, "b") | {
            "security__authority": str(trusted),
            "security__client_certificates": "required",
        }
        node = await secured(stage, tmp_path / "b", **options)
        url = f"tidemark+tls://{node.address}"
        async with connect(url, **logins["older"]) as first:  # type: ignore[arg-type]
            shutil.copy(newer_ca, trusted)
            node.security.look()
            async with connect(url, **logins["newer"]) as second:  # type: ignore[arg-type]
                assert (await second.ask("status"))["broker"] == "tidemark"
            with pytest.raises((RefusedError, NotConnectedError, OSError)):
                await connect(url, connect_timeout=1.0, **logins["older"])  # type: ignore[arg-type]
            assert (await first.ask("status"))["broker"] == "tidemark"

    play(story)


async def handshake(node: Node, ca: Path, *more: str) -> str:
    """What openssl says of a handshake, with the name of the broker's host checked."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: apt-get install openssl")
    command = ["openssl", "s_client", "-connect", str(node.address), "-CAfile", str(ca), *more]

    def run() -> str:
        done = subprocess.run(
            command, input="", capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        return done.stdout + done.stderr

    return await asyncio.to_thread(run)


NAMED = ("-verify_ip", "127.0.0.1")


def test_openssl_agrees_on_versions_ciphers_and_names(tmp_path: Path) -> None:
    authority, ca = authority_in(tmp_path / "ca")

    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path / "b", **broker_files(authority, tmp_path, "b"))
        said = await handshake(node, ca, "-tls1_3", *NAMED)
        assert "TLSv1.3" in said
        assert "Verify return code: 0 (ok)" in said
        for cipher in ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"):
            assert f"Cipher is {cipher}" in await handshake(node, ca, "-ciphersuites", cipher)
        for refused in (
            ["-tls1_2"],
            ["-tls1_2", "-cipher", "ALL:eNULL:@SECLEVEL=0"],
            ["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_SHA256"],
        ):
            assert "no peer certificate available" in await handshake(node, ca, *refused)
        said = await handshake(node, ca, "-verify_hostname", "broker.example", "-verify_return_error")
        assert "hostname mismatch" in said

    play(story)


def test_openssl_finds_expired_and_swapped_certificates(tmp_path: Path) -> None:
    authority, ca = authority_in(tmp_path / "ca")
    stranger, _ = authority_in(tmp_path / "stranger")

    async def story(stage: Stage) -> None:
        files = broker_files(authority, tmp_path, "b")
        node = await secured(stage, tmp_path / "b", **files)
        for other, problem in (
            (broker_files(authority, tmp_path / "old", "b", days=-1), "certificate has expired"),
            (broker_files(stranger, tmp_path / "swapped", "b"), "unable to get local issuer certificate"),
            (broker_files(authority, tmp_path / "new", "b"), "Verify return code: 0 (ok)"),
        ):
            for name in ("security__certificate", "security__key"):
                shutil.copy(other[name], files[name])
            node.reload()
            assert problem in await handshake(node, ca, *NAMED)

    play(story)


def test_health_and_metrics_are_served_over_tls_and_metrics_for_a_token(tmp_path: Path) -> None:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    authority, ca = authority_in(tmp_path / "ca")
    (tmp_path / "token").write_text("let me see\n")

    async def story(stage: Stage) -> None:
        options = broker_files(authority, tmp_path, "b") | {"security__http_token": str(tmp_path / "token")}
        node = await secured(stage, tmp_path / "b", **options)
        context = ssl.create_default_context(cafile=str(ca))

        def get(path: str, **headers: str) -> int:
            try:
                with urlopen(
                    Request(f"https://{node.http_address}{path}", headers=headers),
                    context=context,
                    timeout=PATIENCE_SECONDS,
                ) as page:
                    return int(page.status)
            except HTTPError as error:
                return error.code

        assert await asyncio.to_thread(get, "/health") == 200
        assert await asyncio.to_thread(get, "/metrics") == 401
        assert await asyncio.to_thread(get, "/metrics", Authorization="Bearer let me see") == 200
        assert await asyncio.to_thread(get, "/metrics", Authorization="Bearer let me") == 401

    play(story)


def test_a_certificate_is_described() -> None:
    from tidemark.node.security.certificates import make_authority

    made = issue(make_authority(), "b", hosts=["127.0.0.1", "b.example"], broker="b")
    said = describe(made.certificate)
    assert said["names"] == ["127.0.0.1", "b.example", "tidemark:broker:b"]
    assert said["is_expired"] is False


def test_metrics_without_a_token_tell_nothing_of_subscriptions(tmp_path: Path) -> None:
    from urllib.request import urlopen

    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path / "b")

        def page(path: str) -> str:
            with urlopen(f"http://{node.http_address}{path}", timeout=PATIENCE_SECONDS) as found:
                return str(found.read().decode())

        async with client_of(node, "alice") as reader, reader.subscribe("t.>", durable="alice.s"):
            text = await asyncio.to_thread(page, "/metrics")
            of_subscriptions = await asyncio.to_thread(page, "/metrics/subscriptions")
        assert "tidemark_events_delivered" in text
        assert "tidemark_lag_incomplete 1.0" in of_subscriptions
        assert "alice.s" not in text + of_subscriptions

    play(story)


def test_a_client_that_is_called_back_is_called_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.02)
    authority, ca = authority_in(tmp_path / "ca")

    async def story(stage: Stage) -> None:
        options = broker_files(authority, tmp_path, "b") | {"subscribers__rest": "50ms"}
        node = await secured(stage, tmp_path / "b", **options)
        url = f"tidemark+tls://{node.address}"
        login = {"user": "alice", "password": PASSWORDS["alice"], "ca": str(ca)}
        async with (
            client_of(node, "paula", scheme="tidemark+tls", ca=str(ca)) as writer,
            listen(url, lease=60, **login) as push,  # type: ignore[arg-type]
        ):
            await writer.create_topic("t.x", "[n: int]")
            async with push.subscribe("t.x") as subscription:
                for n in (1, 2):
                    await until(lambda: node.server.leases.parked == 1)
                    await writer.publish("t.x", {"n": n})
                    assert (await anext(subscription))["n"] == n
                assert node.server.leases.dials >= 1
                await until(lambda: node.server.leases.parked == 1)
                # Who calls and cannot show the broker's certificate is not spoken to.
                where, (ticket,) = push._link.listens_at, node.server.leases._by_ticket  # type: ignore[attr-defined]
                for certificate in (None, _of_a_stranger(tmp_path)):
                    heard = await asyncio.to_thread(_called, where, certificate)
                    assert ticket.encode() not in heard

    play(story)


def _called(where: tuple[str, int], certificate: ssl.SSLContext | None) -> bytes:
    """What a client that is parked says to somebody who calls it, with this certificate or without TLS."""
    with socket.create_connection(where, timeout=2.0) as plain, suppress(OSError):
        if certificate is not None:
            with certificate.wrap_socket(plain, server_side=True) as link:
                link.sendall(b"".join(encode(Pushing("b", "0" * 32))))
                return link.recv(1 << 16)
        plain.sendall(b"".join(encode(Pushing("b", "0" * 32))))
        return plain.recv(1 << 16)
    return b""


def _of_a_stranger(path: Path) -> ssl.SSLContext:
    stranger, _ = authority_in(path / "somebody")
    made = issue(stranger, "b", hosts=["127.0.0.1"], broker="b")
    made.save(path / "somebody" / "cert.pem", path / "somebody" / "key.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path / "somebody" / "cert.pem", path / "somebody" / "key.pem")
    return context


def test_handshakes_that_never_end_are_bounded_and_lock_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes_module.Handshakes.__init__, "__kwdefaults__", {"most": 20})
    authority, ca = authority_in(tmp_path / "ca")

    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path / "b", **broker_files(authority, tmp_path, "b"))
        under_way = node.server.handshakes
        assert under_way is not None
        silent = [socket.create_connection(node.address) for _ in range(50)]
        for each in silent:
            each.setblocking(False)
        await until(lambda: under_way.given_up >= 30)
        await until(lambda: len(under_way) == 20)
        # Those that came first are closed, and the others are still there.
        await until(lambda: _is_closed(silent[0]))
        assert not _is_closed(silent[-1])
        async with client_of(node, "ops", scheme="tidemark+tls", ca=str(ca)) as tm:
            assert (await tm.ask("status"))["broker"] == "tidemark"
        for each in silent:
            each.close()
        await until(lambda: len(under_way) == 0)

    play(story)


def test_a_handshake_has_as_long_as_an_introduction(tmp_path: Path) -> None:
    authority, _ = authority_in(tmp_path / "ca")

    async def story(stage: Stage) -> None:
        files = broker_files(authority, tmp_path, "b")
        node = await secured(stage, tmp_path / "b", **files, limits__handshake="50ms")
        with socket.create_connection(node.address) as silent:
            silent.setblocking(False)
            await until(lambda: _is_closed(silent))

    play(story)


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other side has ended the connection."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
