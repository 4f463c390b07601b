"""PatientSync: a sync that waits for a full disk to have room again, and is reported when it has happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tidemark.errors import DiskFullError

Done = TypeVar("Done")


class PatientSync(Generic[Done]):
    """Syncs of one thing that may lose nothing. Whoever owns it calls `retry` while it `is_waiting`."""

    def __init__(
        self, write: Callable[[], None], done: Callable[[int], Done], alarm: Callable[[str], None]
    ) -> None:
        """`write` makes everything last or raises DiskFullError; `done(ticket)` reports that it has."""
        self._write = write
        self._done = done
        self._alarm = alarm
        #: asked for and not reported
        self._tickets: list[int] = []

    @property
    def is_waiting(self) -> bool:
        """Is there something to report, as soon as the disk lets us?"""
        return bool(self._tickets)

    def sync(self, ticket: int) -> Done | None:
        """Do it; None when it has to wait."""
        if self._tried():
            return self._done(ticket)
        self._tickets.append(ticket)
        return None

    def retry(self) -> list[Done]:
        """Try what waits again, if anything does."""
        if not self._tickets or not self._tried():
            return []
        tickets, self._tickets = self._tickets, []
        return [self._done(ticket) for ticket in tickets]

    def _tried(self) -> bool:
        try:
            self._write()
        except DiskFullError as error:
            if not self._tickets:
                self._alarm(f"{error}; waiting for space")
            return False
        return True
