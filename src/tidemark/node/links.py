"""Links: calls the neighbours that this broker is to call, and calls again when a link is lost.

Waits longer after each failure, with chance in it so that brokers that lost the same neighbour do not come
back all at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

from tidemark.node.logs import Log
from tidemark.node.server import Server
from tidemark.node.units import Address

WAIT_SECONDS_MIN = 0.05
WAIT_SECONDS_MAX = 5.0
CONNECT_SECONDS_MAX = 10.0
log = Log("links")


class Links:
    """One task for each neighbour to call."""

    def __init__(self, server: Server, calls: Mapping[str, Address], chance: Random | None = None) -> None:
        self._server = server
        self._chance = chance or Random()
        self._tasks = [asyncio.create_task(self._keep(peer, address)) for peer, address in calls.items()]

    async def stop(self) -> None:
        """Call nobody any more; what is connected stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, peer: str, address: Address) -> None:
        wait = WAIT_SECONDS_MIN
        while True:
            problem = await self._one(peer, address)
            if problem is None:
                wait = WAIT_SECONDS_MIN
            else:
                log.warning("cannot link", peer=peer, address=str(address), reason=problem)
            await asyncio.sleep(wait * self._chance.uniform(0.5, 1.0))
            wait = min(2 * wait, WAIT_SECONDS_MAX)

    async def _one(self, peer: str, address: Address) -> str | None:
        """One link from its beginning to its end; why it never came to be one."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                connection = await self._server.call(peer, address)
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return error.strerror or str(error)
        await self._server.gone(connection)
        return None if connection.is_known else "it was not accepted"
