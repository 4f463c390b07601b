"""Shown fields: what the events of a world with accounts look like to those from whom fields are hidden.

The schemas are written here anew, without the code by which brokers take fields out.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import combinations
from typing import Any

from tidemark.message.schema import Schema

FIELDS = {"key": "string", "kind": "string", "n": "int", "secret": "int"}
#: The fields that a role may hide. No subscriber's selector names the last one; rules may.
HIDEABLE = ("kind", "n", "secret")


def schema_without(hidden: Collection[str] = ()) -> Schema:
    """Returns the schema of events without some fields."""
    left = [f"{name}: {type_}" for name, type_ in FIELDS.items() if name not in hidden]
    return Schema.parse(f"[{', '.join(left)}]")


def named_in(selector: str) -> frozenset[str]:
    """Returns the fields that a subscriber's selector names."""
    outside_of_texts = re.sub(r"'[^']*'", "", selector)
    return frozenset(HIDEABLE) & frozenset(re.findall(r"\w+", outside_of_texts))


class ShownFields:
    """Reads events in whatever schema they are shown."""

    def __init__(self) -> None:
        #: fingerprint -> schema, and which fields it lacks
        self._schemas: dict[int, tuple[Schema, frozenset[str]]] = {}
        for count in range(len(HIDEABLE) + 1):
            for hidden in combinations(HIDEABLE, count):
                schema = schema_without(hidden)
                self._schemas[schema.fingerprint] = schema, frozenset(hidden)

    @property
    def schemas(self) -> list[Schema]:
        """Every schema in which an event may be shown."""
        return [schema for schema, _ in self._schemas.values()]

    def lacking(self, fingerprint: int) -> frozenset[str]:
        """Returns the fields that events of this schema lack."""
        return self._schemas[fingerprint][1]

    def is_of(self, event: dict[str, Any], fingerprint: int, message: bytes) -> bool:
        """Whether a message in this schema has the values of an event in all fields that are shown."""
        schema, lacking = self._schemas[fingerprint]
        expected = {name: value for name, value in event.items() if name not in lacking}
        return bool(schema.decode(message) == expected)
