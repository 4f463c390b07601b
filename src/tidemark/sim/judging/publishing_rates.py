"""PublishingRates: whether users who have a quota publish no faster than it allows, at each broker.

What a broker takes at once may overdraw a quota, and is paid back before it takes more; one second's worth
can be saved up. So between any two batches that a broker takes, no more was taken than that second's worth
and what the time between them allows.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.sim.judging.ground_truth import ViolationError

_SECOND = 1_000_000


class PublishingRates:
    """What users have published at each machine."""

    def __init__(self) -> None:
        #: machine -> user -> time, events and bytes of each batch, since the broker goes by its document
        self._taken: dict[str, dict[str, list[tuple[int, int, int]]]] = {}

    def begin(self, machine: str) -> None:
        """A broker has started, or goes by another document: everybody begins anew."""
        self._taken[machine] = {}

    def take(
        self, machine: str, user: str, now: int, amount: tuple[int, int], quota: Mapping[str, int]
    ) -> None:
        """A broker takes a batch, of this many events and bytes; ViolationError if it had to wait longer."""
        taken = self._taken[machine].setdefault(user, [])
        for at, name in enumerate(("publish_events", "publish_bytes")):
            a_second, total = quota.get(name), 0
            if a_second is None:
                continue
            for then, *amounts in reversed(taken):
                total += amounts[at]
                if total * _SECOND > a_second * (now - then + _SECOND):
                    raise ViolationError(
                        f"{machine} lets {user} publish faster than its quota: {total} since {then}, "
                        f"and {name} is {a_second}"
                    )
        taken.append((now, *amount))
