"""Bulk reads with accounts: they tell nothing of when others have published, batch by batch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.access.test_access_control import ALICE, EYE, LAKE, RULES, come, desk, publish, subscribe
from tests.broker.desk import Desk, told
from tidemark.access.document import AccessDocument
from tidemark.broker.effects import AccessChanged, FetchLog
from tidemark.broker.publishing.fetching import FETCH_BYTES_MAX
from tidemark.ticks import TICK_MIN
from tidemark.wire.frames import Answer, Ask, Fetch

#: `eye` sees everything there is, and so does `alice` of the topic that she may read.
OPEN_EYE = RULES.replace("monitor = true", 'monitor = true\nsubscribe = [">"]')


def sizes(at: Desk, client: int, frame: Any) -> list[int]:
    """How many bytes of the log are read at once for what a client asks."""
    effects = at.say(client, frame)
    found = [each.bytes_max for each in effects if isinstance(each, FetchLog)]
    at.finish(effects)
    return found


@pytest.mark.parametrize("size", [0, 1, 1_000, 1 << 30])
def test_who_does_not_see_everything_chooses_no_size_of_what_is_read(size: int) -> None:
    at = desk()
    publish(at, 6, 7)
    fetch = Fetch(1, "p", 0, 2**60, "t", "", size)
    assert sizes(at, ALICE, fetch) == [FETCH_BYTES_MAX]
    assert sizes(at, LAKE, fetch) == [min(max(size, 1), FETCH_BYTES_MAX)]


def test_a_search_for_events_reads_whole_pieces_for_who_does_not_see_everything() -> None:
    at = desk()
    publish(at, 6, 7)
    arguments = {"pubend": "p", "pattern": "t", "selector": "", "base": 0, "upto": 2**60, "events": 1}
    asked = Ask(1, "reach", json.dumps(arguments))
    assert sizes(at, ALICE, asked) == [FETCH_BYTES_MAX]
    assert sizes(at, LAKE, asked) == [512]


def test_a_client_that_sees_everything_by_its_grants_reads_in_pieces_of_its_size() -> None:
    at = desk()
    document = AccessDocument.parse(OPEN_EYE, 2)
    at.give(AccessChanged(document))
    at.gone(EYE)
    come(at, EYE, document)
    assert sizes(at, EYE, Fetch(1, "p", 0, 2**60, "t", "", 1_000)) == [1_000]


def asked(at: Desk, client: int, what: str) -> dict[str, Any]:
    """The only item of what a client is answered."""
    effects = at.finish(at.say(client, Ask(1, what)))
    (answer,) = [each for each in told(effects, client) if isinstance(each, Answer)]
    (found,) = json.loads(answer.payload)
    assert isinstance(found, dict)
    return found


def test_how_far_others_have_read_is_told_to_those_who_may_monitor() -> None:
    at = desk()
    at.do(ALICE, subscribe())
    at.pass_time(0.3)
    publish(at, 4)
    at.pass_time(1)
    assert asked(at, EYE, "pubends")["released"] is not None
    assert asked(at, ALICE, "pubends")["released"] is None
    whole, shown = asked(at, EYE, "streams"), asked(at, ALICE, "streams")
    assert whole["synced"] is not None
    assert shown == {
        **whole,
        "synced": None,
        "lost": TICK_MIN,
        "window_bytes": 0,
        "upstream": None,
        "followers": [],
        "catching_up": 0,
    }
