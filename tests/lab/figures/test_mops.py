"""Mobile subscribers: queues do what the paper says, and both approaches serve everyone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.lab.figures.experiment import Tables
from tidemark.lab.figures.kept_runs import KeptRuns
from tidemark.lab.figures.mops import figures as mops
from tidemark.lab.figures.mops import models
from tidemark.lab.figures.mops.persistence import PersistenceApproach
from tidemark.lab.figures.mops.queueing import QueueApproach
from tidemark.lab.figures.mops.roaming import (
    OPEN_TO_ALL,
    RATE_MAX,
    RATE_MIN,
    Approach,
    RoamingRun,
    RoamingTables,
    brokers_table,
    itinerary,
    storage_table,
)
from tidemark.sim.world import engine

CALM = PubendPolicy(heartbeat=2_000_000)


@pytest.fixture
def queues() -> QueueApproach:
    approach = QueueApproach()
    approach.message_counts.is_counting = True
    return approach


def received(approach: QueueApproach, broker: str, kind: str) -> int:
    return approach.message_counts.received[broker, kind]


def sent(approach: QueueApproach, broker: str, kind: str) -> int:
    return approach.message_counts.sent[broker, kind]


def test_who_returns_to_its_broker_finds_its_queue_and_nobody_unsubscribes(queues: QueueApproach) -> None:
    sub = queues.mobile_subscriber(0)
    queues.publish_every("B7", 1.0, first=0.5)
    sub.come(at="B4")
    queues.run(1.0)
    sub.leave()
    queues.run(3.0)
    assert queues.stored("B4") == 2
    sub.come(at="B4")
    queues.run(3.1)
    assert queues.stored("B4") == 0
    assert sub.got == {1, 2, 3}
    assert (
        sum(count for (_, kind), count in queues.message_counts.received.items() if kind == "unsubscription")
        == 0
    )


def test_who_moves_has_its_queue_handed_over_and_the_old_path_ends(queues: QueueApproach) -> None:
    sub = queues.mobile_subscriber(0)
    queues.publish_every("B4", 1.0, first=0.5)
    sub.come(at="B4")
    queues.run(1.0)
    sub.leave()
    queues.run(3.0)
    sub.come(at="B7")
    queues.run(3.1)
    assert sub.got == {1, 2, 3}
    assert received(queues, "B7", "notification") == 2
    assert received(queues, "B4", "unsubscription") == 1
    assert queues.stored("B4") == queues.stored("B7") == 0
    queues.run(4.0)
    assert sub.got == {1, 2, 3, 4}
    assert sub.repeated == 0


def test_a_second_subscriber_behind_a_link_changes_nothing_upstream(queues: QueueApproach) -> None:
    first, second = queues.mobile_subscriber(0), queues.mobile_subscriber(1)
    first.come(at="B4")
    queues.run(1.0)
    told = sent(queues, "B4", "subscription")
    second.come(at="B4")
    queues.run(2.0)
    assert told == 1
    assert sent(queues, "B4", "subscription") == told


def test_an_itinerary_is_as_the_paper_has_it() -> None:
    moves = itinerary(Random(1), 10, until=100.0)
    assert {move.broker for move in moves if move.broker is not None} == set(OPEN_TO_ALL)
    assert moves == sorted(moves, key=lambda move: move.at)
    for number in range(10):
        comes = [move.at for move in moves if move.subscriber == number and move.broker is not None]
        assert RATE_MIN <= 1 / (comes[1] - comes[0]) <= RATE_MAX
    assert moves == itinerary(Random(1), 10, until=100.0)


@pytest.mark.parametrize(
    "make", [QueueApproach, lambda: PersistenceApproach("tidemark", CALM)], ids=["queues", "tidemark"]
)
def test_everybody_gets_everything_on_either_side(make: Callable[[], Approach]) -> None:
    tables = RoamingRun(make(), 4, run=0, seconds=8).play()
    brokers = tables.brokers
    ((_, _, _, expected, missed, _),) = tables.deliveries.rows
    assert isinstance(expected, int)
    assert expected > 50
    assert missed == 0
    assert brokers.where(broker="B1").numbers("connected").tolist() == [0.0]
    assert all(rate > 0 for rate in brokers.numbers("received_notification"))
    assert brokers.numbers("stored").sum() > 0


def test_a_run_with_more_actions_than_a_storm_has_is_carried_out_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "ACTIONS_MAX", 6_000)
    tables = RoamingRun(PersistenceApproach("tidemark", CALM), 4, run=0, seconds=20).play()
    assert tables.deliveries.rows


def test_a_run_that_was_finished_before_an_interruption_is_not_carried_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[mops.Case] = []

    def interrupted(case: mops.Case) -> RoamingTables:
        begun.append(case)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return RoamingRun(QueueApproach(), case[1], case[2], 1.0).play()

    monkeypatch.setattr(mops, "QUICK", mops.RoamingEffort((1, 2), (1,), 1, 6, 6))
    monkeypatch.setattr(mops, "played", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mops.measure(tmp_path, True, lambda _: None)
    brokers, *_ = mops.measure(tmp_path, True, lambda _: None)
    assert sorted(begun) == sorted([*mops.QUICK.cases(), begun[2]])
    assert len(brokers.rows) == 7 * len(mops.QUICK.cases())


def test_a_run_of_other_code_is_not_kept(tmp_path: Path) -> None:
    KeptRuns(tmp_path, "old").keep("run", [brokers_table()])
    assert KeptRuns(tmp_path, "old").find("run") is not None
    assert KeptRuns(tmp_path, "new").find("run") is None
    assert KeptRuns(tmp_path, "old").find("run") is None


def test_what_is_fetched_for_one_who_has_moved_is_counted_wherever_it_passes() -> None:
    approach = PersistenceApproach("tidemark", PubendPolicy())
    sub = approach.mobile_subscriber(0)
    approach.publish_every("B7", 0.5, first=2.2)
    sub.come(at="B4")
    approach.run(4.0)
    sub.leave()
    approach.run(6.0)
    approach.message_counts.is_counting = True
    sub.come(at="B5")
    approach.run(6.15)  # nothing is published meanwhile
    fetched = approach.message_counts.received["B5", "notification"]
    assert fetched >= 4
    assert approach.message_counts.sent["B2", "notification"] == fetched


def test_the_figures_are_judged_from_the_averages_of_all_brokers() -> None:
    brokers, storage = brokers_table(), storage_table()
    for approach in mops.APPROACHES:
        for subscribers in (1, 15, 35):
            for time in range(6):
                storage.add(approach, subscribers, 0, time, 2.5)
            stored = subscribers / 7 if approach == mops.QUEUES else 2.5
            for broker in ("B1", "B2"):
                messages = [float(subscribers)] * (len(brokers.columns) - 7)
                brokers.add(approach, subscribers, 0, broker, 1.0, stored, 0, *messages)
    linear, level, more = mops.FIGURES[1].compare({"brokers": brokers, "storage": storage})
    assert (linear.holds, level.holds, more.holds) == (True, True, True)
    assert "from 17.5 on" in more.here


def test_what_only_grows_while_a_run_lasts_has_not_reached_a_maximum() -> None:
    brokers, storage = brokers_table(), storage_table()
    for approach in mops.APPROACHES:
        for subscribers in (1, 15, 35):
            brokers.add(approach, subscribers, 0, "B1", 1.0, 2.5, 0, *[1.0] * (len(brokers.columns) - 7))
            for time in range(6):
                storage.add(approach, subscribers, 0, time, float(time))
    assert not mops.FIGURES[1].compare({"brokers": brokers, "storage": storage})[1].holds


def test_other_ways_to_roam_go_next_door_and_home() -> None:
    chance = Random(1)
    been: list[str] = []
    for _ in range(50):
        been.append(models.next_door(chance, been))
    assert all(models._is_near(a, b) and a != b for a, b in pairwise(been))
    places = ["B4"]
    for _ in range(200):
        places.append(models.home(chance, places))
    assert 150 < places.count("B4") < 190


def test_subscribers_of_a_part_make_for_fewer_notifications() -> None:
    def notifications(model: str) -> float:
        found = models.played((model, models.TIDEMARK, 4, 0, 4.0))
        return float(found.brokers.numbers("sent_notification").mean())

    assert notifications(models.SELECTIVE) < notifications("anywhere")


def test_growth_beyond_the_paper_is_compared_with_queues() -> None:
    brokers = brokers_table()
    for approach in mops.APPROACHES:
        for subscribers in (1, 35, 100):
            rate = subscribers * (2.0 if approach == mops.QUEUES else 1.0)
            brokers.add(approach, subscribers, 0, "B1", 1, 1, 0, rate, *[0.0] * 9)
    findings = mops.FIGURES[4].compare({"brokers": brokers})
    assert [each.holds for each in findings] == [True, True, True, True]
    assert "from 35 to 100 subscribers" in findings[-1].paper


def notified(received: float, sent: float) -> Tables:
    """Tidemark receives and sends so many notifications with 35 subscribers, and queues 3.5 and 20."""
    brokers = brokers_table()
    for approach in mops.APPROACHES:
        for subscribers, part in ((1, 0.1), (35, 1.0)):
            rates = (3.5, 20.0) if approach == mops.QUEUES else (received, sent)
            said = {"received_notification": part * rates[0], "sent_notification": part * rates[1]}
            rest = [said.get(column, 0.0) for column in brokers.columns[4:]]
            brokers.add(approach, subscribers, 0, "B1", *rest)
    return {"brokers": brokers}


def test_notifications_are_few_however_many_subscribers_there_are() -> None:
    def promised(received: float, sent: float) -> list[bool | None]:
        return [each.holds for each in mops.FIGURES[2].compare(notified(received, sent))[-2:]]

    assert promised(3.5, 19.0) == [True, True]
    assert promised(4.6, 19.0) == [False, True]
    assert promised(3.5, 21.0) == [True, False]
