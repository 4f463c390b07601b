"""Rulebook: who may see what in a simulated world, as the oracle understands it.

A rulebook can be written as the access document that brokers go by. What it shows to a user is worked out
here anew, one event at a time, without the code that brokers use for that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

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

    def text(self) -> str:
        """Returns the access document."""
        lines = [OTHERS]
        for name, role in self.roles.items():
            lines += [f"[roles.{name}]", f"subscribe = {_list(role.subscribe)}", 'durable = ["{user}.*"]']
            lines += [f'read."{pattern}" = {json.dumps(rule)}' for pattern, rule in role.read.items()]
            lines += [f'restrict."{pattern}" = {json.dumps(rule)}' for pattern, rule in role.restrict.items()]
            lines.append(f"deny.subscribe = {_list(role.deny)}")
        for name, reader in self.readers.items():
            lines += [f"[users.{name}]", f"roles = {_list(reader.roles)}"]
            lines.append(f"claims = {{ kind = {json.dumps(reader.kind)} }}")
        for name in self.publishers:
            lines += [f"[users.{name}]", 'roles = ["publisher"]']
        return "\n".join(lines) + "\n"

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
