"""PatientSync: a sync that waits until a full disk has room again, and is reported when it has happened."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from tidemark.errors import DiskFullError
from tidemark.persistence.alarm import Alarms

Done = TypeVar("Done", covariant=True)


class Write(Protocol):
    """Makes everything that was given so far durable."""

    def __call__(self) -> None:
        """Raises DiskFullError if there is no room; nothing is lost then. Raises DiskFailedError."""


class MakeDone(Protocol[Done]):
    """Makes the stimulus that reports a sync: the class of that stimulus."""

    def __call__(self, ticket: int, /) -> Done:
        """Returns the report of the sync under `ticket`."""


class PatientSync(Generic[Done]):
    """Syncs of something that may lose nothing. Its owner calls `retry` every so often while `is_waiting`."""

    def __init__(self, write: Write, done: MakeDone[Done], alarms: Alarms, what: str) -> None:
        """`write` syncs, `done` makes the report, `alarms` hear of a full disk: of `what` it is the disk."""
        self._write = write
        self._done = done
        self._alarms = alarms
        self._cause = f"full {what}"
        #: tickets of syncs that were asked for and found no room
        self._tickets: list[int] = []

    @property
    def is_waiting(self) -> bool:
        """Whether a sync waits for room on the disk."""
        return bool(self._tickets)

    def sync(self, ticket: int) -> Done | None:
        """Sync. Returns the report, or None if the disk is full: then `retry` returns it later."""
        if self._tried():
            return self._done(ticket)
        self._tickets.append(ticket)
        return None

    def retry(self) -> list[Done]:
        """Try the waiting syncs again. Returns the reports of all of them, or nothing if there is no room."""
        if not self._tickets or not self._tried():
            return []
        tickets, self._tickets = self._tickets, []
        return [self._done(ticket) for ticket in tickets]

    def _tried(self) -> bool:
        try:
            self._write()
        except DiskFullError as error:
            if not self._tickets:
                self._alarms.stands(self._cause, f"{error}; waiting for space")
            return False
        self._alarms.is_over(self._cause)
        return True
