"""Liveness: whether the other side of one connection is alive, by what it has said and what it has taken.

A side that has said nothing for a while says something, a Ping, so that the other side hears from it without
having asked. A side that has heard nothing asks with a Ping as well. The Ping may wait behind megabytes on a
thin line: while the bytes before it go on being taken, the other side is alive and busy. Once the Ping itself
has been taken, only an answer counts, because the kernel of a process that is stopped goes on taking bytes.
"""

from __future__ import annotations


class Liveness:
    """What one side of a connection knows of the other side. All times are seconds of one monotonic clock."""

    __slots__ = ("_asked_upto", "_progress", "_taken", "heard", "said")

    def __init__(self, now: float) -> None:
        #: when bytes came last, and when bytes were written last
        self.heard = now
        self.said = now
        #: the end of the first Ping since something was heard, counted in bytes that were written; None if
        #: nothing was asked since
        self._asked_upto: int | None = None
        #: how many of the written bytes the other side has acknowledged, as far as it was observed
        self._taken = 0
        #: when bytes before the Ping were seen to be taken last
        self._progress = now

    @property
    def is_asked(self) -> bool:
        """Whether a Ping was written since something was heard."""
        return self._asked_upto is not None

    def hear(self, now: float) -> None:
        """Bytes have come: the other side is alive."""
        self.heard = now
        self._asked_upto = None

    def say(self, now: float) -> None:
        """Bytes were written."""
        self.said = now

    def ask(self, now: float, written: int) -> None:
        """A Ping was written, which ends after `written` bytes of this connection."""
        self.said = now
        if self._asked_upto is None:
            self._asked_upto = written

    def take(self, now: float, taken: int) -> None:
        """The other side's kernel has acknowledged `taken` bytes of this connection so far."""
        # The observation that finds the Ping itself taken is no progress: from then on an answer is due.
        if taken > self._taken and self._asked_upto is not None and taken < self._asked_upto:
            self._progress = now
        self._taken = max(taken, self._taken)

    def forgive(self, since: float) -> None:
        """This side was busy or stopped: silence before `since` does not count."""
        self.heard = max(self.heard, since)

    def should_ping(self, now: float, ping: float) -> bool:
        """Return whether to write a Ping: nothing was said, or nothing was heard, for `ping` seconds."""
        is_unasked = self._asked_upto is None and now - self.heard > ping
        return now - self.said > ping or is_unasked

    def silence(self, now: float) -> float:
        """Return for how many seconds nothing was heard, and nothing before the Ping was taken."""
        return now - max(self.heard, self._progress)

    def is_dead(self, now: float, silence: float) -> bool:
        """Return whether the other side was asked, and has neither said nor taken anything for `silence`."""
        return self._asked_upto is not None and self.silence(now) > silence
