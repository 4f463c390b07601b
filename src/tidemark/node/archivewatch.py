"""Watches that the archive follows: a broker that waits for it lets nothing go, and its disk fills.

A text that stays the same while the matter does, so that it is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

#: Events that have waited so long for the archive are an alarm.
BEHIND_SECONDS_MAX = 600.0


class ArchiveWatch:
    """Of the pubends of one broker."""

    def __init__(self, max_bytes: int | None, clock: Callable[[], float] = monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        #: pubend -> how far the archive had got, and since when it has got no further
        self._stuck: dict[str, tuple[int, float]] = {}

    def look(self, pubend: Mapping[str, Any]) -> str | None:
        """What to say of a pubend as it describes itself; None if all is well."""
        name, archived, last = pubend["pubend"], pubend["archived"], pubend["last_event"]
        if archived is None or last is None or last <= archived or last <= (pubend["lost"] or last - 1):
            self._stuck.pop(name, None)
            return None
        before = self._stuck.get(name)
        if before is None or before[0] != archived:
            before = self._stuck[name] = archived, self._clock()
        is_over = self._max_bytes is not None and pubend["bytes"] > self._max_bytes
        is_late = self._clock() - before[1] >= BEHIND_SECONDS_MAX
        if not is_late and not (is_over and self._clock() - before[1] >= BEHIND_SECONDS_MAX / 10):
            return None
        held = "more than retention.max_bytes" if is_over else "events that nobody archives"
        return (
            f"the pubend {name} holds {held}, since nothing goes before the archive has it, and it gets no "
            "further: see `tidemark pipeline status`; start `tidemark pipeline archive`, or do without it by "
            "retention.archive = false"
        )
