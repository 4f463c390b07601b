"""LoginLimits: how many logins may fail before an address or a name has to wait.

Failures are counted by address and by name, each in a bounded table, and are forgotten at a steady rate. Who
is over the bound is refused, and what is refused so is no failure: one more login is tried every
SECONDS_A_TRY, however many ask. A name that is guessed from many addresses waits, too: that is told in the
audit log. Addresses of IPv6 are counted by their first 64 bits, since whoever has one of them has all that
begin so.

Where a user has logged in before, only failures of that user from there count against it. Otherwise anybody
could keep a user out with wrong passwords, or everybody who comes from one address, as users of a console do.
Whether a user has logged in somewhere is told to nobody: the words and the wait that a failed login is
answered with go by the address and the name alone.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

from tidemark.node.clock import Clock

#: Failures that one address, or one name, may have in a row, and how long it takes until one is forgotten.
FAILURES_MAX = 20
SECONDS_A_TRY = 2.0
#: Bits by which addresses of IPv6 are told apart.
NETWORK_BITS = 64
#: Addresses, names and users at an address that are remembered; the oldest are forgotten first.
REMEMBERED_MAX = 10_000


class _Failures:
    """How often each of many has failed lately."""

    def __init__(self, time: Clock, most: int, seconds: float) -> None:
        """`most` failures make somebody wait; one is forgotten in so many seconds."""
        self._time = time
        self._most = most
        self._seconds = seconds
        #: who -> failures, and when they were counted last
        self._counts: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def add(self, who: Hashable) -> None:
        """Count one more failure, unless `who` has to wait anyway."""
        count = self.count(who)
        if not self.wait(who):
            self._counts[who] = (count + 1, self._time())
            self._counts.move_to_end(who)
        while len(self._counts) > REMEMBERED_MAX:
            self._counts.popitem(last=False)

    def count(self, who: Hashable) -> float:
        """Return how many failures are not forgotten yet."""
        count, at = self._counts.get(who, (0.0, 0.0))
        return max(0.0, count - (self._time() - at) / self._seconds) if count else 0.0

    def wait(self, who: Hashable) -> float:
        """Return for how many seconds no more is tried of `who`; 0 if it is."""
        return max(0.0, self.count(who) - self._most + 1) * self._seconds


class LoginLimits:
    """Counts failed logins. Belongs to the server; connections report to it."""

    def __init__(self, time: Clock, most: int = FAILURES_MAX, seconds: float = SECONDS_A_TRY) -> None:
        self._addresses = _Failures(time, most, seconds)
        self._names = _Failures(time, most, seconds)
        #: of users at addresses where they have logged in
        self._known_failures = _Failures(time, most, seconds)
        #: network and name of each user that has logged in, the one that did so longest ago first
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        #: network -> how many of these it has
        self._known_at: Counter[str] = Counter()

    def succeeded(self, address: str, name: str) -> None:
        """The user `name` has logged in from `address`."""
        key = (_network(address), name)
        if key not in self._known:
            self._known_at[key[0]] += 1
        self._known[key] = None
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED_MAX:
            (network, _), _ = self._known.popitem(last=False)
            self._known_at[network] -= 1
            if not self._known_at[network]:
                del self._known_at[network]

    def failed(self, address: str, name: str) -> None:
        """A login from `address` has failed, for the user `name` if that is known."""
        network = _network(address)
        self._addresses.add(network)
        if name:
            self._names.add(name)
        if (network, name) in self._known:
            self._known_failures.add((network, name))

    def refuses_all(self, address: str) -> bool:
        """Return whether everybody from `address` is refused, whoever it wants to be."""
        network = _network(address)
        return network not in self._known_at and self._addresses.wait(network) > 0

    def refuses(self, address: str, name: str) -> bool:
        """Return whether a login of `name` from `address` is refused, whatever its password is."""
        network = _network(address)
        if (network, name) in self._known:
            return self._known_failures.wait((network, name)) > 0
        return self.seconds_to_wait(address, name) > 0

    def seconds_to_wait(self, address: str, name: str = "") -> float:
        """Return how long those have to wait who come from `address`, or want to be `name`; 0 for not."""
        return max(self._addresses.wait(_network(address)), self._names.wait(name) if name else 0.0)


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
