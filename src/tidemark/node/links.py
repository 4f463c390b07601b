"""LinkCaller: connects to the neighbours that this broker has to call, and again when a link is lost.

The wait between two calls doubles from `links.wait` to `links.wait_max`, with a random part, so that brokers
that have lost the same neighbour do not all come back at once. While nobody listens at the address, the wait
is at most REFUSED_SECONDS_MAX: the neighbour is being started again, and streams wait for it. A neighbour
that said what this broker could not handle is left alone for longer (`server.RefusedNeighbours`). A neighbour
in the same process is linked without a socket (`local_link`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

from tidemark.node.config.settings import LinksSection
from tidemark.node.config.units import HostPort
from tidemark.node.local_link import LocalBrokers
from tidemark.node.logs import Log
from tidemark.node.server import Server

CONNECT_SECONDS_MAX = 10.0
REFUSED_SECONDS_MAX = 0.5
#: Why a call has failed, if nobody listens at the address.
NOBODY_LISTENS = "nobody listens"
log = Log("links")


class LinkCaller:
    """Keeps one task for each neighbour that this broker has to call. Belongs to the node."""

    def __init__(
        self,
        server: Server,
        settings: LinksSection,
        local_brokers: LocalBrokers,
        random: Random | None = None,
    ) -> None:
        #: opens the connections, which belong to it
        self._server = server
        self._settings = settings
        #: shared by all nodes of the process: each enters and leaves its own server
        self._local_brokers = local_brokers
        self._random = random or Random()
        #: (neighbour, where it listens) -> the task that keeps the link to it
        self._tasks: dict[tuple[str, HostPort], asyncio.Task[None]] = {}

    def change(self, calls: Mapping[str, HostPort]) -> None:
        """Call these neighbours from now on, and no others. Links that are up stay up."""
        for key in set(self._tasks) - set(calls.items()):
            self._tasks.pop(key).cancel()
        for key in calls.items():
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._keep(*key))

    async def stop(self) -> None:
        """Call nobody any more. Links that are up stay up."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, peer: str, address: HostPort) -> None:
        shortest, longest = self._settings.wait / 1e6, self._settings.wait_max / 1e6
        wait = shortest
        while True:
            problem = await self._link_once(peer, address)
            if problem is None:
                wait = shortest
            else:
                log.warning("cannot link", peer=peer, address=str(address), reason=problem)
            refused = self._server.refused_neighbours.seconds_left(peer)
            soon = max(shortest, REFUSED_SECONDS_MAX) if problem == NOBODY_LISTENS else wait
            await asyncio.sleep(max(min(wait, soon) * self._random.uniform(0.5, 1.0), refused))
            wait = min(2 * wait, longest)

    async def _link_once(self, peer: str, address: HostPort) -> str | None:
        """Make a link and wait for its end. Returns None, or the reason if there never was a link."""
        local = self._local_brokers.link(self._server, peer)
        if local is not None:
            await self._server.gone(local)
            return None
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                connection = await self._server.call(peer, address)
        except TimeoutError:
            return "no answer"
        except ConnectionRefusedError:
            return NOBODY_LISTENS
        except OSError as error:
            return error.strerror or str(error)
        await self._server.gone(connection)
        return None if connection.is_known else "it was not accepted"
