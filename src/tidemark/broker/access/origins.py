"""Origins: which clients come from one address, so that nobody has more by having many connections.

What one connection may have is bounded (`ClientLimits`), and all connections of one address together may have
`address_times` as much. Clients of the broker's own machine have no address here and count each by itself.
"""

from __future__ import annotations

from collections.abc import Callable


class Origins:
    """The address of each client that is connected; `AccessControl` is told of them."""

    def __init__(self) -> None:
        self._origins: dict[int, str] = {}
        #: address -> its clients
        self._clients: dict[str, set[int]] = {}

    def came(self, client: int, origin: str) -> None:
        """A client has come from the address `origin`; "" if it is of this machine, or was told before."""
        if origin:
            self._origins[client] = origin
            self._clients.setdefault(origin, set()).add(client)

    def gone(self, client: int) -> None:
        """A client's connection is gone."""
        origin = self._origins.pop(client, "")
        if origin:
            self._clients[origin].discard(client)
            if not self._clients[origin]:
                del self._clients[origin]

    def is_full(self, client: int, has: Callable[[int], int], most: int, times: int) -> bool:
        """Return whether all clients of an address have `times` as much as `most`, which each may have."""
        mates = self._clients.get(self._origins.get(client, ""), ())
        # So few cannot have that much together.
        return len(mates) >= times and sum(map(has, mates)) >= times * most
