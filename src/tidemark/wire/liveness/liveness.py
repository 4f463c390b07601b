"""Liveness: whether the other side of one connection is alive, by what it has said and what it has taken.

A side that waits for something asks soon: it has said something that is answered, what it wrote is not
taken, or it hears nothing although much was to be heard a moment ago. A side for which nothing of that holds
is idle. It says a word now and then that needs no answer, and asks only if it does not hear one either.

A question, a Ping, may wait behind megabytes on a thin line: while the bytes before it go on being taken, the
other side is alive and busy. Once the Ping itself has been taken, only an answer counts, because the kernel
of a process that is stopped goes on taking bytes.
"""

from __future__ import annotations

#: A side asks when it has heard nothing for so many times the longest pause of late.
PAUSES = 4
#: With each pause that is shorter, the longest pause of late gets shorter by this share.
PAUSE_DECAY = 0.125
#: An idle side asks when it has heard nothing for so many times the time after which the other says a word.
UNHEARD = 2


class Liveness:
    """What one side of a connection knows of the other side. All times are seconds of one monotonic clock."""

    __slots__ = (
        "_asked_at",
        "_asked_upto",
        "_pause",
        "_progress",
        "_taken",
        "_waits_since",
        "_written",
        "heard",
        "said",
    )

    def __init__(self, now: float) -> None:
        #: when bytes came last, and when bytes were written last
        self.heard = now
        self.said = now
        #: the longest pause of late between two times at which bytes came
        self._pause = 0.0
        #: when something that is answered was first written since bytes came; None if nothing was
        self._waits_since: float | None = None
        #: the end of the first Ping since something was heard, counted in bytes that were written, and when
        #: it was written; None if nothing was asked since
        self._asked_upto: int | None = None
        self._asked_at = now
        #: how many bytes were written, and how many of them the other side has acknowledged, as far as it was
        #: observed; None if it never was
        self._written = 0
        self._taken: int | None = None
        #: when bytes, but not the end of a Ping, were seen to be taken last, or nothing was there to be taken
        self._progress = now

    @property
    def is_asked(self) -> bool:
        """Whether a Ping was written since something was heard."""
        return self._asked_upto is not None

    def hear(self, now: float) -> None:
        """Bytes have come: the other side is alive."""
        pause = now - self.heard
        decayed = self._pause - PAUSE_DECAY * (self._pause - pause)
        self._pause = pause if pause > decayed else decayed
        self.heard = now
        self._asked_upto = self._waits_since = None

    def say(self, now: float, written: int = 0, *, is_question: bool = False) -> None:
        """Bytes were written, so that it is `written` bytes by now; among them something that is answered."""
        self.said = now
        if self._asked_upto is None and (self._taken is None or self._taken >= self._written):
            self._progress = now if now > self._progress else self._progress
        if written > self._written:
            self._written = written
        if is_question and self._waits_since is None:
            self._waits_since = now

    def ask(self, now: float, written: int) -> None:
        """A Ping was written, which ends after `written` bytes of this connection."""
        self.say(now, written)
        if self._asked_upto is None:
            self._asked_upto, self._asked_at = written, now

    def take(self, now: float, taken: int) -> None:
        """The other side's kernel has acknowledged `taken` bytes of this connection so far."""
        # The observation that finds the Ping itself taken is no progress: from then on an answer is due.
        is_answer_due = self._asked_upto is not None and taken >= self._asked_upto
        if taken > (self._taken or 0) and not is_answer_due:
            self._progress = now
        self._taken = max(taken, self._taken or 0)

    def forgive(self, since: float) -> None:
        """This side was busy or stopped: silence before `since` does not count."""
        self.heard = max(self.heard, since)
        self._asked_at = max(self._asked_at, since)
        self._progress = max(self._progress, since)
        if self._waits_since is not None:
            self._waits_since = max(self._waits_since, since)

    def should_ask(self, now: float, ping: float, idle: float) -> bool:
        """Return whether to write a Ping.

        A side that waits for something asks after `ping` seconds. An idle one leaves the other side the time
        to say a word, which it does after `idle` seconds of silence.
        """
        if self._asked_upto is not None:
            return False
        waits = self._waits_since is not None and now - self._waits_since > ping
        is_untaken = self._taken is not None and self._taken < self._written and now - self._progress > ping
        patience = max(ping, min(PAUSES * self._pause, UNHEARD * idle))
        return waits or is_untaken or now - self.heard > patience

    def should_speak(self, now: float, idle: float) -> bool:
        """Return whether to write a word that needs no answer: nothing was said for `idle` seconds."""
        return now - self.said > idle

    def silence(self, now: float) -> float:
        """Return for how many seconds nothing was heard."""
        return now - self.heard

    def is_dead(self, now: float, patience: float) -> bool:
        """Return whether the other side was asked, and has neither answered nor taken what was before the
        question for `patience` seconds.
        """
        return self._asked_upto is not None and now - max(self._asked_at, self._progress) > patience
