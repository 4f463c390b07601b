"""A window that is full forgets what was delivered and remembers what comes, without reading the log."""

from __future__ import annotations

from tests.broker.desk import Desk, batch, told
from tidemark.broker.effects import Effect, ReadLog
from tidemark.wire.frames import Deliver, Publish, Subscribe

#: events in a batch, so many that the window does not make one batch of several
EVENTS = 2_000
BATCHES = 5
NEW = range(EVENTS)


def group(at: Desk, first: int) -> list[Effect]:
    """Publish batches that become durable together: what comes during a sync shares the next one."""
    effects: list[Effect] = []
    for number in range(BATCHES):
        effects += at.say(50, Publish("p", "me", first + number * EVENTS, batch(*NEW, values=NEW)))
    return at.finish(effects)


def test_batches_that_become_durable_together_are_all_remembered() -> None:
    at = Desk(window_bytes_max=(BATCHES + 1) * batch(*NEW, values=NEW).held_bytes)
    at.declare()
    at.do(1, Subscribe("s", "t", "", True, 1 << 30))
    at.pass_time(0.3)
    for round_ in range(4):
        effects = group(at, 1 + round_ * BATCHES * EVENTS)
        delivered = [each.batch for each in told(effects, 1) if isinstance(each, Deliver)]
        assert sum(each.count for each in delivered if each is not None) == BATCHES * EVENTS
    assert at.broker.counters["windows_shrunk"] > 0
    assert at.broker.counters["windows_full"] == 0
    assert not any(isinstance(each, ReadLog) for each in effects)
