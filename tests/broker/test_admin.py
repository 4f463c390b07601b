"""What an administrator may ask a broker, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.desk import MORNING, Desk, batch, told
from tidemark.broker.admin import Admin
from tidemark.broker.effects import CommitTables, CountPfs, DropSubscription, Owed, PfsCounted, SaveReleased
from tidemark.broker.hosting.owed import OwedOf
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.ticks import CheckpointToken
from tidemark.wire.answers import SubscriptionStatus
from tidemark.wire.frames import Answer, Ask, Deliver, Publish, Refused, Subscribe, Topic, Unsubscribe
from tidemark.wire.questions import PAGE_ITEMS_MAX, WHOLE_ITEMS_MAX


def ask(at: Desk, what: str, **arguments: Any) -> Any:
    (frame,) = at.do(80, Ask(7, what, json.dumps(arguments)))
    assert isinstance(frame, Answer), frame
    assert frame.ticket == 7
    return json.loads(frame.payload)


def refusal(at: Desk, what: str, arguments: str) -> Refused:
    effects = at.say(80, Ask(7, what, arguments))
    (frame,) = told(effects, 80)
    assert isinstance(frame, Refused)
    assert (frame.what, frame.name) == ("ask", "7")
    assert len(effects) == 1
    return frame


@pytest.fixture
def at() -> Desk:
    """A broker with a subscriber `s` that was told three events and acknowledged none, and is away."""
    made = Desk()
    made.declare()
    made.pass_time(0.2)
    made.finish(made.say(1, Subscribe("s", "t", "n > 1", True, 10_000)))
    made.pass_time(0.3)
    made.finish(made.say(50, Publish("p", "me", 1, batch(0, 1, 2, values=(2, 3, 4)))))
    made.pass_time(0.3)
    made.gone(1)
    return made


def test_topics(at: Desk) -> None:
    at.do(1, Topic("a", True, ()))
    assert ask(at, "topics") == [
        {"topic": "a", "open": True, "schemas": [], "generation": 0},
        {"topic": "t", "open": False, "schemas": ["[n: int]"], "generation": 0},
    ]


def test_the_archive_may_ask_to_let_go_what_it_has() -> None:
    at = Desk(pubend_policy=PubendPolicy(archive=True))
    at.declare()
    at.pass_time(0.2)
    at.finish(at.say(1, Subscribe("s", "t", "n > 1", True, 10_000)))
    at.pass_time(0.3)
    at.finish(at.say(50, Publish("p", "me", 1, batch(0, 1, 2, values=(2, 3, 4)))))
    at.gone(1)
    at.pass_time(0.3)
    (pubend,) = ask(at, "pubends")
    last = pubend["last_event"]
    # The archive does not have it yet, and so it stays.
    (pubend,) = ask(at, "let_go", token=CheckpointToken({"p": last}).text())
    assert pubend["lost"] is None or pubend["lost"] < last
    ask(at, "archived", token=CheckpointToken({"p": last}).text())
    (pubend,) = ask(at, "let_go", token=CheckpointToken({"p": last}).text())
    assert pubend["lost"] == last
    other = json.dumps({"token": CheckpointToken({"q": 7}).text()})
    assert refusal(at, "let_go", other).code == "pubend"


def test_without_an_archive_nothing_is_let_go_for_it(at: Desk) -> None:
    token = json.dumps({"token": CheckpointToken({"p": 7}).text()})
    assert refusal(at, "let_go", token).code == "unknown"


def test_pubends(at: Desk) -> None:
    (pubend,) = ask(at, "pubends")
    assert pubend["pubend"] == "p"
    assert pubend["publishers"] == 1
    assert pubend["bytes"] > 0
    assert pubend["lost"] is None, "there was silence, and then events that nobody has acknowledged"
    assert pubend["last_event"] <= pubend["position"]


def test_streams(at: Desk) -> None:
    (stream,) = ask(at, "streams")
    assert stream["pubend"] == "p"
    assert stream["catching_up"] == 0
    assert stream["synced"] <= stream["delivered"] <= stream["position"]


def test_subscriptions(at: Desk) -> None:
    start = ask(at, "subscriptions")[0]["pubends"]["p"]["start"]
    last = ask(at, "pubends")[0]["last_event"]
    owed = ask(at, "subscriptions")[0]["pubends"]["p"]
    assert owed["owed_events"] == 3
    assert owed["owed_bytes"] == 3 * 16
    assert ask(at, "subscriptions") == [
        {
            "name": "s",
            "durable": True,
            "connected": False,
            "pattern": "t",
            "selector": "n > 1",
            "changing": False,
            "credit": 0,
            "checkpoint": CheckpointToken({"p": start}).text(),
            "pubends": {
                "p": {
                    "start": start,
                    "acknowledged": start,
                    "told": None,
                    "lag_us": MORNING + at.now - (last - 2),
                    "catching_up": False,
                    "recall": None,
                    "owed_events": owed["owed_events"],
                    "owed_bytes": owed["owed_bytes"],
                    "is_exact": True,
                }
            },
            "over_quota": False,
            "gaps": 0,
            "slow": 0,
        }
    ]
    assert ask(at, "subscription", name="s") == ask(at, "subscriptions")[0]


def test_a_subscription_that_has_everything_has_no_lag(at: Desk) -> None:
    ask(at, "seek", name="s", to=ask(at, "pubends")[0]["last_event"])
    assert ask(at, "subscription", name="s")["pubends"]["p"]["lag_us"] == 0
    at.pass_time(1.0)
    assert ask(at, "subscription", name="s")["pubends"]["p"]["lag_us"] == 0


def test_a_subscription_is_removed_and_the_answer_comes_after_the_disk(at: Desk) -> None:
    effects = at.say(80, Ask(7, "remove", '{"name": "s"}'))
    assert [type(each) for each in effects] == [DropSubscription, CommitTables]
    assert told(at.finish(effects), 80) == [Answer(7, '{"removed": "s"}')]
    assert ask(at, "subscriptions") == []


def test_one_that_is_connected_is_removed_only_by_force(at: Desk) -> None:
    at.do(2, Subscribe("s", "t", "n > 1", True, 10_000))
    assert refusal(at, "remove", '{"name": "s"}').code == "taken"
    assert ask(at, "remove", name="s", force=True) == {"removed": "s"}
    assert ask(at, "subscriptions") == []
    assert isinstance(at.do(2, Unsubscribe("s"))[0], Refused)
    at.gone(2)


def test_seeking_moves_a_subscription_forward_to_a_tick(at: Desk) -> None:
    first = ask(at, "pubends")[0]["last_event"] - 2
    effects = at.say(80, Ask(7, "seek", json.dumps({"name": "s", "to": first})))
    assert effects[0] == SaveReleased(1, CheckpointToken({"p": first}))
    at.finish(effects)
    frames = at.do(2, Subscribe("s", "t", "n > 1", True, 10_000))
    (deliver,) = [f for f in frames if isinstance(f, Deliver) and f.batch is not None]
    assert deliver.batch is not None
    assert deliver.batch.ticks.tolist() == [first + 1, first + 2]


def test_seeking_to_now_or_to_a_token(at: Desk) -> None:
    last = ask(at, "pubends")[0]["last_event"]
    token = CheckpointToken({"p": last - 1, "elsewhere": 5})
    moved = ask(at, "seek", name="s", to=token.text())
    assert moved["checkpoint"] == CheckpointToken({"p": last - 1}).text()
    moved = ask(at, "seek", name="s")
    assert moved["pubends"]["p"]["acknowledged"] == ask(at, "streams")[0]["delivered"]


@pytest.mark.parametrize(
    ("what", "arguments", "code"),
    [
        ("weather", "{}", "unknown"),
        ("topics", "{", "frame"),
        ("topics", "[]", "frame"),
        ("subscription", "{}", "unknown"),
        ("subscription", '{"name": 5}', "unknown"),
        ("remove", '{"name": "nobody"}', "unknown"),
        ("seek", '{"name": "nobody"}', "unknown"),
        ("seek", '{"name": "s", "to": 5}', "frame"),
        ("seek", '{"name": "s", "to": 4611686018427387904}', "frame"),
        ("seek", '{"name": "s", "to": 99999999999999999999999}', "frame"),
        ("seek", '{"name": "s", "to": "yesterday"}', "frame"),
        ("seek", '{"name": "s", "to": null}', "frame"),
        ("seek", '{"name": "s", "to": true}', "frame"),
        ("select", '{"name": "nobody"}', "unknown"),
        ("select", '{"name": "s", "where": 5}', "frame"),
        ("select", '{"name": "s", "where": "n >"}', "selector"),
        ("select", '{"name": "s", "where": "m > 5"}', "selector"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    at: Desk, what: str, arguments: str, code: str
) -> None:
    before = ask(at, "subscriptions")
    assert refusal(at, what, arguments).code == code
    assert ask(at, "subscriptions") == before


def test_one_that_is_connected_is_not_moved(at: Desk) -> None:
    at.do(2, Subscribe("s", "t", "n > 1", True, 10_000))
    assert refusal(at, "seek", '{"name": "s"}').code == "taken"


def test_a_selector_is_changed_from_a_tick_on_while_its_subscriber_is_away(at: Desk) -> None:
    before = ask(at, "subscription", name="s")
    changed = ask(at, "select", name="s", where="n > 2")
    assert changed["selector"] == "n > 2"
    assert {**changed, "selector": 0, "changing": 0} == {**before, "selector": 0, "changing": 0}
    at.do(2, Subscribe("s", "t", "n > 2", True, 10_000))
    assert refusal(at, "select", '{"name": "s", "where": "n > 3"}').code == "taken"


def test_a_question_that_is_not_known_names_those_that_are(at: Desk) -> None:
    assert "subscriptions" in refusal(at, "weather", "{}").reason


def many(at: Desk, count: int) -> list[str]:
    """Make subscriptions; returns the names of all that there are then, in the order of answers."""
    names = [f"many {number}" for number in range(count)]
    for name in names:
        at.say(2, Subscribe(name, "t", "", False, 0))
    return ["s", *names]


def test_a_page_costs_as_much_as_it_holds(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    names = many(at, 1_000)
    described: list[str] = []
    describe = Admin.subscription

    def counted(self: Admin, subscription: HostedSubscription, owed: OwedOf) -> SubscriptionStatus:
        described.append(subscription.name)
        return describe(self, subscription, owed)

    monkeypatch.setattr(Admin, "subscription", counted)
    found: list[str] = []
    after: str | None = ""
    pages = 0
    while after is not None:
        described.clear()
        page = ask(at, "subscriptions", limit=100, after=after)
        assert len(described) <= 101
        found += [each["name"] for each in page["items"]]
        after, pages = page["next"], pages + 1
    assert found == names
    assert pages == 11


def test_a_page_has_no_more_items_than_brokers_give(at: Desk) -> None:
    many(at, 300)
    page = ask(at, "subscriptions", limit=10**9)
    assert len(page["items"]) == PAGE_ITEMS_MAX
    assert page["next"]


def test_a_page_of_large_items_is_short(at: Desk) -> None:
    for number in range(10):
        fields = ", ".join(f"field_{at}: int" for at in range(2_000))
        at.do(1, Topic(f"large.{number}", False, (f"[{fields}]",)))
    page = ask(at, "topics", limit=100)
    assert 1 < len(page["items"]) < 10
    rest = ask(at, "topics", limit=100, after=page["next"])
    assert page["items"][-1]["topic"] < rest["items"][0]["topic"]


def test_a_long_answer_is_refused_to_those_who_ask_for_no_page(at: Desk) -> None:
    many(at, WHOLE_ITEMS_MAX)
    found = refusal(at, "subscriptions", "{}")
    assert found.code == "limit"
    assert "ask for pages, with the arguments limit and after" in found.reason


def test_a_question_that_changes_nothing_waits_for_no_disk(at: Desk) -> None:
    effects = at.say(80, Ask(7, "streams", "{}"))
    assert isinstance(told(effects, 80)[0], Answer)
    assert not any(isinstance(effect, CommitTables) for effect in effects)


def test_what_is_owed_is_counted_once_for_all_and_only_where_there_may_be_something(at: Desk) -> None:
    many(at, 3)
    start = ask(at, "subscription", name="s")["pubends"]["p"]["start"]
    effects = at.say(80, Ask(7, "subscriptions", "{}"))
    (counting,) = effects
    assert isinstance(counting, CountPfs)
    assert counting.bases == {1: start}
    assert isinstance(told(at.finish(effects), 80)[0], Answer)


def test_a_count_that_takes_too_much_reading_goes_on_until_it_is_whole(at: Desk) -> None:
    (counting,) = at.say(80, Ask(7, "subscription", '{"name": "s"}'))
    assert isinstance(counting, CountPfs)
    assert at.give(PfsCounted(counting.ticket, "p", None)) == [counting]
    answers = told(at.give(PfsCounted(counting.ticket, "p", {1: Owed(4, 400, None)})), 80)
    assert '"owed_events": 4, "owed_bytes": 400' in answers[0].payload  # type: ignore[union-attr]


def test_who_is_owed_nothing_has_no_lag_whatever_others_publish(at: Desk) -> None:
    at.do(2, Subscribe("calm", "t", "n > 1000", True, 10_000))
    at.pass_time(0.3)
    at.finish(at.say(50, Publish("p", "me", 4, batch(0, 1, 2, values=(2, 3, 4)))))
    at.pass_time(0.3)
    found = ask(at, "subscription", name="calm")["pubends"]["p"]
    assert (found["lag_us"], found["owed_events"], found["owed_bytes"]) == (0, 0, 0)
    assert ask(at, "subscription", name="s")["pubends"]["p"]["owed_events"] == 6
