"""Rulebook: who may see what in a simulated world, as the oracle understands it.

A rulebook can be written as the access document that brokers go by. What it shows to a user is worked out
here anew, one event at a time, without the code that brokers use for that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.sim.judging.ground_truth import GroundTruth

#: topic pattern -> selector, in which `:claims.kind` stands for the claim of the user
Rules = Mapping[str, str]

CLAIM = ":claims.kind"
#: What those need who are not judged: the publishers and the archive.
OTHERS = """
[roles.publisher]
publish = ["t.>"]
declare = ["t.>"]
publisher = ["pub*"]
[roles.archive]
pipeline = true
[roles.administrator]
administer = true
[users.pipeline]
roles = ["archive"]
"""


@dataclass(frozen=True, slots=True)
class ReaderRole:
    """What the users of a role may see."""

    subscribe: tuple[str, ...]
    read: Rules
    restrict: Rules
    deny: tuple[str, ...] = ()
    #: topic pattern -> the fields that are hidden there
    hide: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reader:
    """A user that subscribes."""

    roles: tuple[str, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Rulebook:
    """All roles and users of one access document."""

    roles: Mapping[str, ReaderRole]
    #: users that are not here are unknown: they cannot connect
    readers: Mapping[str, Reader]
    publishers: tuple[str, ...]
    #: what a publisher may publish a second: `publish_events` and `publish_bytes`, if they are bounded
    quota: Mapping[str, int] = field(default_factory=dict)
    #: bytes that pubends may hold for a durable subscription of a reader; None if that is not bounded
    held_bytes: int | None = None

    def text(self) -> str:
        """Returns the access document."""
        lines = [OTHERS]
        for name, role in self.roles.items():
            lines += [f"[roles.{name}]", f"subscribe = {_list(role.subscribe)}", 'durable = ["{user}.*"]']
            lines += [f'read."{pattern}" = {json.dumps(rule)}' for pattern, rule in role.read.items()]
            lines += [f'restrict."{pattern}" = {json.dumps(rule)}' for pattern, rule in role.restrict.items()]
            lines += [f'hide."{pattern}" = {_list(names)}' for pattern, names in role.hide.items()]
            lines.append(f"deny.subscribe = {_list(role.deny)}")
            if self.held_bytes is not None:
                lines.append(f"quota = {{ held_bytes = {self.held_bytes} }}")
        for name, reader in self.readers.items():
            lines += [f"[users.{name}]", f"roles = {_list(reader.roles)}"]
            lines.append(f"claims = {{ kind = {json.dumps(reader.kind)} }}")
        for name in self.publishers:
            lines += [f"[users.{name}]", 'roles = ["publisher"]']
        if self.quota:
            lines += ["[roles.publisher.quota]", *(f"{name} = {most}" for name, most in self.quota.items())]
        return "\n".join(lines) + "\n"

    def hides(self, user: str, key: str, truth: GroundTruth) -> frozenset[str]:
        """Returns the fields of an event that are hidden from a user."""
        reader = self.readers.get(user)
        names = (
            names
            for role in (reader.roles if reader is not None else ())
            for pattern, names in self.roles[role].hide.items()
            if truth.matches(pattern, "", key)
        )
        return frozenset(name for each in names for name in each)

    def shows(self, user: str, key: str, truth: GroundTruth) -> bool:
        """Whether a user may see an event."""
        reader = self.readers.get(user)
        if reader is None:
            return False

        def chosen(rules: Rules) -> list[bool]:
            """For each rule of the event's topic: whether it chooses the event."""
            claim = f"'{reader.kind}'"
            of_topic = [each for each in rules.items() if truth.matches(each[0], "", key)]
            return [truth.matches(pattern, rule.replace(CLAIM, claim), key) for pattern, rule in of_topic]

        roles = [self.roles[name] for name in reader.roles]
        is_shown = any(
            any(truth.matches(pattern, "", key) for pattern in role.subscribe)
            and (not (found := chosen(role.read)) or any(found))
            for role in roles
        )
        is_hidden = any(
            not all(chosen(role.restrict)) or any(truth.matches(pattern, "", key) for pattern in role.deny)
            for role in roles
        )
        return is_shown and not is_hidden


def _list(texts: tuple[str, ...]) -> str:
    return json.dumps(list(texts))
