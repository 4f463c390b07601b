"""SIGKILL and SIGSTOP on real processes; their ledgers are audited afterwards."""

from __future__ import annotations

import signal

import pytest

from tests.chaos.ledger_checks import assert_exact, both_gave_up, started
from tidemark.lab.processes.client_processes import ACKNOWLEDGED, COMMITTED, CONSUMED, INTENDED
from tidemark.lab.processes.process_harness import ProcessHarness, wait_for

pytestmark = pytest.mark.chaos

EVENTS = 1_200
PACE = ("--rate", "1500")
#: So slowly that a publisher has not finished when a test gets to disturb it.
SLOWLY = ("--rate", "400")


def test_a_broker_that_is_killed_three_times_under_load_loses_and_repeats_nothing(
    harness: ProcessHarness,
) -> None:
    broker = started(harness)
    every = harness.subscriber("all", broker.url)
    harness.subscriber("cheap", broker.url, "price < 30")
    harness.subscriber("acme", broker.url, "symbol = 'ACME' AND qty > 100")
    harness.subscriber("passing", broker.url, durable=False)
    harness.subscribe()
    publisher = harness.publisher("desk", broker.url, EVENTS, *PACE)
    publisher.start()
    for quarter in (1, 2, 3):
        wait_for(lambda n=quarter: every.consumed >= n * EVENTS // 4, lambda: "nothing comes")  # type: ignore[misc]
        broker.kill()
        broker.start()
    assert publisher.wait() == 0
    found = harness.settled()
    passing = found.accounts.pop()
    assert_exact(found, EVENTS)
    # A subscription that is not durable misses what it was not there for, and is told what.
    assert passing.is_clean
    assert passing.delivered + passing.in_gaps == EVENTS
    assert 1 <= passing.gaps <= 3


def test_a_subscriber_that_is_killed_mid_delivery_goes_on_where_its_ledger_ends(
    harness: ProcessHarness,
) -> None:
    broker = started(harness)
    harness.subscriber("steady", broker.url, "qty > 500")
    harness.subscribe()
    fragile = [harness.subscriber(place, broker.url, "price < 60") for place in (CONSUMED, COMMITTED)]
    for part in fragile:
        part.start("--die", f"200:{part.name}")
    for part in fragile:
        part.ready()
    publisher = harness.publisher("desk", broker.url, EVENTS, *PACE)
    publisher.start()
    for part in fragile:
        assert part.wait() == -signal.SIGKILL
        part.start("--die", f"100:{part.name}")
    assert [part.wait() for part in fragile] == 2 * [-signal.SIGKILL]
    assert publisher.wait() == 0
    for part in fragile:
        part.start()
    assert_exact(harness.settled(), EVENTS)


def test_a_publisher_that_is_killed_publishes_nothing_twice(harness: ProcessHarness) -> None:
    broker = started(harness)
    harness.subscriber("all", broker.url)
    harness.subscribe()
    fragile = [harness.publisher(place, broker.url, EVENTS, *PACE) for place in (INTENDED, ACKNOWLEDGED)]
    for number in (EVENTS // 4, EVENTS // 2):
        for part in fragile:
            part.start("--die", f"{number}:{part.name}")
        assert [part.wait() for part in fragile] == 2 * [-signal.SIGKILL]
    for part in fragile:
        part.start()
    assert [part.wait() for part in fragile] == [0, 0]
    assert_exact(harness.settled(), 2 * EVENTS)


@pytest.mark.long
def test_what_a_publisher_never_learned_appears_once_or_not_at_all(harness: ProcessHarness) -> None:
    broker = started(harness)
    harness.subscriber("one", broker.url)
    harness.subscriber("other", broker.url)
    harness.subscribe()
    for place in (INTENDED, ACKNOWLEDGED):
        publisher = harness.publisher(f"desk-{place}", broker.url, EVENTS, *PACE)
        publisher.start("--die", f"{EVENTS // 4}:{place}")
        assert publisher.wait() == -signal.SIGKILL
    found = harness.settled()
    assert found.published >= EVENTS // 2
    assert found.is_clean, found.as_dict()
    one, other = found.accounts
    # What lay on the broker's disk when its publisher died went to everybody.
    assert one.delivered == other.delivered >= EVENTS // 4


def test_everybody_is_killed_at_once_and_nothing_is_lost(harness: ProcessHarness) -> None:
    broker = started(harness)
    subscriber = harness.subscriber("all", broker.url)
    harness.subscribe()
    publisher = harness.publisher("desk", broker.url, EVENTS, *PACE)
    publisher.start()
    publisher.reached(EVENTS // 2)
    for part in (broker, publisher, subscriber):
        part.kill()
    broker.start()
    publisher.start()
    assert publisher.wait() == 0
    subscriber.start()
    assert_exact(harness.settled(), EVENTS)


def test_a_broker_that_was_paused_past_every_timeout_goes_on(harness: ProcessHarness) -> None:
    broker = started(harness)
    impatient = ("--ping", "0.3")
    subscriber = harness.subscriber("all", broker.url, "", *impatient)
    harness.subscribe()
    publisher = harness.publisher("desk", broker.url, EVENTS, *SLOWLY, *impatient)
    publisher.start()
    for third in (1, 2):
        publisher.reached(third * EVENTS // 3)
        broker.pause()
        both_gave_up(third, publisher, subscriber)
        broker.resume()
    assert publisher.wait() == 0
    assert_exact(harness.settled(), EVENTS)


def test_a_subscriber_that_was_paused_holds_up_nobody_and_gets_everything(harness: ProcessHarness) -> None:
    broker = started(harness)
    quick = harness.subscriber("quick", broker.url)
    sleeper = harness.subscriber("sleeper", broker.url)
    harness.subscribe()
    first, second = (harness.publisher(name, broker.url, EVENTS // 2, *PACE) for name in ("first", "second"))
    first.start()
    wait_for(lambda: sleeper.consumed > EVENTS // 8, lambda: "nothing is delivered")
    sleeper.pause()
    second.start()
    assert (first.wait(), second.wait()) == (0, 0)
    wait_for(lambda: quick.consumed == EVENTS, lambda: "a paused subscriber holds up another one")
    assert sleeper.consumed < EVENTS
    sleeper.resume()
    assert_exact(harness.settled(), EVENTS)
