"""Rulebooks at random: rules, roles and claims for the users of a simulated world."""

from __future__ import annotations

from random import Random

from tidemark.sim.judging.rulebook import CLAIM, Reader, ReaderRole, Rulebook, Rules

#: Every subscriber and publisher that a world of the swarm may have is a user of the same name.
READERS = tuple(f"{kind}{number}" for kind in ("holds", "leaves", "passes") for number in range(6))
PUBLISHERS = tuple(f"pub{number}" for number in range(6))
KINDS = "abcd"
GRANTS = (("t.>",), ("t.>",), ("t.x", "t.y"), ("t.y", "t.z"))
RULES = ("n < 80", "kind <> 'c'", "n >= 20", f"kind = {CLAIM} OR n > 30", "kind IN ('a', 'b') OR n < 60")
ROLES = ("first", "second", "third")
#: The chance that a user is struck off, in a document that is not the last one.
STRUCK_OFF = 0.1


def some_rulebook(chance: Random, *, is_last: bool = False) -> Rulebook:
    """Returns a random rulebook; in the last one of a world, everybody may see something."""
    roles = {name: _role(chance, is_last=is_last) for name in ROLES}
    known = {
        name: Reader(tuple(sorted(chance.sample(ROLES, chance.choice((1, 1, 2))))), chance.choice(KINDS))
        for name in READERS
        if is_last or chance.random() >= STRUCK_OFF
    }
    return Rulebook(roles, known, PUBLISHERS)


def _role(chance: Random, *, is_last: bool) -> ReaderRole:
    deny = () if is_last else chance.choice(((), (), ("t.x",), ("t.y",)))
    subscribe = GRANTS[0] if is_last else chance.choice(GRANTS)
    return ReaderRole(subscribe, _rules(chance, 0.7), _rules(chance, 0.2), deny)


def _rules(chance: Random, share: float) -> Rules:
    if chance.random() >= share:
        return {}
    patterns = chance.sample(("t.>", "t.x", "t.y"), chance.choice((1, 1, 2)))
    return {pattern: chance.choice(RULES) for pattern in sorted(patterns)}
