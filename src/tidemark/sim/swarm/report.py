"""Reports of many seeds, and of hunts for planted bugs.

A promise was tested only if some world reached the code that keeps it. So a report lists every broker counter
and every fault with how often it happened and in how many worlds, and names loudly what no world met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tidemark.broker.counters import COUNTED
from tidemark.sim.swarm.hunt import HuntResult
from tidemark.sim.swarm.planted import BUGS
from tidemark.sim.swarm.swarm import SeedOutcome

#: name of a fault in the coverage of a world -> what it means
FAULTS = {
    "fault_crash": "machines switched off",
    "fault_cut": "links cut",
    "fault_one_way": "links that carried nothing one way",
    "fault_skew": "clocks that jumped",
    "fault_pause": "processes that stood still",
    "fault_stall": "disks that did nothing for a while",
    "fault_full": "disks without room",
    "fault_sync_error": "disks whose next sync was to fail",
    "fault_pipeline": "pipelines that died and came back",
    "fault_rot": "tries to damage a record on a disk",
    "fault_rotten": "records damaged on a disk",
    "fault_tables": "processes that died and found their tables gone or older",
    "fault_refused": "brokers that refused such tables, until the right ones were put back",
    "fault_reform": "changes of the overlay at run time",
    "fault_publish_removed": "batches refused because their topic was removed",
    "fault_hostile": "hostile things said to a broker",
    "fault_access": "changes of who may see what",
    "fault_struck_off": "connections of users that were unknown where they connected",
    "fault_denied": "subscriptions of users that may see nothing of what they ask for",
    "fault_upgrade": "brokers that came to speak a newer version of the protocol",
    "fault_turned_away": "batches turned away by a broker that was being drained",
}

#: profile -> what happens there only
ONLY = {
    "hostile": ("fault_hostile", "frames_refused", "neighbours_refused"),
    "mixed": ("fault_upgrade",),
    "access": ("fault_access", "fault_struck_off", "fault_denied", "denied", "access_renewed"),
}


def replay_command(seed: int, profile: str, bug: str | None = None) -> str:
    """Returns the command that runs one seed again with a trace."""
    planted = f" --planted {bug}" if bug else ""
    return f"./run sim --from {seed} --seeds 1 --profile {profile} --trace{planted}"


@dataclass
class SeedsReport:
    """The sums over a run of many seeds of one profile."""

    profile: str
    first: int
    ran: int = 0
    events: int = 0
    deliveries: int = 0
    gaps: int = 0
    seconds: float = 0.0
    failures: list[SeedOutcome] = field(default_factory=list)
    #: name of a counter or fault -> how often it happened; and in how many worlds
    times: Counter[str] = field(default_factory=Counter)
    worlds: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: SeedOutcome) -> None:
        """Add the outcome of one more world."""
        self.ran += 1
        self.events += outcome.events
        self.deliveries += outcome.deliveries
        self.gaps += outcome.gaps
        self.times.update(outcome.coverage)
        self.worlds.update(name for name, count in outcome.coverage.items() if count)
        if outcome.violation is not None:
            self.failures.append(outcome)

    @property
    def seeds_per_minute(self) -> float:
        """Worlds run a minute so far."""
        return 60 * self.ran / self.seconds if self.seconds else 0.0

    @property
    def never(self) -> list[str]:
        """Counters that no world met; faults too in the profile `swarm`, which should have nearly all."""
        expected = [*COUNTED, *FAULTS] if self.profile in ("swarm", "access") else [*COUNTED]
        elsewhere = {name for profile, names in ONLY.items() if profile != self.profile for name in names}
        return [name for name in expected if not self.worlds[name] and name not in elsewhere]

    def as_dict(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "profile": self.profile,
            "first": self.first,
            "seeds": self.ran,
            "failures": [
                {
                    "seed": each.seed,
                    "violation": each.violation,
                    "replay": replay_command(each.seed, self.profile),
                }
                for each in self.failures
            ],
            "events": self.events,
            "deliveries": self.deliveries,
            "gaps": self.gaps,
            "seconds": round(self.seconds, 3),
            "seeds_per_minute": round(self.seeds_per_minute, 1),
            "coverage": {
                name: {"times": self.times[name], "seeds": self.worlds[name]} for name in self._names()
            },
            "never": self.never,
        }

    def render(self) -> str:
        """For people."""
        lines = [f"{'':<21} {'times':>9} {'worlds':>7}"]
        for name in self._names():
            if self.worlds[name]:
                about = COUNTED.get(name) or FAULTS.get(name, "")
                lines.append(f"{name:<21} {self.times[name]:>9} {self.worlds[name]:>7}  {about}")
        if self.never:
            lines += ["", f"NEVER MET in {self.ran} worlds, so not tested:"]
            lines += [f"  {name:<19} {COUNTED.get(name) or FAULTS[name]}" for name in self.never]
        kept = self.ran - len(self.failures)
        lines += [
            "",
            f"{self.events} events, {self.deliveries} deliveries, {self.gaps} gaps; "
            f"{self.seconds:.1f} s, {self.seeds_per_minute:.0f} seeds a minute",
            f"{kept} of {self.ran} worlds kept every promise",
        ]
        return "\n".join(lines)

    def _names(self) -> list[str]:
        known = [*COUNTED, *FAULTS]
        return known + sorted(set(self.times) - set(known))


def describe_hunts(hunts: Iterable[HuntResult]) -> dict[str, Any]:
    """For scripts: each planted bug, and which seed found it."""
    return {
        "planted": [
            {
                "bug": each.bug,
                "about": BUGS[each.bug].about,
                "profile": each.profile,
                "seeds": each.seeds,
                "seed": each.seed,
                "noticed": each.violation,
            }
            for each in hunts
        ]
    }


def render_hunts(hunts: Iterable[HuntResult]) -> str:
    """For people: a table of planted bugs."""
    lines = [f"{'bug':<22} {'seeds':>6}  what it does, and what was noticed"]
    for each in hunts:
        needed = str(each.seeds) if each.seed is not None else f">{each.seeds}"
        noticed = f"seed {each.seed}: {each.violation}" if each.seed is not None else "NOT FOUND"
        lines += [f"{each.bug:<22} {needed:>6}  {BUGS[each.bug].about}", f"{'':<31}{noticed}"]
    return "\n".join(lines)
