"""What a console shows to somebody with a rule and a hidden field: newest events, the tail and reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.console.live_console import LiveConsole, live_console
from tests.console.test_pages import Browser
from tests.console.test_secured_console import logged_in
from tests.live_node import LiveNode, live_node
from tests.node.security.secured import PASSWORDS, RULES, USERS, document
from tidemark import sync

SECRET = "someone-unseen"
TEXT = document({**USERS, "alice": 'roles = ["reader", "eye"]\nclaims = { most = 5 }'}).replace(
    RULES,
    RULES.replace("[roles.writer]", 'hide."t.>" = ["party"]\n[roles.eye]\nmonitor = true\n[roles.writer]'),
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    path = tmp_path_factory.mktemp("ruled")
    access = path / "access.toml"
    access.write_text(TEXT)
    with live_node(path, security__mode="accounts", security__access=str(access)) as node:
        with sync.connect(node.url, user="paula", password=PASSWORDS["paula"]) as tm:
            tm.create_topic("t.x", "[n: int, party: string]")
            publish(node, 1, 7, 2)
        yield node


@pytest.fixture(scope="module")
def console(node: LiveNode) -> Iterator[LiveConsole]:
    with live_console(node.url) as console:
        yield console


@pytest.fixture
def alice(console: LiveConsole) -> Browser:
    """Somebody who may monitor, and sees events of n up to 5 without the party."""
    return logged_in(console, "alice")


def publish(node: LiveNode, *numbers: int) -> list[int | None]:
    """Publish events; return their ticks."""
    with sync.connect(node.url, user="paula", password=PASSWORDS["paula"]) as tm:
        return [tm.publish("t.x", {"n": n, "party": SECRET}) for n in numbers]


def shown_in(text: str) -> set[int]:
    assert SECRET not in text
    return {int(n) for n in re.findall(r'<span class="field">n</span>[= ]<span class="value">(\d+)<', text)}


def test_the_newest_events_of_a_topic_are_those_that_a_rule_shows(alice: Browser) -> None:
    page = alice.get("/topics/t.x").text
    assert shown_in(page) == {1, 2}
    assert "party" not in page
    asked = alice.get("/topics/t.x?where=party%20%3D%20%27a%27")
    assert 'role="alert"' in asked.text
    assert shown_in(asked.text) == set()


def test_the_tail_shows_and_counts_what_a_rule_shows(
    node: LiveNode, console: LiveConsole, alice: Browser
) -> None:
    with console.stream("/tail/rows?topic=t.%3E", Cookie=alice.cookie) as tail:
        assert tail.raw()[0] == "told"  # from here on it has a place
        publish(node, 8, 3, 9)
        text = ""
        while 3 not in shown_in(text):
            text += tail.raw()[1]
    assert shown_in(text) == {3}


def test_reasons_are_given_for_events_that_a_rule_shows_alone(node: LiveNode, alice: Browser) -> None:
    seen, unseen = publish(node, 4, 6)
    page = alice.get(f"/why?pubend=main&tick={seen}&where=n%3E1")
    assert (page.status, shown_in(page.text)) == (200, {4})
    assert "party" not in page.text
    for where in ("n%3E1", "party%3D%27a%27"):
        hidden = alice.get(f"/why?pubend=main&tick={unseen}&where={where}")
        assert hidden.status == 404
        assert "you may not see it" in hidden.text
