"""Access changes: what administrators do to the access document of a simulated world while it runs.

Rules are tightened and loosened, users change their roles and claims, are struck off and come back. A
document is proposed at any broker, on the one which that broker goes by: in two parts of a divided overlay
there may be two documents of one version.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tidemark.access.document import AccessDocument
from tidemark.sim.judging.rulebook import Rulebook
from tidemark.sim.swarm.rulebooks import some_rulebook
from tidemark.sim.world.world import World

#: Changes of one world: each may add a selector to a subscription, which remembers a bounded number of them.
CHANGES_MAX = 8
#: After the storm, it is looked so many microseconds later whether every broker has the last document.
LOOK_US = 200_000
LOOKS_MAX = 100


class AccessChanger:
    """Changes the document at random brokers."""

    def __init__(self, world: World, chance: Random) -> None:
        self._world = world
        self._chance = chance
        self._changes = 0
        self._last: AccessDocument | None = None
        self._looks = 0

    def change(self) -> None:
        """Propose a random document at a broker that is up."""
        world = self._world
        up = [name for name in world.layout.brokers if world.is_up(name)]
        if world.access is None or not up or self._changes >= CHANGES_MAX:
            return
        self._changes += 1
        machine = world.machines[self._chance.choice(up)]
        assert machine.document is not None
        rulebook = self._bounded(some_rulebook(self._chance))
        machine.access_heard(world.access.document(rulebook, machine.document.version + 1))

    def _bounded(self, rulebook: Rulebook) -> Rulebook:
        """Returns the rulebook with the world's quota of held bytes."""
        return replace(rulebook, held_bytes=self._world.plan.held_bytes)

    def heal(self) -> None:
        """Propose a document by which everybody may see something, until every broker goes by it.

        A document of before may still be on its way and win; then there is another one.
        """
        world = self._world
        if world.access is None:
            return
        self._looks += 1
        latest = world.access.latest()
        if self._last is None or latest.supersedes(self._last):
            rulebook = self._bounded(some_rulebook(self._chance, is_last=True))
            self._last = world.access.document(rulebook, latest.version + 1)
        machines = [world.machines[name] for name in world.layout.brokers]
        for machine in [each for each in machines if each.document != self._last][:1]:
            machine.access_heard(self._last)
        if self._looks < LOOKS_MAX:
            world.engine.after(LOOK_US, self.heal)
