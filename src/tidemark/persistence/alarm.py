"""Alarms: what an administrator should look at, for as long as it stands."""

from __future__ import annotations

from threading import Lock


class Alarms:
    """One sentence for each cause, oldest first. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        #: cause -> what is wrong; replaced as a whole, under `_lock`
        self._of: dict[str, str] = {}

    def stands(self, cause: str, text: str) -> None:
        """Something is wrong: `text` is one sentence about it, which replaces an earlier one."""
        with self._lock:
            self._of = {**self._of, cause: text}

    def is_over(self, cause: str) -> None:
        """What was wrong has ended, if it was."""
        if cause in self._of:
            with self._lock:
                self._of = {other: text for other, text in self._of.items() if other != cause}

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentences of all causes that stand."""
        return tuple(self._of.values())
