"""The console of a broker with accounts: everybody sees and does what the broker lets them, and no more."""

from __future__ import annotations

import base64
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.live_console import LiveConsole, live_console
from tests.console.test_pages import Browser
from tests.live_node import LiveNode, live_node
from tests.node.security.secured import PASSWORDS, document
from tests.waiting import eventually
from tidemark import sync
from tidemark.console.pages.access import KEPT, with_verifiers
from tidemark.console.problems import ProblemError


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    path = tmp_path_factory.mktemp("secured")
    access = path / "access.toml"
    access.write_text(document())
    with live_node(path, security__mode="accounts", security__access=str(access)) as node:
        yield node


@pytest.fixture(scope="module")
def console(node: LiveNode) -> Iterator[LiveConsole]:
    with live_console(node.url) as console:
        yield console


def basic(user: str, password: str | None = None) -> dict[str, str]:
    text = f"{user}:{PASSWORDS[user] if password is None else password}"
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


def logged_in(console: LiveConsole, user: str) -> Browser:
    browser = Browser(console)
    reply = browser.send("/login", browser.token("/login"), user=user, password=PASSWORDS[user])
    assert (reply.status, reply.headers["location"]) == (303, "/")
    return browser


def test_nobody_in_particular_gets_nothing(console: LiveConsole) -> None:
    assert console.ask("GET", "/").headers["location"] == "/login"
    reply = console.post("t.a", {"n": 1})
    assert reply.status == 401
    assert "Basic" in reply.headers["www-authenticate"]
    assert console.ask("GET", "/topics/t.a/events").status == 401


def test_nobody_sends_a_large_body_before_the_broker_has_let_him_in(console: LiveConsole) -> None:
    given = {**basic("paula", "nonsense"), "Content-Type": "application/json", "Content-Length": "9000000"}
    for headers in (given, {"Content-Length": "9000000"}):
        # The body never comes, and the answer does.
        reply = console.ask("POST", "/topics/t.a/events", None, headers)
        assert reply.status in (401, 429)


def test_a_wrong_password_and_an_unknown_user_are_told_the_same(console: LiveConsole) -> None:
    browser = Browser(console)
    wrong = browser.send("/login", browser.token("/login"), user="alice", password="nonsense")
    unknown = browser.send("/login", browser.token("/login"), user="nobody", password="nonsense")
    assert (wrong.status, unknown.status) == (401, 401)
    assert 'role="alert"' in wrong.text
    assert wrong.text.count("alert") == unknown.text.count("alert")
    assert "nonsense" not in wrong.text
    assert console.post("t.a", {"n": 1}, **basic("alice", "nonsense")).status == 401


def test_rules_hold_over_http(console: LiveConsole) -> None:
    published = console.post("t.a", [{"n": n} for n in range(1, 8)], **basic("paula"))
    assert published.status == 201, published.text
    assert console.post("t.a", {"n": 1}, **basic("alice")).status == 403
    path = "/topics/t.a/events?start=earliest&durable=alice.web"
    with console.stream(path, **basic("alice")) as stream:
        assert [each["n"] for each in stream.values(5)] == [1, 2, 3, 4, 5]
    with console.stream("/topics/t.a/events?start=earliest", **basic("bob")) as stream:
        assert [each["n"] for each in stream.values(2)] == [1, 2]
    assert console.ask("GET", path, headers=basic("bob")).status == 403


def test_streams_of_several_users_of_one_console_do_not_get_in_each_others_way(console: LiveConsole) -> None:
    path = "/topics/t.a/events"
    with console.stream(path, **basic("alice")) as one, console.stream(path, **basic("bob")) as other:
        one.wait_open()
        other.wait_open()


def test_who_may_not_monitor_is_told_so_and_who_may_sees(console: LiveConsole) -> None:
    alice = logged_in(console, "alice")
    assert alice.get("/").status == 403
    assert alice.get("/access").status == 403
    assert alice.get("/topics").status == 200
    ops = logged_in(console, "ops")
    assert ops.get("/").status == 200
    text = ops.get("/access").text
    assert KEPT in text
    assert "SCRAM-SHA-256$" not in text
    answer = ops.get("/access?user=alice&topic=t.a").text
    assert "n &lt;= 5" in answer


def test_a_document_with_a_rule_that_fits_no_topic_is_taken_only_if_that_is_meant(
    node: LiveNode, console: LiveConsole
) -> None:
    ops = logged_in(console, "ops")
    with sync.connect(node.url, user="paula", password=PASSWORDS["paula"]) as writer:
        writer.create_topic("t.fits", "[n: int]")
    text = re.sub('"SCRAM[^"]*"', f'"{KEPT}"', document())
    text += '[roles.guest]\nsubscribe = ["t.fits"]\nread."t.fits" = "absent > 1"\n'
    token = ops.token("/access")
    plan = ops.send("/access/plan", token, text=text)
    assert "does not fit the topic t.fits" in plan.text
    assert 'name="force"' in plan.text
    version = plan.text.partition('name="version" value="')[2].partition('"')[0]
    refused = ops.send("/access/apply", token, text=text, version=version)
    assert refused.status == 422, refused.text
    assert "does not fit the topic t.fits" in refused.text
    assert ops.send("/access/apply", token, text=text, version=version, force="yes").status == 303


def test_a_document_is_planned_and_put_into_force_with_the_passwords_it_had(
    node: LiveNode, console: LiveConsole, tmp_path: Path
) -> None:
    del tmp_path
    ops = logged_in(console, "ops")
    shown = document().replace("claims = { most = 2 }", "claims = { most = 3 }")
    text = "\n".join(
        f'password = "{KEPT}"' if line.startswith("password") else line for line in shown.split("\n")
    )
    token = ops.token("/access")
    plan = ops.send("/access/plan", token, text=text)
    assert plan.status == 200, plan.text
    assert "bob" in plan.text
    version = plan.text.partition('name="version" value="')[2].partition('"')[0]
    done = ops.send("/access/apply", token, text=text, version=version)
    assert done.status == 303, done.text
    assert "is in force" in ops.get("/access").text
    assert ops.send("/access/apply", token, text=text, version=version).status == 409
    logged_in(console, "bob")
    del node


def test_what_a_changed_selector_means_is_told_without_events_to_who_may_not_read_them(
    node: LiveNode, console: LiveConsole
) -> None:
    with (
        sync.connect(node.url, user="bob", password=PASSWORDS["bob"]) as bob,
        bob.subscribe("t.>", "n > 0", durable="bob.why", ack="client"),
    ):
        pass
    ops = logged_in(console, "ops")
    eventually(lambda: "away" in ops.get("/subscriptions/bob.why").text)
    preview = ops.get("/subscriptions/bob.why/change?what=selector&where=n%3E1")
    assert preview.status == 200, preview.text
    assert "You may not read" in preview.text


def test_a_session_ends_when_its_browser_logs_out(console: LiveConsole) -> None:
    ops = logged_in(console, "ops")
    cookie = ops.cookie
    assert ops.send("/logout", ops.token("/access")).status == 303
    ops.cookie = cookie
    assert ops.get("/").headers.get("location") == "/login"


def test_streams_of_a_session_end_with_it(console: LiveConsole) -> None:
    ops, alice = logged_in(console, "ops"), logged_in(console, "alice")
    with (
        console.stream("/tail/rows?topic=%3E", Cookie=ops.cookie) as tail,
        console.stream("/topics/t.ending/events", Cookie=alice.cookie) as stream,
        console.stream("/topics/t.ending/events", **basic("alice")) as of_program,
    ):
        for each in (tail, stream, of_program):
            each.wait_open()
        for browser in (ops, alice):
            assert browser.send("/logout", browser.token("/login")).status == 303
        while tail.raw()[1]:
            pass  # what it was told before
        headers = {"Content-Type": "application/json", **basic("paula")}
        assert console.ask("POST", "/topics/t.ending/events", '{"n": 1}', headers).status == 201
        told = stream.next()
        assert told is not None
        assert (told[0], told[1]["code"]) == ("refused", "login")
        assert stream.next() is None
        assert of_program.values(1) == [{"n": 1}]


def test_a_login_leads_back_to_the_page_that_was_wanted_and_to_no_other_site(console: LiveConsole) -> None:
    browser = Browser(console)
    login = browser.get("/subscriptions?q=a").headers["location"]
    assert login == "/login?next=/subscriptions%3Fq%3Da"
    assert 'name="next" value="/subscriptions?q=a"' in browser.get(login).text
    given = {"user": "ops", "password": PASSWORDS["ops"]}
    done = browser.send("/login", browser.token(login), next="/subscriptions?q=a", **given)
    assert done.headers["location"] == "/subscriptions?q=a"
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example"):
        other = Browser(console)
        done = other.send("/login", other.token("/login"), next=elsewhere, **given)
        assert done.headers["location"] == "/"


def test_a_page_that_refreshes_itself_is_led_to_the_login_when_its_session_is_over(
    console: LiveConsole,
) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://127.0.0.1:{console.port}/overlay?pubend=a"}
    reply = console.ask("GET", "/overlay?pubend=a", headers=headers)
    assert (reply.status, reply.headers["hx-redirect"]) == (401, "/login?next=/overlay%3Fpubend%3Da")


def test_a_verifier_stays_with_its_user_however_the_document_is_written() -> None:
    before = (
        '[users.a]\nclaims = { most = 5 }\npassword = "SCRAM-SHA-256$1"\n'
        '[users]\n"b.c" = { password = "SCRAM-SHA-256$2" }\nd.password = "SCRAM-SHA-256$3"\n'
    )
    after = (
        f'[users]\nd.password = "{KEPT}"\n"b.c" = {{ claims = {{ x = 1 }}, password = "{KEPT}" }}\n'
        f'[users.a]\nclaims = {{ most = 6 }}\npassword = "{KEPT}"\n'
    )
    users = tomllib.loads(with_verifiers(after, before))["users"]
    assert {name: user["password"] for name, user in users.items()} == {
        "a": "SCRAM-SHA-256$1",
        "b.c": "SCRAM-SHA-256$2",
        "d": "SCRAM-SHA-256$3",
    }
    for wrong in (f'[users.new]\npassword = "{KEPT}"\n', f'[roles.r]\nsubscribe = ["{KEPT}"]\n'):
        with pytest.raises(ProblemError):
            with_verifiers(wrong, before)
    assert with_verifiers("[users", before) == "[users"


def test_verifiers_stay_with_their_users() -> None:
    before = '[users.a]\npassword = "SCRAM-SHA-256$1"\n[users.b]\npassword = "SCRAM-SHA-256$2"\n'
    after = f'[users.b]\npassword = "{KEPT}"\n[users.a]\npassword = "{KEPT}"\n'
    assert with_verifiers(after, before) == (
        '[users.b]\npassword = "SCRAM-SHA-256$2"\n[users.a]\npassword = "SCRAM-SHA-256$1"\n'
    )
