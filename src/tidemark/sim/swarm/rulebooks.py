"""Rulebooks at random: rules, roles and claims for the users of a simulated world."""

from __future__ import annotations

from random import Random

from tidemark.sim.judging.rulebook import CLAIM, Reader, ReaderRole, Rulebook, Rules

#: Every subscriber and publisher that a world of the swarm may have is a user of the same name.
READERS = tuple(f"{kind}{number}" for kind in ("holds", "leaves", "passes") for number in range(6))
PUBLISHERS = tuple(f"pub{number}" for number in range(6))
KINDS = "abcd"
GRANTS = (("t.>",), ("t.>",), ("t.x", "t.y"), ("t.y", "t.z"))
RULES = (
    "n < 80",
    "kind <> 'c'",
    "n >= 20",
    f"kind = {CLAIM} OR n > 30",
    "kind IN ('a', 'b') OR n < 60",
    "secret < 70 OR n > 30",
)
#: Fields that a role hides; who has named one of the others in a selector is refused meanwhile.
HIDES = (("secret",), ("secret",), ("n", "secret"), ("kind",))
#: What a publisher may publish a second, where that is bounded; some publish a hundred events a second.
QUOTAS: tuple[dict[str, int], ...] = (
    {},
    {"publish_events": 40},
    {"publish_bytes": 2_000},
    {"publish_events": 100, "publish_bytes": 10_000},
)
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
    return Rulebook(roles, known, PUBLISHERS, chance.choice(QUOTAS))


def _role(chance: Random, *, is_last: bool) -> ReaderRole:
    deny = () if is_last else chance.choice(((), (), ("t.x",), ("t.y",)))
    subscribe = GRANTS[0] if is_last else chance.choice(GRANTS)
    read, restrict = _rules(chance, 0.7), _rules(chance, 0.2)
    hide = {}
    if chance.random() < 0.5:
        pattern = chance.choice(("t.>", "t.x", "t.*"))
        hide = {pattern: HIDES[0] if is_last else chance.choice(HIDES)}
    return ReaderRole(subscribe, read, restrict, deny, hide)


def _rules(chance: Random, share: float) -> Rules:
    if chance.random() >= share:
        return {}
    patterns = chance.sample(("t.>", "t.x", "t.y"), chance.choice((1, 1, 2)))
    return {pattern: chance.choice(RULES) for pattern in sorted(patterns)}
