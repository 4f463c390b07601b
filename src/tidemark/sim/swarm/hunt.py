"""Hunt: how many seeds it takes until a planted bug is found.

Found means that a world broke the promise that the bug breaks, and keeps all of them without the bug.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.sim.swarm.planted import BUGS
from tidemark.sim.swarm.swarm import try_seed


@dataclass(frozen=True, slots=True)
class HuntResult:
    """What came of a hunt for one bug."""

    bug: str
    profile: str
    #: how many were run, with the one that found it
    seeds: int
    #: the one that found it; None if none did
    seed: int | None = None
    #: what it said
    violation: str = ""


def hunt(bug: str, first: int, count: int, profile: str | None = None) -> HuntResult:
    """Run seeds with a bug planted until one finds it, in its own profile unless another is given."""
    chosen = profile or BUGS[bug].profile
    for at, seed in enumerate(range(first, first + count), 1):
        violation = try_seed(seed, chosen, bug).violation
        if violation is None or not BUGS[bug].is_noticed_by(violation):
            continue
        if try_seed(seed, chosen).violation is None:
            return HuntResult(bug, chosen, at, seed, violation)
    return HuntResult(bug, chosen, count)
