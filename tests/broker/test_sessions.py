"""Sessions: who may subscribe and who is refused, whose connection counts, when what is confirmed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.desk import MORNING, SCHEMA, Desk, batch, told
from tidemark.broker.config import Recovered
from tidemark.broker.effects import (
    CommitTables,
    DropSubscription,
    RecoveredPubend,
    SaveReleased,
    SaveSubscription,
    SelectorSince,
    SendClient,
    TablesCommitted,
)
from tidemark.broker.hosting.subscription import SELECTORS_MAX
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import CheckpointToken
from tidemark.ticks.tick import CLOCKS_APART_MAX
from tidemark.wire.frames import (
    Ack,
    Acked,
    Ask,
    ClientFrame,
    Credit,
    Deliver,
    Gap,
    Publish,
    Published,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)

NOWHERE = CheckpointToken()


def desk() -> Desk:
    made = Desk()
    made.declare()
    made.pass_time(0.2)
    return made


def subscribe(
    name: str = "s",
    selector: str = "n > 1",
    *,
    pattern: str = "t",
    durable: bool = True,
    credit: int = 10_000,
    token: CheckpointToken | None = None,
) -> Subscribe:
    return Subscribe(name, pattern, selector, durable, credit, token)


def started(at: Desk, client: int = 1, frame: Subscribe | None = None) -> int:
    """A subscriber that has come and started; at which tick."""
    said = told(at.finish(at.say(client, frame or subscribe())), client)
    (tick,) = {each.token["p"] for each in said if isinstance(each, Subscribed)}
    at.pass_time(0.3)
    return tick


def publish(at: Desk, *values: int) -> list[ClientFrame]:
    """Publish one batch; returns the frames that the clients 1 to 9 were sent."""
    sequence = getattr(at, "published", 0) + 1
    at.published = sequence + len(values) - 1  # type: ignore[attr-defined]  # how far this desk has got
    frame = Publish("p", "me", sequence, batch(*range(len(values)), values=values))
    effects = at.finish(at.say(50, frame))
    return [frame for client in range(1, 10) for frame in told(effects, client)]


def values_of(frames: list[ClientFrame]) -> list[int]:
    n = SCHEMA.accessor("n")
    batches = [frame.batch for frame in frames if isinstance(frame, Deliver) and frame.batch is not None]
    return [n(each.message(row)) for each in batches for row in range(each.count)]


def shown(at: Desk, name: str = "s") -> dict[str, Any]:
    """What an administrator sees of a subscription."""
    (answer,) = at.do(80, Ask(1, "subscription", json.dumps({"name": name})))
    return dict(json.loads(answer.payload))  # type: ignore[union-attr]  # it is known


# Coming for the first time.


def test_a_durable_subscriber_is_told_when_it_is_on_disk_and_starts_when_its_start_is() -> None:
    at = desk()
    wanted = TopicSelector("t", "n > 1")
    (save, start, saved, commit) = at.say(1, subscribe())
    assert save == SaveSubscription(1, "s", (SelectorSince(wanted),))
    assert isinstance(saved, SaveReleased)
    assert start == SaveSubscription(1, "s", (SelectorSince(wanted, saved.token),), saved.token)
    assert isinstance(commit, CommitTables)
    (told_so,) = at.give(TablesCommitted(commit.ticket))
    assert told_so == SendClient(1, Subscribed("s", saved.token, saved.token))
    assert values_of(publish(at, 1, 2, 3)) == [2, 3]


def test_another_subscriber_starts_without_the_disk_and_ends_with_its_connection() -> None:
    at = desk()
    (effect,) = at.say(1, subscribe(durable=False))
    assert isinstance(effect, SendClient)
    assert isinstance(effect.frame, Subscribed)
    assert set(effect.frame.token) == {"p"}  # it has started
    assert values_of(publish(at, 1, 2)) == [2]
    assert not [each for each in at.gone(1) if isinstance(each, SendClient | DropSubscription)]
    assert publish(at, 2) == []
    (refused,) = at.do(80, Ask(1, "subscription", '{"name": "s"}'))
    assert isinstance(refused, Refused)


def test_a_subscriber_that_is_gone_before_it_is_on_disk_is_away_then() -> None:
    at = desk()
    effects = at.say(1, subscribe())
    at.gone(1)
    assert told(at.finish(effects), 1) == []
    assert shown(at)["connected"] is False
    assert at.do(2, Unsubscribe("s")) == [Unsubscribed("s")]


def test_two_that_come_with_one_name_before_it_is_on_disk_leave_the_later_one_connected() -> None:
    at = desk()
    effects = at.say(1, subscribe()) + at.say(2, subscribe())
    effects = at.finish(effects)
    assert any(isinstance(frame, Subscribed) for frame in told(effects, 2))
    at.gone(1)
    assert shown(at)["connected"] is True
    at.pass_time(0.3)
    assert values_of(publish(at, 2)) == [2]


# Refusals.


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        (subscribe(selector="n >"), "selector", "character 4"),
        (subscribe(selector="m = 1"), "selector", "no field `m`"),
        (subscribe(selector="n = 'x'"), "selector", "n"),
        (subscribe(selector="n = 1 " + "OR n = 1 " * 2_000), "selector", "4096 characters"),
        (subscribe(pattern="t..u"), "topic", "t..u"),
        (subscribe(pattern="t.>.u"), "topic", "t.>.u"),
    ],
    ids=["syntax", "no such field", "type", "limit", "empty level", "rest in the middle"],
)
def test_a_subscriber_is_refused_with_a_code_and_a_reason(frame: Subscribe, code: str, reason: str) -> None:
    at = desk()
    (effect,) = at.say(1, frame)
    assert isinstance(effect, SendClient)
    refused = effect.frame
    assert isinstance(refused, Refused)
    assert (refused.what, refused.name, refused.code) == ("subscribe", "s", code)
    assert reason in refused.reason
    assert isinstance(at.do(1, subscribe())[0], Subscribed)  # nothing is left of it


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (False, False)])
def test_a_name_that_is_taken_by_another_kind_of_subscription_is_refused(first: bool, second: bool) -> None:
    at = desk()
    at.finish(at.say(1, subscribe(durable=first)))
    (refused,) = told(at.say(2, subscribe(durable=second)), 2)
    assert isinstance(refused, Refused)
    assert refused.code == "taken"
    assert shown(at)["connected"] is True


def test_a_selector_is_checked_against_a_topic_that_fits_if_any_does() -> None:
    at = desk()
    assert isinstance(at.do(1, subscribe("a", "m = 1", pattern="unheard.of"))[0], Subscribed)
    assert isinstance(at.do(1, subscribe("b", "n = 1", pattern=">"))[0], Subscribed)
    (refused,) = at.do(1, subscribe("c", "m = 1", pattern=">"))
    assert isinstance(refused, Refused)


def test_what_only_a_broker_says_is_refused() -> None:
    (refused,) = desk().do(1, Subscribed("s", NOWHERE))
    assert isinstance(refused, Refused)
    assert (refused.what, refused.code) == ("Subscribed", "frame")


def test_a_pubend_that_lives_elsewhere_is_refused() -> None:
    (refused,) = desk().do(1, Publish("q", "me", 1, batch(1)))
    assert isinstance(refused, Refused)
    assert (refused.what, refused.name, refused.code) == ("publish", "me", "pubend")


# Coming again.


def test_the_newer_connection_wins_and_the_older_one_is_told() -> None:
    at = desk()
    start = started(at)
    effects = at.say(2, subscribe(token=CheckpointToken({"p": start})))
    (refused,) = told(effects, 1)
    assert isinstance(refused, Refused)
    assert (refused.name, refused.code) == ("s", "taken")
    token = CheckpointToken({"p": start})
    assert told(effects, 2)[0] == Subscribed("s", token, token)
    assert at.broker.counters["fences"] == 1
    at.finish(effects)
    frames = publish(at, 2)
    assert values_of(frames) == [2]
    assert at.gone(1) == []  # the older one's end changes nothing
    assert shown(at)["connected"] is True


def test_a_connection_may_subscribe_again_itself() -> None:
    at = desk()
    start = started(at)
    effects = at.finish(at.say(1, subscribe(token=CheckpointToken({"p": start}))))
    assert not [frame for frame in told(effects, 1) if isinstance(frame, Refused)]
    assert at.broker.counters["fences"] == 0
    assert values_of(publish(at, 2)) == [2]


def test_late_acknowledgements_and_credit_of_a_fenced_connection_are_ignored() -> None:
    at = desk()
    start = started(at)
    at.finish(at.say(2, subscribe(credit=5)))
    later = CheckpointToken({"p": start + 10_000})
    assert at.say(1, Ack((("s", later),))) == []
    assert at.say(1, Credit("s", 1_000)) == []
    at.pass_time(0.5)
    assert shown(at)["pubends"]["p"]["acknowledged"] == start
    assert shown(at)["credit"] == 5


def test_a_late_acknowledgement_that_is_to_be_confirmed_is_refused() -> None:
    at = desk()
    start = started(at)
    at.finish(at.say(2, subscribe()))
    frames = at.do(1, Ack((("s", CheckpointToken({"p": start + 10_000})),), 7))
    (refused,) = frames
    assert isinstance(refused, Refused)
    assert (refused.what, refused.name, refused.code) == ("ack", "7", "taken")
    assert shown(at)["pubends"]["p"]["acknowledged"] == start


def test_a_subscriber_goes_on_from_its_token_or_from_what_it_acknowledged() -> None:
    at = desk()
    start = started(at)
    publish(at, 2)
    publish(at, 3)
    told_upto = shown(at)["pubends"]["p"]["told"]
    at.gone(1)
    frames = at.do(2, subscribe(token=CheckpointToken({"p": told_upto})))
    assert values_of(frames) == []
    at.gone(2)
    frames = at.do(3, subscribe())  # nothing was ever acknowledged
    assert frames[0] == Subscribed("s", CheckpointToken({"p": start}), CheckpointToken({"p": start}))
    assert values_of(frames) == [2, 3]


# Acknowledging.


def test_an_acknowledgement_with_a_ticket_is_confirmed_once_it_is_on_disk() -> None:
    at = desk()
    start = started(at)
    token = CheckpointToken({"p": start + 5})
    (save, commit) = at.say(1, Ack((("s", token),), 3))
    assert save == SaveReleased(1, token)
    assert isinstance(commit, CommitTables)
    assert at.give(TablesCommitted(commit.ticket)) == [SendClient(1, Acked(3))]


def test_an_acknowledgement_without_one_is_saved_now_and_then() -> None:
    at = desk()
    start = started(at)
    token = CheckpointToken({"p": start + 5})
    assert at.say(1, Ack((("s", token),))) == []
    effects = at.pass_time(0.5)
    assert [each for each in effects if isinstance(each, SaveReleased)] == [SaveReleased(1, token)]
    assert told(effects, 1) == []


def test_an_acknowledgement_never_goes_back_nor_where_there_is_no_start() -> None:
    at = desk()
    start = started(at)
    at.do(1, Ack((("s", CheckpointToken({"p": start + 5, "q": 9})),), 1))
    at.do(1, Ack((("s", CheckpointToken({"p": start + 3})),), 2))
    assert shown(at)["pubends"]["p"]["acknowledged"] == start + 5
    assert shown(at)["pubends"].keys() == {"p"}


FUTURE = MORNING + 3_600_000_000


def refusal(frames: list[ClientFrame]) -> tuple[str, str, str]:
    """What was refused, which, and why; it says up to where the token may go at the most."""
    (refused,) = [each for each in frames if isinstance(each, Refused)]
    assert refused.code == "token"
    return refused.what, refused.name, refused.reason


def test_an_acknowledgement_from_the_future_is_refused_with_what_it_could_have_been() -> None:
    at = desk()
    start = started(at)
    other = started(at, 1, subscribe("s2"))
    pairs = (("s2", CheckpointToken({"p": other + 1})), ("s", CheckpointToken({"p": FUTURE})))
    what, name, reason = refusal(at.do(1, Ack(pairs, 4)))
    assert (what, name) == ("ack", "4")
    limit = MORNING + at.now + PubendPolicy().lease_ahead
    assert f"nothing beyond {limit} can have been" in reason
    assert reason.endswith("nothing was kept")
    what, name, _ = refusal(told(at.finish(at.say(1, Ack(pairs))), 1))
    assert (what, name) == ("subscribe", "s")
    assert shown(at)["pubends"]["p"]["acknowledged"] == start
    assert shown(at, "s2")["pubends"]["p"]["acknowledged"] == other + 1
    assert values_of(publish(at, 2)) == [2]  # to s2: that of s is over
    assert values_of(at.do(1, subscribe())) == [2]


def test_a_subscription_that_does_not_last_ends_with_an_acknowledgement_from_the_future() -> None:
    at = desk()
    at.finish(at.say(1, subscribe(durable=False)))
    at.pass_time(0.3)
    refusal(told(at.finish(at.say(1, Ack((("s", CheckpointToken({"p": FUTURE})),)))), 1))
    assert not at.broker.hosts("s")
    at.gone(1)


@pytest.mark.parametrize("known", [True, False])
def test_a_token_from_the_future_is_refused_with_what_it_could_have_been(known: bool) -> None:
    at = desk()
    if known:
        started(at)
    what, name, reason = refusal(at.do(2, subscribe(token=CheckpointToken({"p": FUTURE}))))
    assert (what, name) == ("subscribe", "s")
    assert f"consumed up to {FUTURE}, but nothing beyond" in reason
    at.gone(2)
    if known:
        assert values_of(publish(at, 2)) == [2]  # its own connection was not disturbed


def test_a_token_ahead_of_a_host_whose_clock_went_back_is_none_from_the_future() -> None:
    recovered = Recovered(pubends={"p": RecoveredPubend(last=FUTURE, lease=FUTURE + 500)})
    at = Desk(recovered=recovered)
    at.declare()
    at.pass_time(0.2)
    for tick, is_possible in ((FUTURE + 500, True), (FUTURE + 200_000_000, False)):
        frames = at.do(1, subscribe(f"s{tick}", token=CheckpointToken({"p": tick})))
        assert bool([each for each in frames if isinstance(each, Refused)]) is not is_possible


def test_of_another_brokers_pubend_a_token_may_be_ahead_by_as_much_as_clocks_are_apart() -> None:
    at = Desk(upstream="up")
    at.declare()
    at.pass_time(0.2)
    at.finish(at.say(1, subscribe("a", token=CheckpointToken({"p": FUTURE}))))
    late = MORNING + at.now + CLOCKS_APART_MAX + 1
    _, _, reason = refusal(at.do(1, subscribe("b", token=CheckpointToken({"p": late}))))
    assert f"nothing beyond {late - 1} can have been" in reason
    at.finish(at.say(1, subscribe("c", token=CheckpointToken({"unheard of": late}))))
    assert at.broker.hosts("a")
    assert at.broker.hosts("c")


def test_several_are_acknowledged_in_one_transaction() -> None:
    at = desk()
    start = started(at)
    other = started(at, 1, subscribe("s2"))
    pairs = (("s", CheckpointToken({"p": start + 1})), ("s2", CheckpointToken({"p": other + 1})))
    effects = at.say(1, Ack(pairs, 4))
    assert [type(each) for each in effects] == [SaveReleased, SaveReleased, CommitTables]
    assert told(at.finish(effects), 1) == [Acked(4)]


def test_of_a_transaction_with_a_subscription_of_somebody_else_nothing_is_kept() -> None:
    at = desk()
    start = started(at)
    other = started(at, 2, subscribe("s2"))
    pairs = (("s", CheckpointToken({"p": start + 1})), ("s2", CheckpointToken({"p": other + 1})))
    (refused,) = at.do(1, Ack(pairs, 4))
    assert isinstance(refused, Refused)
    assert (refused.what, refused.name, refused.code) == ("ack", "4", "taken")
    assert shown(at, "s")["pubends"]["p"]["acknowledged"] == start
    assert shown(at, "s2")["pubends"]["p"]["acknowledged"] == other


# Credit.


def test_without_credit_it_leaves_the_constream_and_goes_on_where_it_left() -> None:
    at = desk()
    started(at, 1, subscribe(credit=1))
    assert values_of(publish(at, 2)) == [2]
    assert values_of(publish(at, 3)) == []
    assert at.broker.counters["catchups_slow"] == 1
    assert (shown(at)["slow"], shown(at)["gaps"]) == (1, 0)
    assert shown(at)["pubends"]["p"]["catching_up"] is True
    assert values_of(publish(at, 4)) == []
    assert values_of(told(at.finish(at.say(1, Credit("s", 1_000))), 1)) == [3, 4]
    assert shown(at)["pubends"]["p"]["catching_up"] is False
    assert values_of(publish(at, 5)) == [5]


def test_one_that_is_not_durable_and_has_no_credit_gets_a_gap() -> None:
    at = desk()
    started(at, 1, subscribe(durable=False, credit=1))
    assert values_of(publish(at, 2)) == [2]
    frames = publish(at, 3)
    (gap,) = [frame for frame in frames if isinstance(frame, Gap)]
    at.say(1, Credit("s", 1_000))
    after = publish(at, 4)
    assert values_of(after) == [4]
    (deliver,) = [frame for frame in after if isinstance(frame, Deliver)]
    assert gap.upto == deliver.base


# Changing.


def test_a_changed_selector_holds_from_a_tick_on_that_is_told() -> None:
    at = desk()
    start = started(at)
    publish(at, 1, 2)
    upto = shown(at)["pubends"]["p"]["told"]
    effects = at.finish(at.say(1, subscribe(selector="n = 1")))
    first, word = (frame for frame in told(effects, 1) if isinstance(frame, Subscribed))
    assert first == Subscribed("s", CheckpointToken({"p": start}), NOWHERE)  # it does not hold yet
    since = word.since["p"]
    history = (
        SelectorSince(TopicSelector("t", "n > 1"), CheckpointToken({"p": start})),
        SelectorSince(TopicSelector("t", "n = 1"), word.since),
    )
    assert SaveSubscription(1, "s", history, CheckpointToken({"p": start})) in effects
    assert since >= upto
    assert values_of(publish(at, 1, 2)) == [1]
    assert at.broker.counters["changes"] == 1
    assert shown(at)["changing"] is True
    told_now = shown(at)["pubends"]["p"]["told"]
    effects = at.finish(at.say(1, Ack((("s", CheckpointToken({"p": told_now})),), 1)))
    now_wanted = (SelectorSince(TopicSelector("t", "n = 1"), word.since),)  # the old one is outlived
    assert SaveSubscription(1, "s", now_wanted, CheckpointToken({"p": start})) in effects
    assert shown(at)["changing"] is False


def test_who_has_not_consumed_what_lies_before_a_change_gets_it_by_the_old_selector() -> None:
    at = desk()
    started(at)
    publish(at, 1, 2)
    at.gone(1)
    at.finish(at.say(2, subscribe(selector="n = 1", credit=0)))
    at.pass_time(0.3)
    publish(at, 1, 2)
    frames = told(at.finish(at.say(2, Credit("s", 10_000))), 2)
    assert values_of(frames) == [2, 1]


def test_who_shows_a_token_with_a_changed_selector_gets_all_beyond_it_by_the_new_one() -> None:
    at = desk()
    start = started(at)
    publish(at, 1, 2)
    at.gone(1)
    token = CheckpointToken({"p": start})
    effects = at.finish(at.say(2, subscribe(selector="n = 1", token=token)))
    effects += at.pass_time(0.3)
    frames = told(effects, 2)
    assert Subscribed("s", token, token) in frames  # wherever it was meanwhile: from there on
    assert values_of([*frames, *publish(at, 1, 2)]) == [1, 1]


def test_who_shows_a_changed_selector_and_leaves_before_it_is_on_disk_is_not_forgotten() -> None:
    at = desk()
    start = started(at)
    effects = at.say(1, subscribe(selector="n = 1", token=CheckpointToken({"p": start})))
    at.gone(1)
    at.finish(effects)
    assert shown(at)["selector"] == "n = 1"
    publish(at, 1, 2)
    frames = told(at.finish(at.say(2, subscribe(selector="n = 1"))) + at.pass_time(0.3), 2)
    assert values_of(frames) == [1]


def test_a_changed_selector_on_another_connection_ends_the_one_before_which_is_told_why() -> None:
    at = desk()
    start = started(at)
    frame = subscribe(selector="n = 1", token=CheckpointToken({"p": start}))
    effects = at.finish(at.say(2, frame))
    (refused,) = told(effects, 1)
    assert isinstance(refused, Refused)
    assert refused.code == "taken"
    effects = at.pass_time(0.3)
    assert told(effects, 1) == []
    assert values_of(publish(at, 1, 2)) == [1]


def test_too_many_changes_are_refused_and_coming_again_without_one_is_not() -> None:
    at = desk()
    started(at)
    for n in range(SELECTORS_MAX - 1):
        frames = at.do(1, subscribe(selector=f"n = {n}"))
        assert isinstance(frames[0], Subscribed)
    (refused,) = at.do(1, subscribe(selector="n = 99"))
    assert isinstance(refused, Refused)
    assert refused.code == "limit"
    last = subscribe(selector=f"n = {SELECTORS_MAX - 2}")
    assert isinstance(at.do(2, last)[0], Subscribed)  # to acknowledge, so that it may change again


# Ending.


def test_an_end_is_confirmed_once_it_is_on_disk() -> None:
    at = desk()
    start = started(at)
    (drop, commit) = at.say(1, Unsubscribe("s"))
    assert drop == DropSubscription(1)
    assert isinstance(commit, CommitTables)
    assert at.give(TablesCommitted(commit.ticket)) == [SendClient(1, Unsubscribed("s"))]
    assert publish(at, 2) == []
    (word,) = at.do(1, subscribe())  # the name is free again, for a subscription that starts anew
    assert isinstance(word, Subscribed)
    assert word.token["p"] > start


def test_only_its_own_connection_or_anyone_when_it_has_none_may_end_it() -> None:
    at = desk()
    started(at)
    (refused,) = at.do(2, Unsubscribe("s"))
    assert isinstance(refused, Refused)
    assert (refused.what, refused.code) == ("unsubscribe", "taken")
    at.gone(1)
    assert at.do(2, Unsubscribe("s")) == [Unsubscribed("s")]
    (refused,) = at.do(2, Unsubscribe("s"))
    assert isinstance(refused, Refused)
    assert (refused.what, refused.name, refused.code) == ("unsubscribe", "s", "unknown")


def test_numbers_of_subscribers_are_never_given_again() -> None:
    at = desk()
    started(at)
    at.do(1, Unsubscribe("s"))
    save = at.say(1, subscribe())[0]
    assert isinstance(save, SaveSubscription)
    assert save.subscriber == 2


def test_an_acknowledged_event_is_at_a_tick_of_the_day() -> None:
    at = desk()
    (published,) = at.do(50, Publish("p", "me", 1, batch(0)))
    assert isinstance(published, Published)
    assert published.tick >= MORNING
