"""What pages of other sites, and those who guess passwords, can do at a console: nothing."""

from __future__ import annotations

import base64
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.live_console import LiveConsole, live_console
from tests.live_node import LiveNode, live_node
from tests.node.security.secured import PASSWORDS, document
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.console.options import WRONG_LOGINS_MAX
from tidemark.node.security.certificates import Issued, issue, make_authority

EVIL = "https://evil.example"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with live_node(tmp_path_factory.mktemp("open"), security__mode="open") as node:
        yield node


@pytest.fixture(scope="module")
def console(node: LiveNode) -> Iterator[LiveConsole]:
    with live_console(node.url) as console:
        yield console


@pytest.mark.parametrize(
    "said",
    [
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_a_page_of_another_site_takes_and_acknowledges_no_durable_subscription(
    node: LiveNode, console: LiveConsole, said: dict[str, str]
) -> None:
    with sync.connect(node.url) as client:
        with client.subscribe("stolen", durable="audit", ack="client"):
            pass
        client.publish("stolen", {"n": 1})
        with client.subscribe("stolen", durable="audit", ack="client") as subscription:
            token = next(iter(subscription)).checkpoint.text()
        path = f"/topics/stolen/events?durable=audit&last_event_id={token}"
        reply = console.ask("GET", path, headers=said)
        assert (reply.status, reply.json["error"]["code"]) == (403, "origin")
        with client.subscribe("stolen", durable="audit", ack="client") as subscription:
            assert next(iter(subscription))["n"] == 1
        client.unsubscribe("audit")


def test_the_pages_of_the_console_itself_and_programs_may_stream(console: LiveConsole) -> None:
    for said in (
        {},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": f"http://127.0.0.1:{console.port}"},
    ):
        with console.stream(
            "/topics/mine/events", **{k.replace("-", "_"): v for k, v in said.items()}
        ) as one:
            one.wait_open()


def test_a_link_from_another_site_leads_to_a_page(console: LiveConsole) -> None:
    said = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert console.ask("GET", "/topics", headers=said).status == 200


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_who_guesses_at_a_console_waits_there_and_locks_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text(document())
    access = {"security__mode": "accounts", "security__access": str(tmp_path / "access.toml")}
    with live_node(tmp_path, **access) as node, live_console(node.url) as console:

        def topics(user: str, password: str) -> int:
            return console.ask(
                "GET", "/topics/t.x/events?start=nonsense", headers=basic(user, password)
            ).status

        def post(user: str, password: str) -> int:
            return console.post("t.x", {"n": 1}, **basic(user, password)).status

        assert post("paula", PASSWORDS["paula"]) == 201
        found = [post(f"name-{number}", "wrong") for number in range(2 * WRONG_LOGINS_MAX)]
        assert set(found[:WRONG_LOGINS_MAX]) == {401}
        assert 429 in found[WRONG_LOGINS_MAX:]
        # Who has been here goes on, also when its connection to the broker has to be made anew.
        assert post("paula", PASSWORDS["paula"]) == 201
        # The broker itself has heard few of them: whoever comes to it from the same machine is let in.
        with sync.connect(node.url, user="alice", password=PASSWORDS["alice"]) as client:
            assert client.ask("topics")
        assert topics("paula", PASSWORDS["paula"]) == 400


def handshake(port: int, ca: Path, newest: ssl.TLSVersion) -> str:
    """The common name of the certificate that the console shows; ssl.SSLError if the two do not agree."""
    context = ssl.create_default_context(cafile=str(ca))
    context.maximum_version = newest
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        found: Any = secured.getpeercert()
    return str(next(value for part in found["subject"] for key, value in part if key == "commonName"))


def test_a_console_speaks_tls_1_3_and_takes_a_new_certificate_when_it_comes(tmp_path: Path) -> None:
    authority = make_authority()
    ca, port = tmp_path / "ca.pem", free_ports(1)[0]
    ca.write_bytes(authority.certificate)

    def put(name: str) -> Issued:
        made = issue(authority, name, hosts=["127.0.0.1"], broker=name)
        for file, data in (("cert.pem", made.certificate), ("key.pem", made.key)):
            (tmp_path / f"{file}.new").write_bytes(data)
            (tmp_path / f"{file}.new").rename(tmp_path / file)
        return made

    put("first")
    files = ("--certificate", str(tmp_path / "cert.pem"), "--key", str(tmp_path / "key.pem"))
    command = (sys.executable, "-m", "tidemark", "console", "--listen", f"127.0.0.1:{port}", "--json", *files)
    with subprocess.Popen(
        (*command, "--broker", "tidemark://127.0.0.1:1"), stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert b"https" in process.stdout.readline()
            eventually(lambda: can_reach(port))
            assert handshake(port, ca, ssl.TLSVersion.TLSv1_3) == "first"
            with pytest.raises((ssl.SSLError, ConnectionError)):
                handshake(port, ca, ssl.TLSVersion.TLSv1_2)
            put("second")
            eventually(lambda: handshake(port, ca, ssl.TLSVersion.TLSv1_3) == "second")
            (tmp_path / "key.pem").write_text("nonsense")
            os.kill(process.pid, signal.SIGHUP)
            assert handshake(port, ca, ssl.TLSVersion.TLSv1_3) == "second"
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def can_reach(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionError:
        return False
    return True
