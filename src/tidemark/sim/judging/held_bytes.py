"""HeldBytes: whether pubends hold no more for a durable subscription than its user's quota, for long.

A host counts now and then what its subscriptions are owed, so that more may be held for a moment. A host that
is paused, or whose disk is full or stalled, counts nothing meanwhile and is excused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.sim.judging.ground_truth import ViolationError

if TYPE_CHECKING:
    from tidemark.sim.world.subscriber import Life
    from tidemark.sim.world.world import World

#: What is held is looked at this often, in microseconds.
LOOK_US = 50_000
#: A subscriber may hold more than its quota for this long, in microseconds.
PATIENCE_US = 500_000
#: No event that a simulated publisher publishes is smaller in the log.
EVENT_BYTES_MIN = 16


class HeldBytes:
    """Looks at what the hosts of a world make pubends hold."""

    def __init__(self, world: World, most: int) -> None:
        """`most`: the quota, in bytes."""
        self._world = world
        self._most = most
        #: machine, its life, and a subscription for which too much is held -> since when
        self._since: dict[tuple[str, int, str], int] = {}

    def begin(self) -> None:
        """Look from now on, as long as the world runs; ViolationError if too much was held for too long."""
        self._look()
        self._world.engine.after(LOOK_US, self.begin)

    def _look(self) -> None:
        world, over = self._world, dict[tuple[str, int, str], int]()
        assert world.access is not None
        for name, machine in world.machines.items():
            for life in [each.life for each in world.subscribers if not machine.is_hindered]:
                if not life.durable or not world.access.is_reader(name, life.user):
                    continue
                held = self._held(name, life)
                if held > self._most:
                    key = name, machine.life, life.name
                    over[key] = self._since.get(key, world.engine.now)
                    if world.engine.now - over[key] > PATIENCE_US:
                        raise ViolationError(
                            f"{name} makes pubends hold {held} bytes for {life.name} since {over[key]}, "
                            f"and its quota of held_bytes is {self._most}"
                        )
        self._since = over

    def _held(self, machine: str, life: Life) -> int:
        """Returns how many bytes are held for a subscription at the least."""
        world, truth, count = self._world, self._world.ground_truth, 0
        broker = world.machines[machine].broker
        assert broker is not None
        for pubend, (base, upto) in broker.held_for(life.name).items():
            for tick, key in truth.within(pubend, base, upto):
                want = life.wanted_at(pubend, tick)
                count += (
                    want is not None
                    and truth.matches(want.pattern, want.selector, key)
                    and truth[key].alive_at(tick, world.latest)
                    and world.is_owed(life, key)
                )
        return count * EVENT_BYTES_MIN
