"""Accounts: what connections, and the addresses that they come from, have used of the event loop lately.

What counts is processor time: that the machine has given the processor to others is nobody's fault. Of what
was used, half is forgotten every HALF_SECONDS. A connection counts with its own use and that of its address,
so that of two connections of one address the one that has used less goes first, and somebody with a thousand
connections is not a thousand times as many as others.
"""

from __future__ import annotations

from math import exp2, inf, log2
from time import perf_counter
from weakref import WeakValueDictionary

from tidemark.node.clock import Clock

#: How long it takes until half of what was used is forgotten.
HALF_SECONDS = 0.5
#: Two places in the order that differ by less are the same, but for how numbers are rounded.
SAME_ORDER = 1e-6


class Account:
    """What one connection, or all connections of one address, have used of the event loop's time lately."""

    __slots__ = ("__weakref__", "_at", "_clock", "_of", "_used")

    def __init__(self, clock: Clock = perf_counter, of: Account | None = None) -> None:
        """`of` is the account of the address, which counts all that is used by this one too."""
        self._clock = clock
        self._of = of
        #: what was used, as far as it counted at the time `_at`
        self._used = 0.0
        self._at = clock()

    def used(self, seconds: float) -> None:
        """So much more was used."""
        now, account = self._clock(), self
        while True:
            account._used = account._used * exp2((account._at - now) / HALF_SECONDS) + seconds
            account._at = now
            if account._of is None:
                break
            account = account._of

    def _recent(self, now: float) -> float:
        return self._used * exp2((self._at - now) / HALF_SECONDS)

    @property
    def address(self) -> Account:
        """The account of the address; that of a connection without one is its own."""
        return self if self._of is None else self._of

    @property
    def recent(self) -> float:
        """The seconds that were used lately, less what is forgotten of them."""
        return self._recent(self._clock())

    @property
    def order(self) -> float:
        """The place among all accounts: the one with the least goes first.

        It stays the same while nothing is used, since all accounts forget at the same pace.
        """
        now = self._clock()
        recent = self._recent(now) + (self._of._recent(now) if self._of is not None else 0.0)
        return log2(recent) + now / HALF_SECONDS if recent > 0.0 else -inf


class Accounts:
    """The accounts of addresses. An address has one while any connection of it has an account."""

    def __init__(self, clock: Clock = perf_counter) -> None:
        self.clock = clock
        self._addresses: WeakValueDictionary[str, Account] = WeakValueDictionary()

    def open(self, address: str) -> Account:
        """Return a new account of a connection from this address."""
        of = self._addresses.get(address)
        if of is None:
            of = self._addresses[address] = Account(self.clock)
        return Account(self.clock, of)
