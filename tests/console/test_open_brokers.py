"""A console that other machines reach lets nobody in by a login that an open broker does not check."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.console.live_console import LiveConsole, Reply, live_console
from tests.console.test_pages import Browser
from tests.console.test_web_sockets import opened, said
from tests.live_node import live_node
from tests.node.security.secured import authority_in, broker_files
from tidemark.client.connecting.credentials import Credentials
from tidemark.errors import RefusedError
from tidemark.wire.security.frames import Login, Proof

pytestmark = pytest.mark.open_broker(reason="what a console does in front of an open broker")
MADE_UP = {
    "Bearer": {"Authorization": "Bearer x"},
    "Basic": {"Authorization": "Basic " + base64.b64encode(b"a:b").decode()},
}
FORMS = {"Bearer": {"token": "x"}, "Basic": {"user": "a", "password": "b"}}
#: Publishing, and a stream of events.
METHODS = ("POST", "GET")
#: A page that watches, one that asks by itself, and the tail with its rows.
PAGES = ("/", "/topics", "/tail", "/tail/rows?topic=%3E")


@pytest.fixture(params=["tidemark", "tidemark+tls"])
def console(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveConsole]:
    """A console on all addresses, in front of an open broker with or without TLS."""
    options: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "tidemark+tls":
            pytest.importorskip("cryptography")
            authority, ca = authority_in(tmp_path / "ca")
            options = broker_files(authority, tmp_path, "b1")
            patch.setenv("TIDEMARK_CA", str(ca))
        with live_node(tmp_path, **options) as node:
            url = node.url.replace("tidemark:", f"{request.param}:")
            with live_console(url, host="0.0.0.0") as console:
                yield console


def assert_refused(reply: Reply) -> None:
    assert reply.status == 403, reply.text
    assert "tidemark up --secure" in reply.text


@pytest.mark.parametrize("way", MADE_UP)
def test_a_made_up_login_is_refused_at_the_door(console: LiveConsole, way: str) -> None:
    assert console.post("t.a", {"n": 1}).status == 401
    for method in METHODS:
        headers = {"Content-Type": "application/json", **MADE_UP[way]}
        reply = console.ask(method, "/topics/t.a/events", json.dumps({"n": 1}), headers)
        assert_refused(reply)
        assert reply.json["error"]["code"] == "denied"
    with opened(console, "/topics/t.a/events", MADE_UP[way]) as socket:
        assert said(socket)["error"]["code"] == "denied"


@pytest.mark.parametrize("way", FORMS)
def test_a_made_up_login_is_refused_at_the_pages(console: LiveConsole, way: str) -> None:
    browser = Browser(console)
    body = urlencode({"form_token": browser.token("/login"), **FORMS[way]})
    headers = {"Cookie": browser.cookie, "Content-Type": "application/x-www-form-urlencoded"}
    assert_refused(console.ask("POST", "/login", body, headers))
    for page in PAGES:
        assert browser.get(page).headers["location"].startswith("/login")


def test_a_client_that_requires_a_login_goes_on_with_no_broker_that_asks_for_none() -> None:
    """The client connects again by itself, perhaps to a broker that is open by then."""
    for login in (Credentials(token="x"), Credentials("a", "b"), Credentials()):
        login.dialog().check_welcome()
        with pytest.raises(RefusedError) as caught:
            replace(login, is_login_required=True).dialog().check_welcome()
        assert caught.value.code == "denied"
    dialog = Credentials(token="x", is_login_required=True).dialog()
    assert dialog.answer(Login(("BEARER",))) == Proof("BEARER", "x")
    dialog.check_welcome()
    dialog = Credentials("a", "b", is_login_required=True).dialog()
    dialog.answer(Login(("SCRAM-SHA-256",)))
    with pytest.raises(RefusedError) as caught:
        dialog.check_welcome()
    assert caught.value.code == "login", "the broker has not proved that it knows the password"
