"""Hunt: how many seeds it takes until a planted bug is found.

A seed finds a bug when its world breaks the promise that the bug breaks, and keeps all promises without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.sim.swarm.planted import BUGS
from tidemark.sim.swarm.swarm import try_seed


@dataclass(frozen=True, slots=True)
class HuntResult:
    """The result of a hunt for one bug."""

    bug: str
    profile: str
    #: how many seeds were run, including the one that found the bug
    seeds: int
    #: the seed that found the bug; None if none did
    seed: int | None = None
    #: the violation that this seed ended with
    violation: str = ""


def hunt(bug: str, first: int, count: int, profile: str | None = None) -> HuntResult:
    """Run up to `count` seeds with a bug planted until one finds it; `profile` replaces that of the bug."""
    chosen = profile or BUGS[bug].profile
    for at, seed in enumerate(range(first, first + count), 1):
        violation = try_seed(seed, chosen, bug).violation
        if violation is None or not BUGS[bug].is_noticed_by(violation):
            continue
        if try_seed(seed, chosen).violation is None:
            return HuntResult(bug, chosen, at, seed, violation)
    return HuntResult(bug, chosen, count)
