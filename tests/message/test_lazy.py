"""A property that is computed once, by any thread, and holds up nobody else meanwhile."""

from __future__ import annotations

from threading import Event, Thread

from tests.waiting import PATIENCE_SECONDS
from tidemark.message.codec.lazy import lazy_property


class Thing:
    """An object with a property that waits, if it is told to."""

    def __init__(self, begun: Event | None = None, may_end: Event | None = None) -> None:
        self.begun, self.may_end, self.times = begun, may_end, 0

    @lazy_property
    def value(self) -> int:
        """How often it was computed."""
        self.times += 1
        if self.begun is not None and self.may_end is not None:
            self.begun.set()
            assert self.may_end.wait(PATIENCE_SECONDS)
        return self.times


def test_it_is_computed_once() -> None:
    thing = Thing()
    assert (thing.value, thing.value, thing.times) == (1, 1, 1)


def test_while_one_is_computed_on_a_thread_that_of_another_object_does_not_wait() -> None:
    slow = Thing(Event(), Event())
    thread = Thread(target=lambda: slow.value)
    thread.start()
    assert slow.begun is not None
    assert slow.may_end is not None
    assert slow.begun.wait(PATIENCE_SECONDS)
    assert Thing().value == 1
    slow.may_end.set()
    thread.join()
    assert slow.value == 1
