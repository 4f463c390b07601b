"""Generations of a topic: one number that orders its creations and its removals.

A topic that is created has the generation 0, its removal is 1, the next creation 2, and so on: in an even
generation the topic exists, in an odd one it is removed. Whoever hears of several goes by the highest, so
that an old creation never overtakes a removal. The versions of a topic's schema belong to the creation that
they were declared in, and stay known after its removal: events of that time are still in logs and archives.
"""

from __future__ import annotations

#: Clients can create a topic of one name so often.
CREATIONS_MAX = 1_000
GENERATION_MAX = 2 * CREATIONS_MAX + 1


def is_removed(generation: int) -> bool:
    """Return whether the topic does not exist in this generation."""
    return generation % 2 == 1


def creation_of(generation: int) -> int:
    """Return the creation that a generation belongs to: itself, or the creation that it removes."""
    return generation - generation % 2


def removal_of(creation: int) -> int:
    """Return the generation in which a creation, or one that is removed, is removed."""
    return creation_of(creation) + 1
