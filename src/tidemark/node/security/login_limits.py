"""LoginLimits: how many logins may fail before an address or a name has to wait.

Failures are counted by address and by name, each in a bounded table, and are forgotten at a steady rate.
While one is over its bound its logins are refused before anything is computed, so that guessing costs the
guesser and nobody else. Such refusals are no failures: however often somebody asks meanwhile, the wait is at
most WAIT_SECONDS_MAX. A name that is guessed from many addresses waits, too: that is told in the audit log.
Addresses of IPv6 are counted by their first 64 bits, since whoever has one of them has all that begin so.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

from tidemark.node.clock import Clock

#: Failures that one address, or one name, may have in a row, and how many of them are forgotten in a second.
FAILURES_MAX = 20
FORGOTTEN_A_SECOND = 0.5
#: The longest that an address or a name has to wait after its last failure.
WAIT_SECONDS_MAX = 60.0
_COUNTED_MAX = FAILURES_MAX - 1 + WAIT_SECONDS_MAX * FORGOTTEN_A_SECOND
#: Bits by which addresses of IPv6 are told apart.
NETWORK_BITS = 64
#: Addresses and names that are remembered; those that failed longest ago are forgotten first.
REMEMBERED_MAX = 10_000


class _Failures:
    """How often each of many has failed lately."""

    def __init__(self, time: Clock) -> None:
        self._time = time
        #: who -> failures, and when they were counted last
        self._counts: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def add(self, who: str) -> None:
        self._counts[who] = (min(_COUNTED_MAX, self.count(who) + 1), self._time())
        self._counts.move_to_end(who)
        while len(self._counts) > REMEMBERED_MAX:
            self._counts.popitem(last=False)

    def count(self, who: str) -> float:
        count, at = self._counts.get(who, (0.0, 0.0))
        return max(0.0, count - (self._time() - at) * FORGOTTEN_A_SECOND) if count else 0.0


class LoginLimits:
    """Counts failed logins. Belongs to the server; connections report to it."""

    def __init__(self, time: Clock) -> None:
        self._addresses = _Failures(time)
        self._names = _Failures(time)

    def failed(self, address: str, name: str) -> None:
        """A login from `address` has failed, for the user `name` if that is known."""
        self._addresses.add(_network(address))
        if name:
            self._names.add(name)

    def seconds_to_wait(self, address: str, name: str = "") -> float:
        """Return how long logins from `address`, or for `name`, are refused; 0 if they are not."""
        worst = max(self._addresses.count(_network(address)), self._names.count(name) if name else 0.0)
        return max(0.0, (worst - FAILURES_MAX + 1) / FORGOTTEN_A_SECOND) if worst >= FAILURES_MAX else 0.0


@lru_cache(1_024)
def _network(address: str) -> str:
    """Return by what an address is counted: itself, or the network of an address of IPv6."""
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address)
    except AddressValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{int(found) >> (128 - NETWORK_BITS):x}/{NETWORK_BITS}"
