"""Membership: the topology that a broker goes by, and how a newer one reaches it (DESIGN 9).

A topology is changed by an administrator at any broker, and spreads: each broker tells its neighbours, and
neighbours that meet compare what they go by. The highest version wins, everywhere. A broker keeps it on disk
before it acts on it, so that it comes back with it; one from a file counts for less than any that was spread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from tidemark.broker.effects import RecoveredPubend
from tidemark.errors import StaleTopologyError, TidemarkError
from tidemark.node.config.units import SocketAddress
from tidemark.node.logs import Log
from tidemark.node.topology.file import parse_topology
from tidemark.node.topology.plan import check_change
from tidemark.node.topology.text import to_text
from tidemark.node.topology.topology import OF_FILE, Topology
from tidemark.wire.frames import Overlay

log = Log("membership")

#: Puts a topology on disk; what the logs know of the pubends that are new here.
Save = Callable[[Topology], Awaitable[Mapping[str, RecoveredPubend]]]
Adopt = Callable[[Topology, Mapping[str, RecoveredPubend]], None]


class Membership:
    """See above. `adopt` is called with each newer topology once it is on disk."""

    def __init__(self, topology: Topology, save: Save, adopt: Adopt) -> None:
        self.topology = topology
        self._digest = topology.digest
        self._save = save
        self._adopt = adopt
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def greeting(self) -> Overlay:
        """What is said on every new link."""
        return Overlay(self.topology.version, self._digest)

    def whole(self) -> Overlay:
        """For those who go by an older one."""
        return Overlay(self.topology.version, self._digest, to_text(self.topology))

    def is_behind(self, frame: Overlay) -> bool:
        """The other side goes by a newer topology."""
        return frame.version > OF_FILE and (frame.version, frame.digest) > self._key

    def heard(self, frame: Overlay, answer: Callable[[Overlay], None]) -> None:
        """Another broker says what it goes by."""
        if self.is_behind(frame):
            if frame.text:
                task = asyncio.create_task(self._take_text(frame))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        elif self.topology.version > OF_FILE and (frame.version, frame.digest) != self._key:
            answer(self.whole())

    async def propose(self, text: str, base: int, *, is_forced: bool = False) -> Topology:
        """Go by an administrator's change of the topology of version `base`, and return the topology.

        Raises StaleTopologyError if another version is in force, and ConfigError if the change cannot be
        made. Proposing the same again changes nothing, because a proposal may come from several sides.
        """
        proposed = parse_topology(text, base + 1)
        if (proposed.version, proposed.digest) == self._key:
            return self.topology
        if base != self.topology.version:
            raise StaleTopologyError(expected=base, actual=self.topology.version)
        if not is_forced:
            check_change(self.topology, proposed)
        await self.take(proposed)
        return self.topology

    async def take(self, topology: Topology) -> None:
        """Go by it, if it is newer."""
        async with self._one_at_a_time:
            if not topology.is_newer_than(self.topology):
                return
            states = await self._save(topology)
            self.topology = topology
            self._digest = topology.digest
            log.info("the overlay has changed", version=topology.version, brokers=len(topology.brokers))
            self._adopt(topology, states)

    def listens(self, name: str, address: SocketAddress) -> None:
        """The system has chosen a port where the file did not."""
        placement = self.topology.brokers[name]
        if not placement.listen.port:
            brokers = {**self.topology.brokers, name: replace(placement, listen=address)}
            self.topology = replace(self.topology, brokers=brokers)
            self._digest = self.topology.digest

    def stop(self) -> None:
        """Take nothing more."""
        for task in self._tasks:
            task.cancel()

    @property
    def _key(self) -> tuple[int, str]:
        return self.topology.version, self._digest

    async def _take_text(self, frame: Overlay) -> None:
        try:
            await self.take(parse_topology(frame.text, frame.version))
        except TidemarkError as error:
            # The next link that comes up, or the next change, is another chance.
            log.error("a newer topology cannot be taken", version=frame.version, reason=str(error))
