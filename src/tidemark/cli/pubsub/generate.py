"""Made-up events of a schema, for trying out and for load: the same ones in every run.

Whole numbers count up, other numbers and texts vary over a small range so that selectors have something to
choose, optional parts are there half of the time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

from tidemark.message.members import cases, members, split_option
from tidemark.message.types import Atomic, Dynamic, Kind, List, Reference, Tuple, Type, Variant

if TYPE_CHECKING:
    from tidemark.message.schema import Schema

DEPTH_MAX = 6
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_INT_MODULUS = 2**31


class Generator:
    """Makes the values of events: `generator(number)` is the value of the event with this number."""

    def __init__(self, schema: Schema, seed: int = 0) -> None:
        self._schema = schema
        self._random = Random(seed)
        self._number = 0

    def __call__(self, number: int) -> Any:
        """Return the value of the event with this number."""
        self._number = number
        return self._value("", self._schema.root, 0)

    def _value(self, name: str, item: Type, depth: int) -> Any:
        core, nullable = split_option(item)
        if nullable and (depth >= DEPTH_MAX or self._random.random() < 0.5):
            return None
        match core:
            case Atomic():
                return self._atomic(name, core)
            case Reference():
                return self._value(name, self._schema.definitions[core.name], depth + 1)
            case Tuple():
                return self._tuple(core, depth)
            case List():
                length = 0 if depth >= DEPTH_MAX else self._random.randrange(3)
                return [self._value(name, core.item, depth + 1) for _ in range(length)]
            case Variant():
                case = self._random.choice(cases(core))
                return {case.name: self._value(case.name, case.type, depth + 1)}
            case Dynamic():
                return self._number
        raise AssertionError(core)

    def _tuple(self, item: Tuple, depth: int) -> dict[str, Any]:
        """Of the cases of spliced variants, the first."""
        found: dict[str, Any] = {}
        has_chosen = False
        for member in members(item):
            if not (member.chosen and has_chosen):
                found[member.name] = self._value(member.name, member.type, depth + 1)
            has_chosen = has_chosen or member.chosen
        return found

    def _atomic(self, name: str, item: Atomic) -> Any:
        number = self._number
        match item.kind:
            case Kind.BOOLEAN:
                return self._random.random() < 0.5
            case Kind.INT:
                return number % _INT_MODULUS
            case Kind.LONG:
                return number
            case Kind.FLOAT | Kind.DOUBLE:
                return self._random.randrange(10_000) / 100
            case Kind.DECIMAL:
                return Decimal(self._random.randrange(10 ** min(item.precision, 4))).scaleb(-item.scale)
            case Kind.STRING:
                return f"{name or 'text'}-{self._random.randrange(10)}"
            case Kind.BYTES:
                return self._random.randbytes(8)
            case Kind.TIMESTAMP:
                return _BEGIN + timedelta(milliseconds=number)
        raise AssertionError(item.kind)
