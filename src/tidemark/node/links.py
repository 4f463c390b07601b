"""Links: calls the neighbours that this broker is to call, and calls again when a link is lost.

Waits longer after each failure, with chance in it so that brokers that lost the same neighbour do not come
back all at once. A neighbour in the same process is not called over a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

from tidemark.node.config.settings import LinksSection
from tidemark.node.config.units import SocketAddress
from tidemark.node.local_link import LocalBrokers
from tidemark.node.logs import Log
from tidemark.node.server import Server

CONNECT_SECONDS_MAX = 10.0
log = Log("links")


class LinkCaller:
    """One task for each neighbour to call."""

    def __init__(
        self,
        server: Server,
        settings: LinksSection,
        local_brokers: LocalBrokers,
        chance: Random | None = None,
    ) -> None:
        self._server = server
        self._settings = settings
        self._local_brokers = local_brokers
        self._chance = chance or Random()
        self._tasks: dict[tuple[str, SocketAddress], asyncio.Task[None]] = {}

    def change(self, calls: Mapping[str, SocketAddress]) -> None:
        """Call these from now on, and no others; what is connected stays."""
        for key in set(self._tasks) - set(calls.items()):
            self._tasks.pop(key).cancel()
        for key in calls.items():
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._keep(*key))

    async def stop(self) -> None:
        """Call nobody any more; what is connected stays."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, peer: str, address: SocketAddress) -> None:
        shortest, longest = self._settings.wait / 1e6, self._settings.wait_max / 1e6
        wait = shortest
        while True:
            problem = await self._one(peer, address)
            if problem is None:
                wait = shortest
            else:
                log.warning("cannot link", peer=peer, address=str(address), reason=problem)
            await asyncio.sleep(wait * self._chance.uniform(0.5, 1.0))
            wait = min(2 * wait, longest)

    async def _one(self, peer: str, address: SocketAddress) -> str | None:
        """One link from its beginning to its end; why it never came to be one."""
        local = self._local_brokers.link(self._server, peer)
        if local is not None:
            await self._server.gone(local)
            return None
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                connection = await self._server.call(peer, address)
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return error.strerror or str(error)
        await self._server.gone(connection)
        return None if connection.is_known else "it was not accepted"
