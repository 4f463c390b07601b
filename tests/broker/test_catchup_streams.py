"""CatchupStreams: what a subscriber gets of the time before its broker knew it, and of what was let go."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.broker.desk import MORNING, SCHEMA, SECOND, Desk, batch, sent, told
from tidemark.broker.config import Recovered
from tidemark.broker.effects import Effect, LinkDown, LinkUp, ReadLog, ReadPfs, RefuseClient, Stimulus
from tidemark.broker.hosting.host import HostPolicy
from tidemark.broker.hosting.recalls import RECALL_BYTES_MAX
from tidemark.broker.hosting.subscription import SavedSubscription, SelectorPeriod
from tidemark.broker.publishing.fetching import AGAIN_US
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape, concatenate
from tidemark.message.schema import Schema
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import (
    Ack,
    Ask,
    Claim,
    ClientFrame,
    Credit,
    Deliver,
    Fetch,
    Fetched,
    Gap,
    Heard,
    Hello,
    Interest,
    Knowledge,
    Line,
    Offer,
    Publish,
    Published,
    Recall,
    Recalled,
    RecallMore,
    RecallOver,
    Refused,
    Subscribe,
    Subscribed,
    Topic,
)

PIPELINE = 70
ARCHIVED = {
    "pubend_policy": PubendPolicy(archive=True, max_bytes=1),
    "host_policy": HostPolicy(recall=True, save=1),
}


def publish(at: Desk, *values: int) -> tuple[int, list[ClientFrame]]:
    """Publish one batch; returns the tick before it, and the frames that client 1 was sent."""
    sequence = getattr(at, "published", 0) + 1
    at.published = sequence + len(values) - 1  # type: ignore[attr-defined]  # how far this desk has got
    effects = at.finish(at.say(50, Publish("p", "me", sequence, batch(*range(len(values)), values=values))))
    (published,) = told(effects, 50)
    assert isinstance(published, Published)
    return published.tick - len(values), told(effects, 1)


def come(at: Desk, token: int | None, *, credit: int = 10_000, selector: str = "n > 1") -> list[ClientFrame]:
    """The subscriber comes with a token, and time passes; returns the frames that it was sent."""
    shown = None if token is None else CheckpointToken({"p": token})
    effects = at.finish(at.say(1, Subscribe("s", "t", selector, True, credit, shown)))
    return told(effects + at.pass_time(0.3), 1)


def values_of(frames: list[ClientFrame]) -> list[int]:
    n = SCHEMA.accessor("n")
    batches = [frame.batch for frame in frames if isinstance(frame, Deliver) and frame.batch is not None]
    return [n(each.message(row)) for each in batches for row in range(each.count)]


def is_without_holes(frames: list[ClientFrame], base: int) -> bool:
    """Each frame goes on where the last one ended."""
    for frame in frames:
        if isinstance(frame, Deliver | Gap):
            if frame.base != base:
                return False
            base = frame.upto
    return True


def desk(**settings: object) -> Desk:
    made = Desk(**settings)  # type: ignore[arg-type]  # settings of a BrokerConfig
    made.declare()
    made.pass_time(0.2)
    return made


# A read that takes long.


def test_who_was_read_for_while_others_went_on_joins_them_without_another_read() -> None:
    at = desk()
    come(at, None)
    publish(at, 2)
    at.gone(1)
    publish(at, 3)
    # A read of the PFS is under way while events come: it will not tell of them.
    effects = at.finish(at.say(2, Subscribe("s", "t", "n > 1", True, 10_000)), but=ReadPfs)
    (read,) = [each for each in effects if isinstance(each, ReadPfs)]
    answer = at.answers(read)
    publish(at, 4, 1)
    publish(at, 5)
    effects += at.finish(at.give(answer), but=ReadPfs)
    frames = told(effects, 2)
    assert values_of(frames) == [2, 3, 4, 5]
    assert [each for each in effects if isinstance(each, ReadPfs)] == [read]
    assert at.broker.counters["switchovers"] == at.broker.counters["catchups"]
    effects = at.finish(at.say(50, Publish("p", "me", 6, batch(0, values=[6]))))
    assert values_of(told(effects, 2)) == [6]


# Returning.


def test_who_returns_a_moment_later_reads_nothing_again_whatever_its_selector() -> None:
    at = desk(window_bytes_max=1)
    selectors = {1: "n > 1", 2: "n > 0", 3: "n = 2", 4: "n < 100"}
    for client, selector in selectors.items():
        at.finish(at.say(client, Subscribe(f"s{client}", "t", selector, True, 1 << 20)))
    at.pass_time(0.3)
    for client in selectors:
        at.gone(client)
    for _ in range(5):
        publish(at, 1, 2, 3)
    publish(at, 7)  # so that the window has forgotten the others
    read = []
    answer = at._disk.answer

    def answered(effect: Effect) -> Stimulus | None:
        read.extend([effect] if isinstance(effect, ReadLog) else [])
        return answer(effect)

    at._disk.answer = answered  # type: ignore[method-assign]
    for client, selector in selectors.items():
        effects = at.finish(at.say(client, Subscribe(f"s{client}", "t", selector, True, 1 << 20)))
        wanted = {1: [2, 3], 2: [1, 2, 3], 3: [2], 4: [1, 2, 3]}[client] * 5
        assert values_of(told(effects, client)) == wanted + ([7] if client != 3 else [])
    assert len(read) == 1


# Before its time.


def test_who_comes_with_a_token_from_elsewhere_gets_what_lies_between_and_then_goes_on() -> None:
    at = desk()
    before, _ = publish(at, 1, 2, 3)
    frames = come(at, before)
    token = CheckpointToken({"p": before})
    assert frames[0] == Subscribed("s", token, token)
    assert values_of(frames) == [2, 3]
    assert is_without_holes(frames, before)
    assert values_of(publish(at, 1, 4)[1]) == [4]
    assert at.broker.counters["taken_over"] == 1


def test_a_token_that_is_ahead_of_this_broker_is_not_told_again_what_it_has() -> None:
    at = desk()
    before, _ = publish(at, 2)
    frames = come(at, before + 1)
    assert values_of(frames) == []
    assert values_of(publish(at, 3)[1]) == [3]


def test_what_was_let_go_before_it_came_is_a_gap_without_an_archive() -> None:
    at = desk(host_policy=HostPolicy(save=1))
    come(at, None, selector="")
    before, _ = publish(at, 2, 3)
    at.finish(at.say(1, Ack((("s", CheckpointToken({"p": before + 2})),))))
    at.pass_time(1)
    at.gone(1)
    effects = at.finish(at.say(1, Subscribe("late", "t", "", True, 10_000, CheckpointToken({"p": before}))))
    frames = told(effects + at.pass_time(0.3), 1)
    gap = next(frame for frame in frames if isinstance(frame, Gap))
    assert gap.base == before
    assert gap.upto >= before + 2
    assert is_without_holes(frames, before)


def test_a_crash_before_it_is_known_from_where_it_is_accounted_for_changes_nothing() -> None:
    token = CheckpointToken({"p": MORNING})
    first = Desk()
    first.declare()
    saved = first.finish(first.say(1, Subscribe("s", "t", "n > 1", True, 10_000, token)))
    saved_now = next(each for each in saved if type(each).__name__ == "SaveSubscription")
    again = SavedSubscription(1, "s", saved_now.history, token, saved_now.known)  # type: ignore[union-attr]
    at = Desk(recovered=Recovered(subscriptions=[again], next_subscriber=2))
    at.declare()
    at.pass_time(0.2)
    publish(at, 1, 2, 3)
    frames = come(at, MORNING)
    assert values_of(frames) == [2, 3]
    assert is_without_holes(frames, MORNING)


def test_the_last_event_before_a_change_is_matched_by_what_was_wanted_then_also_when_it_comes_alone() -> None:
    at = desk()
    start = come(at, None, selector="n > 1")
    base = next(frame.token["p"] for frame in start if isinstance(frame, Subscribed))
    before, _ = publish(at, 5)
    at.gone(1)
    host = at.broker._host
    subscription = host.subscriptions[1]
    host.catchup_streams._audience.add(99, "t", "n = 0")
    subscription.periods.append(SelectorPeriod(TopicSelector("t", "n = 0"), 99, 0, {"p": before + 1}))
    one = batch(before + 1, values=[5])
    assert base < before + 1
    assert host.catchup_streams._chosen("p", 1, one).tolist() == [True]


# From a pubend that is elsewhere.


def relay(**settings: object) -> Desk:
    """A broker whose upstream `u` hosts the pubend."""
    at = Desk(upstream="u", downstream=("d",), **settings)
    at.declare()
    for peer in ("u", "d"):
        at.link(peer)
        at.hear(peer, Hello(peer, 1))
    at.hear("d", Interest("p", 1, ()))
    return at


def first(at: Desk, base: int, upto: int) -> list[ClientFrame]:
    """First-time knowledge of silence that accounts for everyone here."""
    effects = at.hear("u", Knowledge("p", base, upto, 0, True, 2**33 - 1, None))
    return told(at.finish(effects), 1)


def test_what_lies_between_is_fetched_from_where_the_pubend_is_with_the_selector() -> None:
    at = relay()
    first(at, MORNING, MORNING + 10)
    come(at, MORNING - 100)
    at.hear("u", Heard("p", "b", at.last_said))  # what it said of whom it hosts
    first(at, MORNING + 10, MORNING + 20)
    (fetch,) = sent(at.pass_time(AGAIN_US / 1_000_000), "u", Fetch)  # once, and again after a while
    assert (fetch.pubend, fetch.base, fetch.pattern, fetch.selector) == ("p", MORNING - 100, "t", "n > 1")
    assert MORNING <= fetch.upto <= MORNING + 20
    answer = Fetched(fetch.ticket, "p", fetch.base, fetch.upto, 0, batch(MORNING - 50, values=[7]))
    frames = told(at.finish(at.hear("u", answer)), 1)
    assert values_of(frames) == [7]
    assert is_without_holes(frames, MORNING - 100)
    assert told(at.finish(at.hear("u", answer)), 1) == []  # an answer that comes twice counts once


def test_a_fetch_is_passed_on_and_its_answer_back_under_the_asker_s_own_ticket() -> None:
    at = relay()
    effects = at.hear("d", Fetch(7, "p", 5, 9, "t", "", 100))
    (passed,) = sent(effects, "u", Fetch)
    effects = at.hear("u", Fetched(passed.ticket, "p", 5, 9, 0, None))
    assert sent(effects, "d", Fetched) == [Fetched(7, "p", 5, 9, 0, None)]
    assert at.hear("d", Fetch(8, "p", 5, 9, "t", "n >", 100)) == []  # what cannot be read goes nowhere


def test_a_fetch_is_passed_on_again_when_the_link_comes_back_and_forgotten_with_its_asker() -> None:
    at = relay()
    at.hear("d", Fetch(7, "p", 5, 9, "t", "", 100))
    at.say(3, Fetch(1, "p", 5, 9, "t", "", 100))
    at.give(LinkDown("u"))
    at.give(LinkUp("u"))
    assert len(sent(at.hear("u", Hello("u", 1)), "u", Fetch)) == 2
    at.give(LinkDown("d"))
    at.give(LinkDown("u"))
    at.give(LinkUp("u"))
    assert len(sent(at.hear("u", Hello("u", 1)), "u", Fetch)) == 1


# From the archive.


def released() -> tuple[Desk, int]:
    """A desk whose pubend has let three events go that the subscriber has not got; the tick before them."""
    at = desk(**ARCHIVED)
    come(at, None)
    at.gone(1)
    before, _ = publish(at, 2, 1, 3)
    at.pass_time(0.5)
    archived = CheckpointToken({"p": before + 3})
    at.do(PIPELINE, Ask(1, "archived", json.dumps({"token": archived.text()})))
    at.pass_time(0.5)
    (pubend,) = at.broker._admin.pubends()
    assert pubend.lost == before + 3
    return at, before


def recall_of(frames: list[ClientFrame]) -> Recall:
    (recall,) = [frame for frame in frames if isinstance(frame, Recall)]
    return recall


def kept(before: int) -> EventBatch:
    """What the archive has for the subscriber."""
    return batch(before + 1, before + 3, values=[2, 3])


def test_what_was_let_go_is_recalled_from_the_archive_once_there_is_one_to_ask() -> None:
    at, before = released()
    frames = come(at, before)
    assert not any(isinstance(frame, Gap) for frame in frames)
    assert at.broker._host.catchup_streams.recalls.waiting == 1
    recall = recall_of(at.do(PIPELINE, Offer(4)))
    assert recall == Recall(
        recall.ticket,
        "p",
        before,
        before + 3,
        (Line(TopicSelector("t", "n > 1"), before, before + 3),),
        RECALL_BYTES_MAX,
    )
    effects = at.finish(at.say(PIPELINE, Recalled(recall.ticket, before, before + 3, kept(before))))
    frames = told(effects, 1)
    assert values_of(frames) == [2, 3]
    assert is_without_holes(frames, before)
    assert values_of(publish(at, 4)[1]) == [4]


def test_a_live_subscriber_is_recalled_for_what_was_archived_and_let_go_before_it_came_here() -> None:
    at = relay(host_policy=HostPolicy(recall=True, save=1))
    first(at, MORNING, MORNING + 10)
    come(at, None)
    at.hear("u", Heard("p", "b", at.last_said))
    first(at, MORNING + 10, MORNING + 20)
    at.pass_time(0.3)
    # What was told first is lost on the way, and when it is asked for, the pubend has let it go.
    version = at.broker.stream("p").attached  # type: ignore[union-attr]
    gone = Knowledge("p", MORNING + 30, MORNING + 40, MORNING + 30, True, version)
    frames = told(at.finish(at.hear("u", gone)) + at.pass_time(0.3), 1)
    assert not any(isinstance(frame, Gap) for frame in frames)
    recall = recall_of(at.do(PIPELINE, Offer(4)))
    assert (recall.base, recall.upto) == (MORNING + 20, MORNING + 30)
    answer = Recalled(recall.ticket, recall.base, recall.upto, batch(MORNING + 25, values=[5]))
    frames = told(at.finish(at.say(PIPELINE, answer)) + at.pass_time(0.3), 1)
    assert values_of(frames) == [5]
    assert is_without_holes(frames, MORNING + 20)


def test_an_answer_comes_in_parts_as_fast_as_the_subscriber_takes_them() -> None:
    at, before = released()
    come(at, before, credit=1)
    recall = recall_of(at.do(PIPELINE, Offer(4)))
    part = kept(before).slice(0, 1)
    effects = at.finish(at.say(PIPELINE, Recalled(recall.ticket, before, before + 1, part)))
    assert values_of(told(effects, 1)) == [2]
    assert told(effects, PIPELINE) == [RecallMore(recall.ticket, len(part.body))]
    rest = kept(before).slice(1, 2)
    effects = at.finish(at.say(PIPELINE, Recalled(recall.ticket, before + 1, before + 3, rest)))
    assert values_of(told(effects, 1)) == []  # it can take no more now
    assert values_of(at.do(1, Credit("s", 1_000))) == [3]


def test_what_the_archive_does_not_have_either_is_a_gap() -> None:
    at, before = released()
    come(at, before)
    recall = recall_of(at.do(PIPELINE, Offer(4)))
    part = kept(before).slice(1, 2)
    answer = Recalled(recall.ticket, before, before + 3, part, ((before, before + 2),))
    frames = told(at.finish(at.say(PIPELINE, answer)), 1)
    assert frames[0] == Gap("s", "p", before, before + 2)
    assert values_of(frames) == [3]
    assert is_without_holes(frames, before)


def test_a_pipeline_that_dies_is_replaced_from_where_the_subscriber_is() -> None:
    at, before = released()
    come(at, before)
    recall = recall_of(at.do(PIPELINE, Offer(4)))
    at.finish(at.say(PIPELINE, Recalled(recall.ticket, before, before + 1, kept(before).slice(0, 1))))
    at.gone(PIPELINE)
    again = recall_of(at.do(PIPELINE + 1, Offer(1)))
    assert (again.base, again.upto) == (before + 1, before + 3)
    assert again.lines == (Line(TopicSelector("t", "n > 1"), before + 1, before + 3),)
    late = Recalled(recall.ticket, before + 1, before + 3, None)
    assert at.finish(at.say(PIPELINE, late)) == []


def test_nobody_waits_for_the_recall_of_a_subscriber_that_has_left() -> None:
    at, before = released()
    come(at, before)
    recall = recall_of(at.do(PIPELINE, Offer(1)))
    assert told(at.finish(at.gone(1)), PIPELINE) == [RecallOver(recall.ticket)]


def test_a_pipeline_that_answers_out_of_order_is_refused() -> None:
    at, before = released()
    come(at, before)
    recall = recall_of(at.do(PIPELINE, Offer(4)))
    (refused,) = at.do(PIPELINE, Recalled(recall.ticket, before + 1, before + 3, None))
    assert isinstance(refused, Refused)
    assert refused.what == "recall"


def test_a_pipeline_that_answers_with_another_topic_is_refused_and_another_one_asked() -> None:
    at, before = released()
    come(at, before)
    recall = recall_of(at.do(PIPELINE, Offer(4)))
    evil = batch(before + 1, topic="evil")
    effects = at.finish(at.say(PIPELINE, Recalled(recall.ticket, before, before + 3, evil)))
    (refusal,) = [each for each in effects if isinstance(each, RefuseClient)]
    assert (refusal.client, "did not ask for events of 'evil'" in refusal.reason) == (PIPELINE, True)
    assert told(effects, 1) == []
    at.gone(PIPELINE)
    again = recall_of(at.do(PIPELINE + 1, Offer(1)))
    assert (again.base, again.upto) == (before, before + 3)


def test_a_subscriber_waits_before_an_archived_event_whose_schema_is_not_known_yet() -> None:
    at, before = released()
    come(at, before)
    recall = recall_of(at.do(PIPELINE, Offer(4)))
    newer = Schema.parse("[n: int, more: int?]")
    builder = BatchBuilder()
    builder.add(Shape("t", newer.fingerprint), newer.encode({"n": 3}))
    strange = builder.build()
    strange.fill_ticks(np.array([before + 3], np.int64))
    answer = concatenate([kept(before).slice(0, 1), strange])
    effects = at.finish(at.say(PIPELINE, Recalled(recall.ticket, before, before + 3, answer)))
    assert values_of(told(effects, 1)) == [2]
    assert not any(isinstance(frame, Recall) for frame in told(effects, PIPELINE))
    assert told(at.pass_time(3), PIPELINE) == []  # nothing is asked for again and again meanwhile
    again = recall_of(told(at.finish(at.say(PIPELINE, Topic("t", False, (newer.text,)))), PIPELINE))
    assert (again.base, again.upto) == (before + 2, before + 3)
    effects = at.finish(at.say(PIPELINE, Recalled(again.ticket, before + 2, before + 3, strange)))
    delivered = [frame.batch for frame in told(effects, 1) if isinstance(frame, Deliver) and frame.batch]
    assert delivered == [strange]


def test_no_more_recalls_are_under_way_than_the_pipeline_takes() -> None:
    at, before = released()
    come(at, before)
    token = CheckpointToken({"p": before})
    at.finish(at.say(2, Subscribe("s2", "t", "", True, 1_000, token)))
    at.pass_time(0.3)
    recall = recall_of(at.do(PIPELINE, Offer(1)))
    effects = at.finish(at.say(PIPELINE, Recalled(recall.ticket, before, recall.upto, kept(before))))
    then = recall_of(told(effects, PIPELINE))
    assert then.lines[0].wanted.selector == ""


def test_a_claim_that_comes_while_a_subscription_is_being_made_leaves_nobody_waiting() -> None:
    at = relay()
    first(at, MORNING, MORNING + 10)
    token = CheckpointToken({"p": MORNING})
    effects = at.say(1, Subscribe("s", "t", "", True, 10_000, token))  # not on disk yet
    at.hear("u", Claim("s", 2 * MORNING, "elsewhere", True))
    frames = told(at.finish(effects), 1)
    assert frames[0] == Subscribed("s", token, token)
    assert at.broker.counters["claims"] == 1


@pytest.mark.parametrize("stamp", [MORNING - SECOND, MORNING + SECOND])
def test_of_a_subscription_being_made_and_a_claim_the_later_subscriber_wins(stamp: int) -> None:
    at = relay()
    first(at, MORNING, MORNING + 10)
    token = CheckpointToken({"p": MORNING})
    effects = at.say(1, Subscribe("s", "t", "", True, 10_000, token, stamp))  # not on disk yet
    at.hear("u", Claim("s", MORNING, "elsewhere", False))
    answer, *more = told(at.finish(effects), 1)
    if stamp > MORNING:
        assert answer == Subscribed("s", token, token)
        assert at.broker.counters["claims"] == 1
        return
    assert isinstance(answer, Refused)
    assert (answer.name, answer.code, more) == ("s", "taken", [])
    assert at.broker.counters["claims"] == 0, "a claim above the later one would end that one's connection"
    at.hear("u", Claim("s", MORNING, "elsewhere", True))
    assert at.broker.counters["moves"] == 1
