"""Group commit: while one sync runs, the next group gathers (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Callable

Action = Callable[[], None]


def _nothing() -> None:
    pass


class GroupCommit:
    """Actions that wait for a sync. One sync is under way at a time; what comes meanwhile shares the next."""

    def __init__(self, sync: Callable[[int], None]) -> None:
        """`sync` asks for a sync with a ticket, which comes back in `synced`."""
        self._sync = sync
        self._ticket = 0
        #: (when it succeeds, when it fails) of actions whose writes the running sync covers
        self._running: list[tuple[Action, Action]] = []
        #: of actions whose writes came after it was asked for
        self._gathering: list[tuple[Action, Action]] = []
        self._is_running = False

    def after(self, action: Action = _nothing, failed: Action = _nothing) -> None:
        """Run `action` once everything written so far is durable, or `failed` if it could not be written."""
        self._gathering.append((action, failed))

    @property
    def is_idle(self) -> bool:
        """Nothing waits."""
        return not self._running and not self._gathering

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
        for action, _ in done:
            action()

    def failed(self, ticket: int) -> bool:
        """The sync of `ticket` found no room: what waited for it, and what came since, did not happen."""
        if ticket != self._ticket or not self._is_running:
            return False
        undone, self._running, self._gathering = self._running + self._gathering, [], []
        self._is_running = False
        for _, failed in undone:
            failed()
        return True
