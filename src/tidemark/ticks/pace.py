"""Pace: how much may be asked for at once over one way, and how long to wait for the answer.

Both come from what was measured. Questions and their answers share their way with live events, so history
must not fill it: what is under way is bounded such that an answer takes about QUEUE_US longer than it takes
on an idle way. While answers are faster, twice as much is asked for each time. A question is repeated when
its answer is later than answers have been, and each repetition waits longer than the one before.

The unit of an amount is the owner's: ticks for nacks, bytes for fetches. There is no clock: times are
arguments, in microseconds of the caller's monotonic time.
"""

from __future__ import annotations

#: How much longer than on an idle way an answer may take, in microseconds: what is under way fits into it.
QUEUE_US = 300_000
#: The first answer, which may be long, is believed to have taken no more than this on its way.
IDLE_US = 100_000


class Pace:
    """The bound on what is under way, and the patience, of one asker with one neighbour."""

    __slots__ = (
        "_backoff",
        "_before",
        "_deviation",
        "_doubted",
        "_first",
        "_idle",
        "_least",
        "_most",
        "_patience",
        "_patience_max",
        "_progress",
        "_shrunk",
        "_usual",
        "limit",
    )

    def __init__(
        self, least: int, first: int, most: int, *, patience_us: int, patience_us_max: int, backoff: int = 2
    ) -> None:
        """`least`, `first` and `most` bound the limit; `patience_us` is the least patience, and the first."""
        assert 1 <= least <= first <= most
        assert 1 <= patience_us <= patience_us_max
        self._least, self._first, self._most = least, first, most
        self._patience, self._patience_max, self._backoff = patience_us, patience_us_max, backoff
        self.restart()

    def restart(self) -> None:
        """Forget what was measured: the way is another one."""
        #: how much may be under way
        self.limit = self._first
        #: how long an answer takes on the way while nothing else is under way; None before the first
        self._idle: int | None = None
        #: the longest that an answer took which was asked for before the limit was lowered, if it was
        self._before: int | None = None
        #: how long answers take, smoothed, and how much that varies
        self._usual = self._deviation = 0
        #: when the limit was lowered last, and when anything was answered last
        self._shrunk = self._progress = 0
        #: when an answer to a question that was asked several times was counted last
        self._doubted = -self._patience_max

    @property
    def has_answers(self) -> bool:
        """Whether anything was answered since `restart`."""
        return self._progress > 0

    def progressed(self, now: int) -> None:
        """A part of some answer came: those that were asked for later are on their way behind it."""
        self._progress = now

    def answered(
        self, amount: int, under_way: int, took: int, now: int, *, tries: int = 1, is_small: bool = False
    ) -> None:
        """A question for `amount` was answered `took` after it was first asked, with `under_way` in all.

        `tries`: how often it was asked. If it was several times, it is not known which of them was answered,
        and `took` has the waits in between in it, or an outage. So it is believed to have taken twice the
        patience at the most, and of all such answers one in the time of the patience counts: patience with a
        slow way grows step by step, and an outage does not make all later questions wait for as long.
        `is_small`: answers are so small that it is not they that fill the way. To ask for less at once would
        only make more questions.
        """
        self._progress = now
        if tries > 1:
            patience = self.patience_us(1)
            if now < self._doubted + patience:
                return
            self._doubted = now
            took = min(took, 2 * patience)
        if self._idle is None:
            self._idle, self._usual, self._deviation = min(took, IDLE_US), took, took // 2
        else:
            self._idle = min(took, self._idle)
            self._deviation += (abs(took - self._usual) - self._deviation) // 4
            self._usual += (took - self._usual) // 8
        target = 3 * self._idle + QUEUE_US
        if took <= target:
            self._before = None
            if 2 * under_way >= self.limit:
                is_fast = is_small or took <= target * 2 // 3
                self.limit = min(self._most, self.limit + (amount if is_fast else amount // 4))
        elif is_small:
            # A small answer takes no time itself: the way to the other broker has become longer.
            self._idle = min(took, 2 * self._idle + 1)
        elif now - took >= self._shrunk:
            self._slow_down(took, target, now)
        elif self._before is not None:
            self._before = max(took, self._before)

    def _slow_down(self, took: int, target: int, now: int) -> None:
        """An answer took too long: lower the limit, unless that has not helped."""
        assert self._idle is not None
        self._shrunk = now
        if self._before is not None and took > self._before * 7 // 8:
            # What answers wait for is not what was asked for from here: the way itself takes longer.
            self._idle, self._before = min(took, 2 * self._idle + 1), None
        else:
            # Below the target: what is under way goes over the limit by one question.
            self.limit = max(self._least, self.limit * target * 3 // (took * 4))
            self._before = took

    def patience_us(self, tries: int) -> int:
        """How long to wait for an answer to question number `tries` for the same; the first is number 1."""
        wait = max(self._patience, self._usual + 4 * self._deviation)
        # Past 2**62 microseconds no back-off matters; a larger power would only be a larger integer.
        longer = wait * int(self._backoff ** min(tries - 1, 62))
        return max(wait, min(longer, self._patience_max))

    def due(self, asked: int, tries: int) -> int:
        """The time at which to repeat a question that was asked at `asked` for the `tries`th time.

        While answers come, those to later questions are behind them. Yet a question may be lost while the
        answers to others go on, so that this extends the patience fourfold at the most.
        """
        wait = self.patience_us(tries)
        return min(max(asked, self._progress) + wait, asked + 4 * wait)
