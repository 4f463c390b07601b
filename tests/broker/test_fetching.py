"""Fetching: reading a pubend in bulk, without being a subscriber."""

from __future__ import annotations

import pytest

from tests.broker.desk import Desk, batch, told
from tidemark.broker.effects import FetchLog
from tidemark.broker.publishing.fetching import FETCHES_MAX
from tidemark.wire.frames import Fetch, Fetched, Publish, Published, Refused


def desk() -> tuple[Desk, int]:
    """A desk with five events published; the tick before the first of them."""
    made = Desk()
    made.declare()
    made.pass_time(0.2)
    (answer,) = made.do(1, Publish("p", "me", 1, batch(0, 0, 0, 0, 0, values=range(5))))
    assert isinstance(answer, Published)
    return made, answer.tick - 5


def values(answer: object) -> list[int]:
    assert isinstance(answer, Fetched)
    return [] if answer.batch is None else answer.batch.ticks.tolist()


def test_a_range_is_read_as_far_as_the_pubend_has_spoken() -> None:
    at, before = desk()
    (answer,) = at.do(2, Fetch(7, "p", before, before + 10**9, ">", "", 1 << 20))
    assert isinstance(answer, Fetched)
    assert (answer.ticket, answer.base) == (7, before)
    assert before + 5 <= answer.upto < before + 10**9
    assert values(answer) == [before + each for each in range(1, 6)]


def test_only_what_the_selector_is_true_for_comes() -> None:
    at, before = desk()
    (answer,) = at.do(2, Fetch(1, "p", before, before + 5, "t", "n >= 3", 1 << 20))
    assert values(answer) == [before + 4, before + 5]
    (answer,) = at.do(2, Fetch(2, "p", before, before + 5, "other.>", "", 1 << 20))
    assert values(answer) == []


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (Fetch(1, "q", 0, 1, ">", "", 1), "pubend"),
        (Fetch(1, "p", 0, 1, ">", "n >", 1), "selector"),
        (Fetch(1, "p", 0, 1, "a..b", "", 1), "selector"),
    ],
)
def test_what_cannot_be_read_is_refused(frame: Fetch, code: str) -> None:
    at, _ = desk()
    (answer,) = at.do(2, frame)
    assert isinstance(answer, Refused)
    assert (answer.what, answer.name, answer.code) == ("fetch", "1", code)


def test_one_client_has_only_so_many_under_way() -> None:
    at, before = desk()
    for ticket in range(FETCHES_MAX):
        (effect,) = at.say(2, Fetch(ticket, "p", before, before + 1, ">", "", 1 << 20))
        assert isinstance(effect, FetchLog)
    (answer,) = told(at.say(2, Fetch(99, "p", before, before + 1, ">", "", 1 << 20)), 2)
    assert isinstance(answer, Refused)
    assert answer.code == "limit"


def test_who_is_gone_gets_no_answer() -> None:
    at, before = desk()
    effects = at.say(2, Fetch(1, "p", before, before + 5, ">", "", 1 << 20))
    at.gone(2)
    assert told(at.finish(effects), 2) == []
