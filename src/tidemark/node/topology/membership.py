"""Membership: the topology that a broker goes by, and how a newer one reaches it (docs/overlay.md).

An administrator changes the topology at any broker, and the change spreads: each broker tells its neighbours,
and neighbours that meet compare their topologies. The highest version wins, everywhere. A broker puts a new
topology on disk before it acts on it, so that it still has it after a restart. The topology of a file is
older than any that was spread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import Protocol

from tidemark.broker.effects import RecoveredPubend
from tidemark.errors import StaleTopologyError, TidemarkError
from tidemark.node.config.units import HostPort
from tidemark.node.frame_tasks import FrameTasks
from tidemark.node.logs import Log
from tidemark.node.topology.file import parse_topology
from tidemark.node.topology.plan import check_change
from tidemark.node.topology.text import to_text
from tidemark.node.topology.text_reading import TextReading
from tidemark.node.topology.topology import OF_FILE, Topology
from tidemark.wire.frames import Overlay
from tidemark.wire.limits import OVERLAY_VERSION_MAX

log = Log("membership")


class SaveTopology(Protocol):
    """Puts a topology on disk: a method of the node."""

    async def __call__(self, topology: Topology, /) -> Mapping[str, RecoveredPubend]:
        """Returns what the logs know of the pubends that are new at this broker. Raises StorageError."""


class AdoptTopology(Protocol):
    """Has the rest of the broker go by a topology: a method of the node."""

    def __call__(self, topology: Topology, states: Mapping[str, RecoveredPubend], /) -> None:
        """`topology` is on disk; `states` is what `SaveTopology` returned for it."""


class SendOverlay(Protocol):
    """Sends a frame about the topology to the broker that is being talked to."""

    def __call__(self, frame: Overlay, /) -> None:
        """Send `frame`."""


class Refuse(Protocol):
    """Ends the connection that a frame came over: a method of connections and of local links."""

    def __call__(self, code: str, reason: str, /) -> None:
        """Tell the other side why, if it can be told."""


class Membership:
    """The topology of one broker. Belongs to the node; the server and its connections read it."""

    def __init__(
        self,
        topology: Topology,
        save: SaveTopology,
        adopt: AdoptTopology,
        counters: MutableMapping[str, int] | None = None,
    ) -> None:
        """`adopt` is called with each newer topology once `save` has put it on disk.

        `counters`: those of the broker, where refused frames are counted.
        """
        #: replaced as a whole, by `take` and `listens`; everyone else only reads it
        self.topology = topology
        self._digest = topology.digest
        self._save = save
        self._adopt = adopt
        self._texts = TextReading(parse_topology)
        self._one_at_a_time = asyncio.Lock()
        #: topologies from other brokers that are being taken
        self._tasks = FrameTasks(counters)

    def greeting(self) -> Overlay:
        """Returns the frame that is sent on every new link: version and digest, without the text."""
        return Overlay(self.topology.version, self._digest)

    def whole(self) -> Overlay:
        """Returns the frame for brokers that have an older topology: with the text."""
        return Overlay(self.topology.version, self._digest, to_text(self.topology))

    def is_behind(self, frame: Overlay) -> bool:
        """Returns whether the sender of `frame` has a newer topology than this broker."""
        return frame.version > OF_FILE and (frame.version, frame.digest) > self._key

    def heard(self, frame: Overlay, answer: SendOverlay, refuse: Refuse) -> None:
        """Another broker says which topology it has.

        Take it if it is newer, answer with ours if it is older. `refuse` is called if an error follows.
        """
        if self.is_behind(frame):
            if frame.text:
                self._tasks.begin(self._take_text(frame), lambda reason: refuse("frame", reason))
        elif self.topology.version > OF_FILE and (frame.version, frame.digest) != self._key:
            answer(self.whole())

    async def propose(self, text: str, base: int, *, is_forced: bool = False) -> Topology:
        """An administrator changes the topology of version `base` to `text`. Returns the topology that holds.

        Raises StaleTopologyError if another version holds, and ConfigError if the change cannot be made.
        Proposing the same again changes nothing: an administrator may propose it to several brokers.
        """
        if not 0 <= base < OVERLAY_VERSION_MAX:
            raise StaleTopologyError(expected=base, actual=self.topology.version)
        proposed = await self._texts.read(text, base + 1)
        async with self._one_at_a_time:
            # Another one may have been taken since this one came, or this one, from another broker.
            if (proposed.version, proposed.digest) == self._key:
                return self.topology
            if base != self.topology.version:
                raise StaleTopologyError(expected=base, actual=self.topology.version)
            if not is_forced:
                check_change(self.topology, proposed)
            await self._take(proposed)
            return self.topology

    async def take(self, topology: Topology) -> None:
        """Save and adopt `topology`, if it is newer than the one that holds. Raises StorageError."""
        async with self._one_at_a_time:
            if topology.is_newer_than(self.topology):
                await self._take(topology)

    async def _take(self, topology: Topology) -> None:
        states = await self._save(topology)
        self.topology = topology
        self._digest = topology.digest
        log.info("the overlay has changed", version=topology.version, brokers=len(topology.brokers))
        self._adopt(topology, states)

    def listens(self, name: str, address: HostPort) -> None:
        """The broker `name` listens at `address`: fill in the port that the system chose for port 0."""
        placement = self.topology.brokers[name]
        if not placement.listen.port:
            brokers = {**self.topology.brokers, name: replace(placement, listen=address)}
            self.topology = replace(self.topology, brokers=brokers)
            self._digest = self.topology.digest

    def stop(self) -> None:
        """Take no topology any more."""
        self._tasks.stop()

    @property
    def _key(self) -> tuple[int, str]:
        return self.topology.version, self._digest

    async def _take_text(self, frame: Overlay) -> None:
        try:
            await self.take(await self._texts.read(frame.text, frame.version))
        except TidemarkError as error:
            # The next link that comes up, or the next change, brings the topology again.
            log.error("a newer topology cannot be taken", version=frame.version, reason=str(error))
