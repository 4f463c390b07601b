"""Callers: what a request says of who it comes from, and what stands for whom."""

from __future__ import annotations

import base64
import json

import pytest

from tidemark.console.callers import ANYBODY, Caller, caller_of_header
from tidemark.console.door.publishing import publisher_of_key
from tidemark.console.options import SESSIONS_MAX
from tidemark.console.problems import ProblemError
from tidemark.console.sessions import Sessions


def token(subject: str, number: int) -> str:
    claims = {"sub": subject, "iss": "https://idp.example", "n": number}
    return f"h.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.s"


def test_a_key_is_its_bearers_own_and_outlives_its_token() -> None:
    alice, renewed, bob = (Caller(token=token(*each)) for each in (("alice", 1), ("alice", 2), ("bob", 1)))
    assert publisher_of_key(alice, "t", "k") == publisher_of_key(renewed, "t", "k")
    assert publisher_of_key(alice, "t", "k") != publisher_of_key(bob, "t", "k")
    assert publisher_of_key(Caller(token="opaque-1"), "t", "k") != publisher_of_key(
        Caller(token="opaque-2"), "t", "k"
    )
    assert publisher_of_key(Caller("alice", "x"), "t", "k") != publisher_of_key(ANYBODY, "t", "k")


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !!!", "Basic Og==", "Bearer", "Digest x", "Basic /w=="]
)
def test_a_header_that_names_nobody_is_refused(header: str) -> None:
    with pytest.raises(ProblemError):
        caller_of_header(header)


def test_requests_without_a_cookie_push_out_nobody_who_has_logged_in() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    cookie, _ = sessions.begin(Caller("ops", "secret"))
    for each in range(SESSIONS_MAX + 5):
        now[0] = 1 + each / 1_000
        sessions.begin()
    assert sessions.find(cookie) is not None
