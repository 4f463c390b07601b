"""Rest: where long work on a schema or on messages may pause, so that other threads get on.

A thread that parses a schema of thousands of fields holds the interpreter lock, and the event loop waits for
it again and again. What works on many fields or messages therefore calls a `Rest` every REST_EVERY of them.
Whoever gives the work to a thread decides what that does; this room reads no clock and does not sleep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

#: Fields, or messages, between two calls of a `Rest`.
REST_EVERY = 16

Item = TypeVar("Item")


class Rest(Protocol):
    """What long work calls from time to time."""

    def __call__(self) -> None:
        """Pause if this thread has worked for long enough, or return at once."""


def no_rest() -> None:
    """Go on at once: nobody waits for this thread, or it is the event loop's own."""


def resting(items: Iterable[Item], rest: Rest) -> Iterable[Item]:
    """Return the same items; whoever iterates over them rests after each REST_EVERY."""
    return items if rest is no_rest else _resting(items, rest)


def _resting(items: Iterable[Item], rest: Rest) -> Iterator[Item]:
    for at, item in enumerate(items, 1):
        yield item
        if not at % REST_EVERY:
            rest()
