"""Group commit: while one sync runs, the next group gathers (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Callable


class GroupCommit:
    """Actions that wait for a sync. One sync is under way at a time; what comes meanwhile shares the next."""

    def __init__(self, sync: Callable[[int], None]) -> None:
        """`sync` asks for a sync with a ticket, which comes back in `synced`."""
        self._sync = sync
        self._ticket = 0
        #: actions whose writes the running sync covers
        self._running: list[Callable[[], None]] = []
        #: actions whose writes came after it was asked for
        self._gathering: list[Callable[[], None]] = []
        self._is_running = False

    def after(self, action: Callable[[], None]) -> None:
        """Run `action` once everything written so far is durable."""
        self._gathering.append(action)

    def flush(self) -> None:
        """Ask for a sync if something waits and none is under way. Call at the end of every stimulus."""
        if self._is_running or not self._gathering:
            return
        self._running, self._gathering = self._gathering, []
        self._is_running = True
        self._ticket += 1
        self._sync(self._ticket)

    def synced(self, ticket: int) -> None:
        """The sync of `ticket` is done: run what waited for it. Tickets of a former life are ignored."""
        if ticket != self._ticket or not self._is_running:
            return
        done, self._running = self._running, []
        self._is_running = False
        for action in done:
            action()
