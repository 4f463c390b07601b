"""Faults: what goes wrong in a simulated world during the storm, and how everything is healed after it.

A fault is a method of `FaultInjector`, a weight in `plan.FaultWeights` and a line in the faults of `report`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from tidemark.sim.swarm.access_changes import AccessChanger
from tidemark.sim.swarm.plan import SECOND, WorldPlan
from tidemark.sim.swarm.strangers import HostileStrangers
from tidemark.sim.swarm.topology_changes import TopologyChanger
from tidemark.sim.world.world import World

#: A fault that ends by itself lasts no longer than this many microseconds.
LASTS_US_MAX = 800_000
#: Round trip in microseconds and bytes a second that a link is found to have; the first are of a good link.
MEASURES = ((100, 1 << 30), (100, 125_000), (400_000, 1 << 30), (100, 16_000))
SKEWS = (0, -3_600 * SECOND, 30 * SECOND, 5_000)


class FaultInjector:
    """Causes faults at random, by the weights of a plan."""

    def __init__(self, world: World, plan: WorldPlan, chance: Random) -> None:
        self._world = world
        self._plan = plan
        self._chance = chance
        # A generator of its own: what is measured leaves the faults of a seed's world unchanged.
        self._measures = Random("measured links")
        self._topology_changer = TopologyChanger(world, plan, Random(chance.random()))
        self._strangers = HostileStrangers(world)
        self._access_changer = AccessChanger(world, Random(f"changed access, {world.seed}"))
        faults: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "cut": self._cut,
            "one_way": self._one_way,
            "skew": self._skew,
            "pause": self._pause,
            "stall": self._stall,
            "full": self._full,
            "sync_error": self._sync_error,
            "rot": self._rot,
            "tables": self._tables,
            "pipeline": self._pipeline,
            "reform": self._reform,
            "hostile": self._hostile,
            "access": self._access_changer.change,
        }
        self._faults = {name: act for name, act in faults.items() if getattr(plan.fault_weights, name) > 0}
        if not world.layout.all_links():
            self._faults.pop("cut", None)
            self._faults.pop("one_way", None)
        self.done: Counter[str] = world.fault_counts

    def begin(self, until: int) -> None:
        """Cause a fault now and then, until the time `until`."""
        if not self._faults:
            return
        names = list(self._faults)
        weights = [getattr(self._plan.fault_weights, name) for name in names]

        def act() -> None:
            if self._world.engine.now >= until:
                return
            name = self._chance.choices(names, weights)[0]
            self.done[name] += 1
            self._faults[name]()
            self._measure()
            self._world.engine.after(self._chance.randint(1, self._plan.fault_weights.rest), act)

        self._world.engine.after(self._chance.randint(1, self._plan.fault_weights.rest), act)

    def heal(self) -> None:
        """Mend every link, make room on every disk and start every broker."""
        self._topology_changer.heal()
        for a, b in self._world.layout.all_links():
            self._world.mend(a, b)
        for name in self._world.layout.brokers:
            self._world.machines[name].free_disk()
            self._upgrade(name)
            self._world.restart(name)
        for a, b in self._world.layout.all_links():
            for here, there in ((a, b), (b, a)):
                self._world.machines[here].link_measured(there, *MEASURES[0])
        self._access_changer.heal()

    def _upgrade(self, name: str) -> None:
        """Stop a broker that speaks no version with which a world may end; it will start with one."""
        machine, version = self._world.machines[name], self._plan.link_version_in_the_end
        if machine.link_version < version:
            self._world.crash(name)
            machine.upgrade(version)

    def _measure(self) -> None:
        """A broker finds one of its links better or worse than before."""
        links = self._world.layout.all_links()
        if links:
            here, there = self._measures.sample(self._measures.choice(links), 2)
            self._world.machines[here].link_measured(there, *self._measures.choice(MEASURES))

    def _later(self, action: Callable[[], None]) -> None:
        self._world.engine.after(self._chance.randint(1_000, LASTS_US_MAX), action)

    def _some_machine(self) -> str:
        return self._chance.choice(self._world.layout.brokers)

    def _some_link(self) -> tuple[str, str] | None:
        """A random link, or None where nothing is linked any more."""
        links = self._world.layout.all_links()
        return self._chance.choice(links) if links else None

    def _crash(self) -> None:
        name = self._some_machine()
        self._world.crash(name)
        self._later(lambda: self._world.restart(name))

    def _cut(self) -> None:
        link = self._some_link()
        if link is None:
            return
        a, b = link
        self._world.cut(a, b)
        self._later(lambda: self._world.mend(a, b))

    def _one_way(self) -> None:
        """A link carries nothing in one direction for a while, and may then go down."""
        link = self._some_link()
        if link is None:
            return
        a, b = self._chance.sample(link, 2)
        self._world.network.clog(a, b)

        def unclog() -> None:
            self._world.network.unclog(a, b)
            if self._chance.random() < 0.5:
                self._world.cut(a, b)
                self._world.mend(a, b)

        self._later(unclog)

    def _reform(self) -> None:
        """An administrator changes the overlay."""
        self._topology_changer.change()

    def _skew(self) -> None:
        self._world.set_skew(self._some_machine(), self._chance.choice(SKEWS))

    def _pause(self) -> None:
        self._world.machines[self._some_machine()].pause(self._chance.randint(1_000, LASTS_US_MAX))

    def _stall(self) -> None:
        self._world.machines[self._some_machine()].stall_disk(self._chance.randint(1_000, LASTS_US_MAX))

    def _full(self) -> None:
        machine = self._world.machines[self._some_machine()]
        machine.fill_disk()
        self._later(machine.free_disk)

    def _tables(self) -> None:
        """A process dies, and its tables are gone or older when it comes back."""
        name = self._some_machine()
        self._world.machines[name].harm_tables(self._chance)
        self._world.crash(name)
        self._later(lambda: self._world.restart(name))

    def _sync_error(self) -> None:
        self._world.machines[self._some_machine()].fail_next_sync()

    def _pipeline(self) -> None:
        if self._world.pipeline is not None:
            self._world.pipeline.crash()

    def _hostile(self) -> None:
        """Somebody says to a broker what it has to refuse, or what must do no harm."""
        self._strangers.act(self._chance)

    def _rot(self) -> None:
        """Damage one record, once in a world: two could destroy both copies of what is stored twice."""
        if not self._world.gaps_allowed and not self.done["rotten"]:
            hosts = sorted(set(self._plan.pubends.values()))
            self.done["rotten"] += self._world.machines[self._chance.choice(hosts)].rot(self._chance)
            self._world.gaps_allowed = bool(self.done["rotten"])
