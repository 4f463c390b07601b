"""Rates: how often connections may ask something of the process, each of them and all of one address."""

from __future__ import annotations

from time import perf_counter
from weakref import WeakValueDictionary

from tidemark.node.clock import Clock


class Rate:
    """A bound on how often something is done: `most` times in each second."""

    __slots__ = ("__weakref__", "_clock", "_most", "_since", "_taken")

    def __init__(self, most: int, clock: Clock = perf_counter) -> None:
        self._most = most
        self._clock = clock
        #: when the running second began, and how often it was taken since
        self._since = 0.0
        self._taken = 0

    def take(self) -> bool:
        """Return whether it may be done once more now."""
        now = self._clock()
        if now - self._since >= 1.0:
            self._since, self._taken = now, 0
        self._taken += 1
        return self._taken <= self._most


class Questions:
    """The questions of administrators that one connection asks. Its address may be None: then it is ours."""

    __slots__ = ("_all", "_mine", "_reasons")

    def __init__(self, mine: Rate, all_of_address: Rate | None, reasons: tuple[str, str]) -> None:
        self._mine, self._all, self._reasons = mine, all_of_address, reasons

    def refusal(self) -> str:
        """Count one question more; return why it is refused, "" if it is not."""
        if not self._mine.take():
            return self._reasons[0]
        return self._reasons[1] if self._all is not None and not self._all.take() else ""


class QuestionRates:
    """The bounds of all connections. An address has a bound of its own while it has a connection."""

    def __init__(self, most: int, address_times: int, clock: Clock = perf_counter) -> None:
        """A connection may ask `most` questions a second, and an address `address_times` as many."""
        self._most = most
        self._times = address_times
        self._clock = clock
        self._rates: WeakValueDictionary[str, Rate] = WeakValueDictionary()
        self._reasons = (
            f"a client may ask {most} questions a second: limits.questions",
            f"an address may ask {address_times * most} questions a second: limits.questions times "
            "limits.address_times",
        )

    def of(self, origin: str) -> Questions:
        """Return the bounds of a new connection from an address; "" for one of this machine."""
        rate = self._rates.get(origin) if origin else None
        if origin and rate is None:
            rate = self._rates[origin] = Rate(self._times * self._most, self._clock)
        return Questions(Rate(self._most, self._clock), rate, self._reasons)
