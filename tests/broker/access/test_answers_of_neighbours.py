"""What a neighbour answers for a client is held against the client's rules where the client is.

The broker that hosts a pubend matches events before it answers a fetch, and a rule is part of the selector
that it is told. A neighbour that answers with other events all the same must not show them to anybody.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.broker.access.test_access_control import ALICE, DOCUMENT, LAKE, PAULA, come, subscribe, values
from tests.broker.desk import MORNING, SCHEMA, Desk, batch, sent, told
from tidemark.broker.effects import Effect
from tidemark.message.batches.batch import concatenate
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Fetch, Fetched, Heard, Hello, Knowledge, Refused, Topic


def desk() -> Desk:
    """A broker with accounts below the one that hosts the pubend `p`; it knows the topics t and u."""
    made = Desk(access=DOCUMENT, upstream="up")
    made.link("up")
    made.hear("up", Hello("up", 1))
    for client in (ALICE, PAULA, LAKE):
        come(made, client)
    for topic in ("t", "u"):
        assert made.do(PAULA, Topic(topic, False, (SCHEMA.text,)))
    made.pass_time(0.2)
    return made


def passed(effects: list[Effect]) -> Fetch:
    """The fetch that the broker passes on."""
    (found,) = sent(effects, "up", Fetch)
    assert isinstance(found, Fetch)
    return found


def answer(asked: Fetch) -> Fetched:
    """An answer with events of two topics, of which alice may read those of t with n <= 5."""
    mixed = concatenate([batch(12, values=[4]), batch(13, topic="u", values=[3]), batch(14, values=[6])])
    return Fetched(asked.ticket, "p", asked.base, asked.upto, 0, mixed)


def test_a_client_is_shown_what_it_may_read_of_a_neighbours_answer() -> None:
    at = desk()
    fetch = Fetch(9, "p", 10, 20, ">", "", 1_000)
    asked = passed(at.say(ALICE, fetch))
    found = told(at.hear("up", answer(asked)), ALICE)
    assert values(found) == [4]
    assert [(each.base, each.upto) for each in found if isinstance(each, Fetched)] == [(10, 20)]
    asked = passed(at.say(LAKE, fetch))
    assert values(told(at.hear("up", answer(asked)), LAKE)) == [4, 3, 6]


def test_an_event_whose_topic_is_not_known_is_not_shown_to_who_has_rules() -> None:
    at = desk()
    del at.registry.topics["t"]
    asked = passed(at.say(ALICE, Fetch(9, "p", 10, 20, ">", "", 1_000)))
    found = told(at.hear("up", answer(asked)), ALICE)
    assert [(each.base, each.upto, each.batch) for each in found if isinstance(each, Fetched)] == [
        (10, 11, None)
    ]
    asked = passed(at.say(ALICE, Fetch(9, "p", 11, 20, ">", "", 1_000)))
    (refused,) = told(at.hear("up", answer(asked)), ALICE)
    assert isinstance(refused, Refused)
    assert refused.code == "schema"


def reaching_back(at: Desk) -> Fetch:
    """Alice subscribes to everything, from before this broker knew her; returns what is fetched for her."""
    told_silence = partial(Knowledge, "p", lost=0, first=True, version=2**33 - 1)
    at.finish(at.hear("up", told_silence(base=MORNING, upto=MORNING + 10)))
    token = CheckpointToken({"p": MORNING - 10_000})
    effects = at.finish(at.say(ALICE, subscribe(pattern=">", token=token)))
    at.pass_time(0.3)
    effects += at.finish(at.hear("up", Heard("p", "b", at.last_said)))
    effects += at.finish(at.hear("up", told_silence(base=MORNING + 10, upto=MORNING + 20)))
    return passed(effects + at.pass_time(0.3))


def test_a_subscriber_that_catches_up_is_shown_what_it_may_read_of_a_neighbours_answer() -> None:
    at = desk()
    asked = reaching_back(at)
    first, second, third = (asked.base + step for step in (1, 2, 3))
    events = [batch(first, values=[4]), batch(second, topic="u", values=[3]), batch(third, values=[6])]
    wrong = Fetched(asked.ticket, "p", asked.base, asked.upto, 0, concatenate(events))
    assert values(told(at.finish(at.hear("up", wrong)), ALICE)) == [4]


def test_a_subscriber_waits_for_an_event_whose_topic_is_not_known_and_gets_it_then() -> None:
    at = desk()
    asked = reaching_back(at)
    known = at.registry.topics.pop("t")
    right = Fetched(asked.ticket, "p", asked.base, asked.upto, 0, batch(asked.base + 1, values=[4]))
    assert not values(told(at.finish(at.hear("up", right)), ALICE))
    assert not sent(at.pass_time(5.0), "up", Fetch)
    at.registry.topics["t"] = known
    again = passed(at.finish(at.say(PAULA, Topic("u", False, ("[n: int, m: int?]",)))))
    assert values(told(at.finish(at.hear("up", replace(right, ticket=again.ticket))), ALICE)) == [4]
