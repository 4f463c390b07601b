"""Bounds on failed logins: guessing is slowed down, and keeps nobody out who has been let in before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live_node import HandClock
from tests.node.security.secured import PASSWORDS, client_of, secured
from tests.node.speech import Stage, play
from tidemark.client.client import connect
from tidemark.errors import RefusedError
from tidemark.node.node import Node
from tidemark.node.security.login import FAILED
from tidemark.node.security.login_limits import FAILURES_MAX, REMEMBERED_MAX, SECONDS_A_TRY, LoginLimits

HERE, THERE = "127.0.0.1", "10.0.0.9"


class Moment:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def refusal(node: Node, user: str, password: str) -> str:
    """What somebody is told who does not get in."""
    with pytest.raises(RefusedError) as caught:
        await connect(f"tidemark://{node.address}", user=user, password=password)
    assert caught.value.code == "login"
    return caught.value.reason


def test_an_address_that_guesses_has_to_wait_and_then_gets_one_try(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        limits = node.server.login_limits = LoginLimits(HandClock(node))
        for number in range(FAILURES_MAX):
            limits.failed(HERE, f"name-{number}")
        assert "; wait 2 s" in await refusal(node, "alice", PASSWORDS["alice"])
        node.server.time.now += SECONDS_A_TRY + 0.1  # type: ignore[attr-defined]
        assert "; wait 2 s" in await refusal(node, "alice", "wrong")
        assert "; wait 2 s" in await refusal(node, "alice", PASSWORDS["alice"])
        node.server.time.now += SECONDS_A_TRY + 0.1  # type: ignore[attr-defined]
        await client_of(node, "alice").close()

    play(story)


def test_who_guesses_keeps_nobody_out_where_that_user_has_logged_in_before(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        async with client_of(node, "alice"):
            pass
        for number in range(2 * FAILURES_MAX):
            node.server.login_limits.failed(HERE, f"name-{number % 3}")
            node.server.login_limits.failed(THERE, "alice")
        async with client_of(node, "alice"):
            pass
        # Bob has not been here: whether his password is right is not found out now.
        assert "; wait" in await refusal(node, "bob", PASSWORDS["bob"])

    play(story)


def test_those_who_guess_are_not_told_who_has_logged_in_where_they_are(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        node.server.login_limits = LoginLimits(HandClock(node))
        async with client_of(node, "alice"):
            pass
        for is_over in (False, True):
            told = {await refusal(node, name, "wrong") for name in ("alice", "bob", "nobody")}
            assert len(told) == 1
            assert is_over == (told != {FAILED})
            for number in range(FAILURES_MAX):
                node.server.login_limits.failed(HERE, f"name-{number}")

    play(story)


def test_a_user_that_is_guessed_where_it_has_logged_in_has_to_wait_there() -> None:
    clock = Moment()
    limits = LoginLimits(clock)
    limits.succeeded(HERE, "alice")
    limits.succeeded(HERE, "bob")
    for _ in range(FAILURES_MAX):
        assert not limits.refuses(HERE, "alice")
        limits.failed(HERE, "alice")
    assert limits.refuses(HERE, "alice")
    assert not limits.refuses(HERE, "bob")
    assert not limits.refuses_all(HERE)
    assert limits.refuses(HERE, "carol")
    assert limits.refuses(THERE, "alice")
    clock.now += SECONDS_A_TRY
    assert not limits.refuses(HERE, "alice")


def test_an_address_where_nobody_has_logged_in_is_refused_before_it_says_a_name() -> None:
    limits = LoginLimits(Moment())
    for number in range(FAILURES_MAX):
        assert not limits.refuses_all(THERE)
        limits.failed(THERE, f"name-{number}")
    assert limits.refuses_all(THERE)
    assert not limits.refuses_all(HERE)


def test_who_asks_while_it_has_to_wait_does_not_wait_longer_for_it() -> None:
    clock = Moment()
    limits = LoginLimits(clock)
    for _ in range(100):
        limits.failed(HERE, "alice")
    assert limits.seconds_to_wait(HERE) == limits.seconds_to_wait(THERE, "alice") == SECONDS_A_TRY
    clock.now += SECONDS_A_TRY / 2
    limits.failed(HERE, "alice")
    assert limits.seconds_to_wait(HERE) == SECONDS_A_TRY / 2


def test_failures_are_forgotten_and_what_is_remembered_is_bounded() -> None:
    clock = Moment()
    limits = LoginLimits(clock)
    for number in range(3 * REMEMBERED_MAX):
        limits.failed(f"a{number}", "alice")
        limits.succeeded(f"a{number}", f"user-{number % 7}")
    assert limits.seconds_to_wait("a29999") == 0
    assert limits.refuses("b", "alice")
    assert len(limits._addresses._counts) == len(limits._known) == len(limits._known_at) == REMEMBERED_MAX
    clock.now += 1e6
    assert not limits.refuses("b", "alice")


def test_addresses_of_one_network_of_ipv6_are_counted_together() -> None:
    limits = LoginLimits(Moment())
    for number in range(FAILURES_MAX):
        limits.failed(f"2001:db8:0:1::{number:x}", "")
        limits.failed(f"::ffff:10.0.0.{number}", "")
    assert limits.refuses_all("2001:db8:0:1:ffff::9")
    assert not limits.refuses_all("2001:db8:0:2::1")
    assert limits.seconds_to_wait("10.0.0.1") == limits.seconds_to_wait("::ffff:10.0.0.77") == 0
    assert not limits.refuses_all("no address: at all")
