"""Group commit: while one sync of a disk runs, the next group of writes gathers (docs/architecture.md)."""

from __future__ import annotations

from collections.abc import Callable

Action = Callable[[], None]


def _nothing() -> None:
    pass


class GroupCommit:
    """Actions that wait for a sync. One sync is under way at a time; what comes meanwhile shares the next."""

    def __init__(self, sync: Callable[[int], None]) -> None:
        """`sync` asks for a sync under a ticket; the same ticket comes back in `synced` or `failed`."""
        self._sync = sync
        self._ticket = 0
        #: (action on success, action on failure), for writes that the running sync covers
        self._running: list[tuple[Action, Action]] = []
        #: the same, for writes that came after the running sync was asked for; others only look at it
        self.gathering: list[tuple[Action, Action]] = []
        self._is_running = False

    def after(self, action: Action = _nothing, failed: Action = _nothing) -> None:
        """Run `action` once everything written so far is durable, or `failed` if it could not be written."""
        self.gathering.append((action, failed))

    @property
    def is_idle(self) -> bool:
        """Return whether no action waits for a sync."""
        return not self._running and not self.gathering

    def flush(self) -> None:
        """Ask for a sync if an action waits and no sync is under way. Call at the end of every stimulus."""
        if self._is_running or not self.gathering:
            return
        self._running, self.gathering = self.gathering, []
        self._is_running = True
        self._ticket += 1
        self._sync(self._ticket)

    def synced(self, ticket: int) -> None:
        """The sync of `ticket` is done: run the actions that waited for it. Unknown tickets are ignored."""
        if ticket != self._ticket or not self._is_running:
            return
        done, self._running = self._running, []
        self._is_running = False
        for action, _ in done:
            action()

    def failed(self, ticket: int) -> bool:
        """The sync of `ticket` found no room: its writes, and all that came since, were not made.

        Runs the failure action of each. Returns False, and does nothing, for a ticket that is not under way.
        """
        if ticket != self._ticket or not self._is_running:
            return False
        undone, self._running, self.gathering = self._running + self.gathering, [], []
        self._is_running = False
        for _, failed in undone:
            failed()
        return True
