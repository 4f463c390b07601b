"""Sessions of browsers end: without requests, and after a day's work in any case."""

from __future__ import annotations

import pytest

from tidemark.console.callers import Caller
from tidemark.console.options import SESSION_IDLE_SECONDS, SESSION_SECONDS
from tidemark.console.problems import ProblemError
from tidemark.console.sessions import Sessions


class HandClock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_ends_half_an_hour_after_its_last_request() -> None:
    clock = HandClock()
    sessions = Sessions(clock)
    cookie, session = sessions.begin(Caller("ops", "secret"))
    clock.now += SESSION_IDLE_SECONDS
    assert sessions.find(cookie) is session
    clock.now += SESSION_IDLE_SECONDS + 1
    assert sessions.find(cookie) is None
    clock.now -= SESSION_IDLE_SECONDS
    assert sessions.find(cookie) is None


def test_a_session_that_is_always_used_ends_after_eight_hours() -> None:
    clock = HandClock()
    sessions = Sessions(clock)
    cookie, session = sessions.begin(Caller("ops", "secret"))
    began = clock.now
    while clock.now - began + 600 <= SESSION_SECONDS:
        clock.now += 600
        assert sessions.find(cookie) is session
    clock.now += 600
    assert sessions.find(cookie) is None


def test_a_session_that_is_over_leaves_no_password_in_memory() -> None:
    clock = HandClock()
    sessions = Sessions(clock)
    sessions.begin(Caller("ops", "secret"))
    clock.now += SESSION_IDLE_SECONDS / 2
    cookie, session = sessions.begin(Caller("alice", "secret"))
    clock.now += SESSION_IDLE_SECONDS / 2 + 1
    sessions.forget_ended()
    assert sessions._sessions == {cookie: session}


def test_a_form_is_of_one_session_only() -> None:
    sessions = Sessions(HandClock())
    _, mine = sessions.begin()
    _, other = sessions.begin()
    mine.check_form(mine.form_token)
    for given in (other.form_token, "", mine.form_token[:-1]):
        with pytest.raises(ProblemError):
            mine.check_form(given)
