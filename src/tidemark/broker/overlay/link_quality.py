"""LinkQuality: how well the links of a broker have worked, as grades by which ways are ranked.

A link has a grade, 0 being the best. Each death of a link adds to a penalty that halves with time; a link
with a large penalty is *damped*, which is the worst grade, until the penalty has become small. The other
grades come from what was measured: the time that PIECE_BYTES would take on the link. All of it is soft state:
a broker that starts takes every link for a good one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp2, log2
from sys import maxsize

from tidemark.wire.answers import LinkCondition

#: A link is measured by the time that so many bytes take on it.
PIECE_BYTES = 64 << 10
#: The microseconds for PIECE_BYTES at which the next grade begins: a link of 10 Mbit has grade 1, one of
#: 1 Mbit grade 2, one of 128 kbit grade 3.
GRADE_BOUNDS_US = (50_000, 200_000, 800_000)
#: A grade changes only when the time is beyond its bound by half, so that it does not change to and fro.
SLACK = 1.5
#: A rate that was not measured again for so many microseconds is forgotten: a link that is not used because
#: it was slow is tried again.
RATE_KEPT_US = 600_000_000
#: The grade of a link that is damped.
DAMPED = len(GRADE_BOUNDS_US) + 1
#: A link is damped when its penalty is above the first of these, and until it is at most the second. A death
#: adds 1, up to the last.
DAMPED_ABOVE, DAMPED_UNTIL, PENALTY_MAX = 2.5, 1.0, 6.0


@dataclass(slots=True)
class LinkQuality:
    """The link to one neighbour, as this broker has known it since it started. Times are microseconds."""

    #: the time in which the penalty halves
    half_life: int
    deaths: int = 0
    delay: int | None = None
    bytes_per_second: int | None = None
    is_damped: bool = False
    #: the grade by what was measured here, and the grade that the other side has said
    measured: int = 0
    theirs: int = 0
    _penalty: float = 0.0
    #: when `_penalty` was right, and when the rate was measured
    _at: int = 0
    _rated_at: int = 0

    @property
    def here(self) -> int:
        """The grade by what this broker itself knows."""
        return DAMPED if self.is_damped else self.measured

    @property
    def grade(self) -> int:
        """The grade of the link: the worse of what both sides know."""
        return max(self.here, self.theirs)

    def died(self, now: int) -> None:
        """The link has gone down."""
        self._penalty = min(self._penalty_at(now) + 1, PENALTY_MAX)
        self._at = now
        self.deaths += 1
        self.is_damped |= self._penalty > DAMPED_ABOVE

    def measure(
        self, now: int, delay: int | None, bytes_per_second: int | None, *, is_lower_bound: bool
    ) -> bool:
        """The link was measured; return whether that changes its grade.

        A rate that is a lower bound counts only if it is higher than the rate that is known.
        """
        if delay is not None:
            self.delay = delay
        known = self.bytes_per_second
        if bytes_per_second is not None and not (is_lower_bound and bytes_per_second <= (known or maxsize)):
            # One slow moment does not make a slow link: a rate falls by half of the difference.
            self.bytes_per_second = max(bytes_per_second, ((known or 0) + bytes_per_second) // 2)
            self._rated_at = now
        return self._regrade()

    def _regrade(self) -> bool:
        before, cost = self.measured, self.delay or 0
        if self.bytes_per_second is not None:
            cost += PIECE_BYTES * 1_000_000 // max(self.bytes_per_second, 1)
        self.measured = _graded(before, cost)
        return self.measured != before

    def damped_until(self) -> int | None:
        """Return the time from which the link is not damped any more; None if it is not damped."""
        if not self.is_damped:
            return None
        return self._at + ceil(self.half_life * log2(max(self._penalty / DAMPED_UNTIL, 1.0)))

    def wake(self, now: int) -> bool:
        """Let what is old count less; return whether the grade has changed by that."""
        before, until = self.here, self.damped_until()
        if until is not None and now >= until:
            self.is_damped = False
        if self.bytes_per_second is not None and now - self._rated_at > RATE_KEPT_US:
            self.bytes_per_second = None
            self._regrade()
        return self.here != before

    def describe(self, now: int) -> LinkCondition:
        """Return what administrators are told of the link."""
        until = self.damped_until()
        return LinkCondition(
            grade=self.grade,
            deaths=self.deaths,
            damped_seconds=None if until is None else round(max(until - now, 0) / 1e6, 1),
            delay_seconds=None if self.delay is None else self.delay / 1e6,
            rate=self.bytes_per_second,
        )

    def _penalty_at(self, now: int) -> float:
        return self._penalty * exp2(-(now - self._at) / self.half_life)


def _graded(present: int, cost: int) -> int:
    while present < len(GRADE_BOUNDS_US) and cost > GRADE_BOUNDS_US[present] * SLACK:
        present += 1
    while present > 0 and cost < GRADE_BOUNDS_US[present - 1] / SLACK:
        present -= 1
    return present
