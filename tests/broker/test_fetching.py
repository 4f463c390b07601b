"""Fetching: reading a pubend in bulk, without being a subscriber."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.broker.desk import SCHEMA, Desk, batch, sent, told
from tests.broker.parts import AtStream, registry
from tidemark.broker.effects import Effect, FetchLog, SendClient, SendPeer
from tidemark.broker.publishing import fetching as fetching_module
from tidemark.broker.publishing import reach
from tidemark.broker.publishing.fetching import AGAIN_US, FETCHES_MAX, UNDER_WAY_BYTES, Fetching
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.ticks import TICK_MIN
from tidemark.wire.answers import EventsReached
from tidemark.wire.frames import Answer, Ask, Fetch, Fetched, Hello, Publish, Published, Refused, Topic


def desk() -> tuple[Desk, int]:
    """A desk with five events published; the tick before the first of them."""
    made = Desk(downstream=("d",))
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


@pytest.mark.parametrize("batches_max", [2, 100])
def test_an_answer_has_events_of_few_topics_and_batches_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch, batches_max: int
) -> None:
    monkeypatch.setattr(fetching_module, "FETCH_TOPICS_MAX", 3)
    monkeypatch.setattr(fetching_module, "FETCH_BATCHES_MAX", batches_max)
    at, before = desk()
    topics = [f"u.{number}" for number in range(10)]
    for topic in topics:
        at.declare(topic)
    several = concatenate([batch(0, topic=topic) for topic in topics * 2])
    at.do(1, Publish("p", "me", 6, EventBatch.parse(bytearray(several.data))))
    for number, topic in enumerate(topics):
        at.do(1, Publish("p", "me", 26 + number, batch(0, topic=topic)))
    found: list[int] = []
    base, answers = before, 0
    while base < before + 35:
        (answer,) = at.do(2, Fetch(1, "p", base, before + 35, "u.*", "n = 0", 1 << 20))
        assert isinstance(answer, Fetched)
        assert answer.batch is None or len(set(answer.batch.prelude("shape").tolist())) <= 3
        found += values(answer)
        base, answers = answer.upto, answers + 1
    assert found == [before + 6 + each for each in range(30)]
    assert answers >= 10


def test_an_event_whose_topic_the_tables_have_lost_is_not_answered_for() -> None:
    """An error at this place would end the broker each time that somebody fetches the event."""
    at, before = desk()
    at.declare("u")
    (answer,) = at.do(1, Publish("p", "me", 6, batch(0, topic="u")))
    assert isinstance(answer, Published)
    last = answer.tick
    del at.registry.topics["u"]
    # What comes before it is read, and so is what cannot be meant.
    (answer,) = at.do(2, Fetch(1, "p", before, last, ">", "n >= 3", 1 << 20))
    assert isinstance(answer, Fetched)
    assert (values(answer), answer.upto) == ([before + 4, before + 5], last - 1)
    (answer,) = at.do(2, Fetch(2, "p", last - 1, last, "t", "n >= 3", 1 << 20))
    assert isinstance(answer, Fetched)
    assert (values(answer), answer.upto) == ([], last)
    (answer,) = at.do(2, Fetch(3, "p", last - 1, last, "u", "", 1 << 20))
    assert isinstance(answer, Refused)
    assert (answer.name, answer.code) == ("3", "schema")


def reached(at: Desk, **given: object) -> dict[str, object] | Refused:
    """What a client is told who asks where events lie."""
    said = {"pubend": "p", "pattern": "t", "selector": "", **given}
    (answer,) = at.do(2, Ask(5, "reach", json.dumps(said)))
    if isinstance(answer, Refused):
        return answer
    assert isinstance(answer, Answer)
    found: dict[str, object] = json.loads(answer.payload)
    return found


def test_a_reader_is_told_where_the_nth_event_lies_and_is_sent_none() -> None:
    at, before = desk()

    def asked(events: int, base: int = before, **given: object) -> object:
        return reached(at, base=base, upto=before + 5, events=events, **given)

    assert asked(2) == {"upto": before + 2, "events": 2, "is_whole": True}
    assert asked(2, before + 1) == {"upto": before + 3, "events": 2, "is_whole": True}
    assert asked(9) == {"upto": before + 5, "events": 5, "is_whole": True}
    assert asked(1, selector="n >= 3") == {"upto": before + 4, "events": 1, "is_whole": True}
    assert asked(1, pattern="other") == {"upto": before + 5, "events": 0, "is_whole": True}


class Readings:
    """Stands for the reading of the log: a test answers each part."""

    def __init__(self) -> None:
        self.bases: list[int] = []

    def read_for(self, client: int, frame: Fetch, answered: Callable[[Fetched], None], _: object) -> None:
        assert client == 3
        self.bases.append(frame.base)
        self.answered = answered

    def tell(self, upto: int, *ticks: int) -> None:
        found = batch(*ticks) if ticks else None
        self.answered(Fetched(1, "p", self.bases[-1], upto, TICK_MIN, found))


@pytest.mark.parametrize(
    ("events", "wanted"), [(3, (12, 3, [0, 10])), (4, (20, 4, [0, 10])), (9, (20, 4, [0, 10]))]
)
def test_counting_goes_on_part_by_part_and_not_for_ever(
    events: int, wanted: tuple[int, int, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "READS_MAX", 2)
    readings, found = Readings(), list[EventsReached]()
    asked = Fetch(0, "p", 0, 99, "t", "", 1)
    search: Any = reach.EventSearch
    search(readings, 3, asked, events, found.append, pytest.fail)
    readings.tell(10, 3, 8)
    readings.tell(20, 12, 20)
    (answer,) = found
    assert (answer.upto, answer.events, readings.bases) == wanted
    assert answer.is_whole


def test_counting_ends_before_what_the_log_has_let_go() -> None:
    at, before = desk()
    found = reached(at, base=TICK_MIN, upto=before + 5, events=2)
    assert found == {"upto": TICK_MIN, "events": 0, "is_whole": False}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"base": 5, "upto": 4}, "frame"),
        ({"base": "x"}, "frame"),
        ({"base": True}, "frame"),
        ({"upto": 2**63 - 1}, "frame"),
        ({"events": 0}, "frame"),
        ({"events": 2**63}, "frame"),
        ({"pattern": "a..b"}, "selector"),
        ({"selector": "n >"}, "selector"),
        ({"pubend": "nowhere"}, "pubend"),
        ({"pubend": 3}, "frame"),
    ],
)
def test_a_question_where_events_lie_that_makes_no_sense_is_refused(
    given: dict[str, object], code: str
) -> None:
    at, before = desk()
    answer = reached(at, **{"base": before, "upto": before + 5, "events": 1, **given})
    assert isinstance(answer, Refused)
    assert (answer.what, answer.name, answer.code) == ("ask", "5", code)


def test_counting_is_refused_where_a_topic_is_unknown_and_counts_as_a_fetch_of_its_client() -> None:
    at, before = desk()
    del at.registry.topics["t"]
    answer = reached(at, base=before, upto=before + 5, events=1, selector="n >= 3")
    assert isinstance(answer, Refused)
    assert answer.code == "schema"
    at.declare()
    for ticket in range(1, FETCHES_MAX + 1):
        at.say(3, Fetch(ticket, "p", before, before + 5, ">", "", 1 << 20))
    (refused,) = told(at.say(3, Ask(5, "reach", question(before))), 3)
    assert isinstance(refused, Refused)
    assert refused.code == "limit"
    # Who is gone is told nothing.
    effects = at.say(4, Ask(5, "reach", question(before)))
    at.gone(4)
    assert not told(at.finish(effects), 4)


def question(before: int) -> str:
    asked = {"pubend": "p", "base": before, "upto": before + 5, "pattern": ">", "selector": "", "events": 1}
    return json.dumps(asked)


def test_a_neighbour_that_fetches_an_event_of_an_unknown_topic_is_answered_once_it_is_known() -> None:
    at, before = desk()
    at.link("d")
    at.hear("d", Hello("d", 1))
    del at.registry.topics["t"]
    assert not sent(
        at.finish(at.hear("d", Fetch(4, "p", before, before + 5, "t", "n >= 3", 9_999))), "d", Fetched
    )
    assert at.broker.counters["topics_unknown"] == 1
    answered = at.finish(at.say(9, Topic("t", False, (SCHEMA.text,))))
    (answer,) = sent(answered, "d", Fetched)
    assert values(answer) == [before + 4, before + 5]


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


# On the way.


class NoRules:
    """Everybody may see everything."""

    is_open = True

    def fetched(self, _: int, __: Fetch, answer: Fetched) -> Fetched:
        """The answer as it is."""
        return answer


class OnTheWay:
    """The fetches of a broker that has the pubend `p` from "up"."""

    def __init__(self) -> None:
        self.at = AtStream()
        self.at.attach()
        self.fetching = Fetching({}, {"p": self.at.stream}, registry(), self.at.turn, NoRules())

    def passed(self, ticket: int, peer: str = "down", bytes_max: int = 1 << 20) -> list[Fetch]:
        """A neighbour passes a fetch on; returns the fetches that this broker then passes on."""
        self.fetching.passed(peer, Fetch(ticket, "p", ticket * 10, ticket * 10 + 10, ">", "", bytes_max))
        return self.asked()

    def fetched(self, asked: Fetch) -> list[Effect]:
        """The neighbour answers; returns the effects of this broker."""
        self.fetching.fetched("up", Fetched(asked.ticket, "p", asked.base, asked.upto, 0))
        return self.at.take()

    def pass_time(self, us: int) -> list[Fetch]:
        """Time passes; returns the fetches that this broker then passes on."""
        self.at.turn.now += us
        self.fetching.wake()
        return self.asked()

    def asked(self) -> list[Fetch]:
        """The fetches passed on to "up"; there is nothing else."""
        found = []
        for effect in self.at.take():
            assert isinstance(effect, SendPeer)
            assert effect.peer == self.at.stream.upstream
            assert isinstance(effect.frame, Fetch)
            found.append(effect.frame)
        return found


def test_a_fetch_that_is_repeated_while_it_is_under_way_is_the_same_question() -> None:
    on = OnTheWay()
    (asked,) = on.passed(1)
    assert on.passed(1) == []
    assert on.fetching._counters["fetches_repeated"] == 1
    (answer,) = on.fetched(asked)
    assert isinstance(answer, SendPeer)
    assert (answer.peer, answer.frame) == ("down", Fetched(1, "p", 10, 20, 0))
    assert on.fetched(asked) == [], "one answer is enough"
    assert len(on.passed(1)) == 1, "the answer was lost"


def test_a_late_answer_is_asked_for_again_ever_later() -> None:
    on = OnTheWay()
    on.passed(1)
    quarters = [quarter for quarter in range(1, 160) if on.pass_time(AGAIN_US // 4)]
    assert quarters == [4, 12, 28, 60, 124]


def test_another_neighbour_is_asked_at_once_for_what_the_one_before_was_asked_for() -> None:
    on = OnTheWay()
    (before,) = on.passed(1)
    on.at.attach("other")
    on.fetching.attached("p")
    (asked,) = on.asked()
    assert (asked.base, asked.upto) == (before.base, before.upto)


def test_what_is_under_way_is_bounded_and_the_rest_waits_its_turn() -> None:
    on = OnTheWay()
    asked = [fetch for ticket in range(10) for fetch in on.passed(ticket)]
    assert sum(fetch.bytes_max for fetch in asked) <= UNDER_WAY_BYTES
    done = 0
    while asked:
        on.at.turn.now += 1_000
        effects = on.fetched(asked.pop(0))
        done += 1
        asked += [each.frame for each in effects if isinstance(each, SendPeer) and each.peer == "up"]  # type: ignore[misc]
    assert done == 10


def test_who_is_gone_makes_room_for_those_that_wait() -> None:
    on = OnTheWay()
    first = on.passed(1, "down") + on.passed(2, "down")
    assert len(first) == 2
    assert on.passed(3, "below") == []
    on.fetching.gone("down")
    (asked,) = on.asked()
    assert asked.base == 30


def test_a_client_that_repeats_a_ticket_gets_one_answer() -> None:
    at, before = desk()
    frame = Fetch(1, "p", before, before + 5, ">", "", 1 << 20)
    effects = at.say(2, frame)
    assert at.say(2, frame) == []
    assert len([each for each in at.finish(effects) if isinstance(each, SendClient)]) == 1


def test_a_client_that_gives_two_questions_one_ticket_is_told() -> None:
    """If the second were taken for a repetition of the first, nobody would answer it."""
    at, before = desk()
    at.say(2, Fetch(1, "p", before, before + 2, ">", "", 1 << 20))
    (refused,) = told(at.say(2, Fetch(1, "p", before + 2, before + 5, ">", "", 1 << 20)), 2)
    assert isinstance(refused, Refused)
    assert (refused.name, refused.code) == ("1", "ticket")


class CountedStreams(dict[str, Any]):
    """The streams of a broker; counts how often one was looked up."""

    looked_up = 0

    def get(self, pubend: str, default: object = None) -> Any:
        """Return the stream of a pubend."""
        self.looked_up += 1
        return super().get(pubend, default)


def test_fetches_that_wait_for_a_full_way_are_not_looked_at_again_and_again() -> None:
    on = OnTheWay()
    on.fetching._streams = streams = CountedStreams(on.fetching._streams)
    asked = [fetch for number in range(1, 2_001) for fetch in on.passed(number, f"down{number // 100}")]
    assert streams.looked_up <= 3 * 2_000
    streams.looked_up = 0
    on.pass_time(1_000)
    on.fetching.gone("nobody")
    assert streams.looked_up <= 10
    done = 0
    while asked:
        on.at.turn.now += 1_000
        effects = on.fetched(asked.pop(0))
        done += 1
        asked += [each.frame for each in effects if isinstance(each, SendPeer) and each.peer == "up"]  # type: ignore[misc]
    assert done == 2_000
    assert streams.looked_up <= 6 * 2_000


def test_what_waits_is_passed_on_in_the_order_in_which_it_came_also_by_another_way() -> None:
    on = OnTheWay()
    first = [fetch for number in range(1, 11) for fetch in on.passed(number)]
    assert [fetch.base for fetch in first] == [10, 20]
    on.at.attach("other")
    on.fetching.attached("p")
    found = on.asked()
    while len(found) < 10:
        answered = found[-1]
        on.at.turn.now += 1_000
        on.fetching.fetched("other", Fetched(answered.ticket, "p", answered.base, answered.upto, 0))
        effects = on.at.take()
        found += [each.frame for each in effects if isinstance(each, SendPeer) and each.peer == "other"]  # type: ignore[misc]
    assert [fetch.base for fetch in found] == [10 * number for number in range(1, 11)]


def test_all_clients_and_neighbours_together_have_only_so_many_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching_module, "FETCHES_ALL_MAX", 3)
    at = Desk(upstream="a", downstream=("d",))
    for client in (1, 2, 3):
        assert at.say(client, Fetch(1, "p", 0, 10, ">", "", 1)) == []
    (refused,) = told(at.say(4, Fetch(7, "p", 0, 10, ">", "", 1)), 4)
    assert isinstance(refused, Refused)
    assert (refused.name, refused.code) == ("7", "limit")
    assert "try again later" in refused.reason
    at.gone(2)
    assert at.say(4, Fetch(7, "p", 0, 10, ">", "", 1)) == []
    on = OnTheWay()
    for number in range(1, 7):
        on.passed(number)
    assert len(on.fetching._asked) == 3, "a neighbour asks again for what was dropped"
