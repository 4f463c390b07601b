"""Hostile values: numbers at the ends of their ranges, odd names, texts that parsers choke on.

Most values are plausible, because a frame that is refused at once reaches no code behind the decoder. What
the broker itself has said (ticks, tickets, versions) is remembered and said back, and not only where it fits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from random import Random
from typing import TypeVar

from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import TICK_FIRST, TICK_LAST, TICK_MAX, TICK_MIN, CheckpointToken, nearest_position
from tidemark.wire.limits import (
    CREDIT_BYTES_MAX,
    EPOCH_MAX,
    INCARNATION_MAX,
    OVERLAY_VERSION_MAX,
    RECALLS_MAX,
    SECONDS_MAX,
    STAMP_MAX,
)

_T = TypeVar("_T")

#: How many of the last values of a kind are remembered.
REMEMBERED_MAX = 16
#: Names that hostile subscribers, publishers and topics have. Those of well-behaved clients are not among
#: them: taking over a subscription by its name is allowed to whoever knows it.
SUBSCRIBERS = tuple(f"evil-{number}" for number in range(12))
PUBLISHERS = ("evil-p", "evil-q", "")
TOPICS = ("evil.a", "evil.b", "evil.open", "evil.c.d")
ODD_NAMES = ("", "\x00", "evil\n\x1b[31m", "é" * 127, "n" * 255, "evil\u202e", "a" * 128, "..", "evil. ")
PATTERNS = (">", "evil.>", "evil.*", "*.*", "evil.a", "", "..", "evil.>.x", "*" * 255, ".".join("a" * 100))
SELECTORS = (
    "",
    "n > 1",
    "n = 1 AND text LIKE 'a%'",
    "text IS NULL OR NOT (n BETWEEN 1 AND 5)",
    "n IN (1, 2, 3)",
    "n = 9223372036854775807",
    "n + 9223372036854775807 > 0",
    "n = 1e400",
    "n / 0 = 1",
    "text LIKE '" + "%a" * 60 + "'",
    "text LIKE 'a!%' ESCAPE '!'",
    "nested.field = 1",
    "(" * 40 + "n = 1" + ")" * 40,
    "NOT " * 60 + "n = 1",
    "n = " + "9" * 400,
    "n = 'unfinished",
    "text = '\x00'",
    "x" * 4_000,
    " OR ".join(["n = 1"] * 60),
    "who.b LIKE '%a_' OR who.a > 3",
    "price * 3 > 10.5 AND price <> 0",
    "extra = 1 OR extra LIKE 'a%' OR extra IS NULL",
    "tree.n > 1 OR tree.left.n < 2",
    "is_on = TRUE AND seen IS NOT NULL",
    "n = \u0663 OR text = '\u2028'",
)
#: Schemas with all that the language has, and values of each.
RICH: tuple[tuple[str, tuple[dict[str, object], ...]], ...] = (
    (
        "[n: int, tags: *(string)*, who: {a: int | b: string | c: []}, price: decimal(12, 4)?, text: string]",
        (
            {"n": 1, "tags": [], "who": {"a": 7}, "price": None, "text": "abc"},
            {"n": 2, "tags": ["abc", ""], "who": {"b": "abc"}, "price": Decimal("10.5"), "text": ""},
            {"n": 3, "tags": ["abc"] * 9, "who": "c", "price": Decimal(0), "text": "\xe9"},
        ),
    ),
    (
        "[n: long, extra: dynamic, legs: *([venue: string, qty: int, kind: {x: [] | y: string}])*]",
        (
            {"n": 1, "extra": None, "legs": []},
            {"n": 2, "extra": {"a": [1, 2.5, "abc"]}, "legs": [{"venue": "abc", "qty": 1, "kind": "x"}]},
            {"n": 3, "extra": "abc", "legs": [{"venue": "", "qty": 2, "kind": {"y": "abc"}}] * 3},
        ),
    ),
    (
        "node: [n: int, left: node?, right: node?, is_on: boolean, f: float, d: double, raw: bytes]",
        (
            {"n": 1, "left": None, "right": None, "is_on": True, "f": 1.5, "d": 2.5, "raw": b"abc"},
            {
                "n": 2,
                "left": {
                    "n": 3, "left": None, "right": None, "is_on": False, "f": 0.0, "d": 0.0, "raw": b""
                },
                "right": None,
                "is_on": True,
                "f": 1.0,
                "d": -1.0,
                "raw": b"\xff" * 40,
            },
        ),
    ),
)  # fmt: skip
SCHEMAS = (
    "[n: int, text: string]",
    "[n: int]",
    "[n: int, text: string, more: double?]",
    "[n: long, text: string]",
    "[a: [b: [c: [d: int]]]]",
    "[list: int*]",
    "[" * 20 + "]" * 20,
    "[" * 3_000,
    "[" + ", ".join(f"f{number}: int" for number in range(200)) + "]",
    "[n: nothing]",
    "",
    "int",
    "[n: int, n: int]",
    "[\x00: int]",
    *(text for text, _ in RICH),
)
ARGUMENTS = (
    "{}",
    "",
    "[]",
    "null",
    "[" * 1_000,
    '{"name": ' * 500,
    '{"to": ' + "9" * 5_000 + "}",
    '{"to": 1e999}',
    '{"to": -9223372036854775809}',
    '{"name": "evil-1"}',
    '{"name": "evil-1", "force": true}',
    '{"name": "evil-2", "to": "now"}',
    '{"name": "evil-3", "to": 9223372036854775807}',
    '{"name": "evil-3", "to": true}',
    '{"name": {"a": []}, "to": [[[]]]}',
    '{"name": "\\ud800"}',
    '{"token": "tm1.AAAAAA"}',
    '{"token": ["x"]}',
    '{"host": "nobody"}',
    '{"host": null}',
    '{"text": "", "base": 0}',
    '{"text": "a = [[[[", "base": 9223372036854775807}',
    '{"text": "[brokers.evil]", "base": 1e5}',
    '{"base": "x"}',
    '{"text": "", "base": 1e999}',
    '{"snapshot": "x", "file": "y", "offset": -1e999, "bytes": 1e999}',
    '{"name": "evil-1", "to": -1e999, "limit": 1e999}',
    '{"base": 0, "text": "brokers' + ".a" * 16_000 + '=1"}',
    '{"base": 0, "text": "[roles' + ".a" * 16_000 + ']"}',
    '{"base": 0, "text": "a = ' + "9" * 5_000 + '"}',
    '{"a": [' + "[]," * 20_000 + "0]}",
    '{"a": [' + "0," * 500_000 + "0]}",
    '{"base": 0, "text": "#' + "x" * (1 << 20) + '"}',
)
TEXTS = (
    "",
    "x",
    "\x00",
    "é" * 200,
    "tm1.",
    "not = = toml",
    "a = " + "[" * 2_000,
    "[brokers.x]\nlisten = 7",
    "brokers" + ".a" * 16_000 + " = 1",
    "[users" + ".a" * 16_000 + "]",
    "[roles.x]\nquota.subscriptions = " + "9" * 5_000,
    "x = [" + "1," * 100_000 + "]",
)
#: How often something of which a frame has many is there so many times: a frame near its largest size.
MANY_SHARE = 0.004
MANY = (200, 1_000, 4_096)

#: Numbers that no field allows, or few do.
OUTSIDE = (-1, -(2**31), -(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 2, 2**62, TICK_LAST + 1, TICK_FIRST - 1)
#: A time of day in the year 2096, in microseconds: no clock is so far ahead.
TOO_LATE = 4_000_000_000_000_000
#: Numbers at the end of what some field allows.
EDGES = (
    0, 1, 2, 2**31 - 1, 2**32, 2**53, TOO_LATE,
    INCARNATION_MAX, OVERLAY_VERSION_MAX, STAMP_MAX, EPOCH_MAX, CREDIT_BYTES_MAX,
)  # fmt: skip
#: field -> the largest number that it allows, where that is not the same for most fields
BOUNDS = {
    "incarnation": INCARNATION_MAX,
    "stamp": STAMP_MAX,
    "credit": CREDIT_BYTES_MAX,
    "bytes": CREDIT_BYTES_MAX,
    "bytes_max": CREDIT_BYTES_MAX,
    "seconds": SECONDS_MAX,
    "recalls_max": RECALLS_MAX,
}
TICK_EDGES = (TICK_MIN, TICK_FIRST, -1, 0, 1, TOO_LATE, TICK_LAST - 1, TICK_LAST)


class HostileValues:
    """Draws values by chance, and remembers what the broker said."""

    def __init__(self, chance: Random, pubends: Sequence[str], brokers: Sequence[str]) -> None:
        self.chance = chance
        self._pubends = tuple(pubends)
        self._brokers = tuple(brokers)
        #: name of a field -> the last numbers that the broker has said in such a field
        self._numbers: dict[str, deque[int]] = {}
        self._ticks: deque[int] = deque([1_000_000], REMEMBERED_MAX)
        #: how often a value is one that the decoder refuses; whoever makes a frame sets it
        self.nonsense = 0.05
        #: tickets of leases
        self.leases: deque[str] = deque(maxlen=REMEMBERED_MAX)

    def learn(self, frame: object) -> None:
        """Remember the numbers of a frame of the broker."""
        if not is_dataclass(frame):
            return
        for each in fields(frame):
            value = getattr(frame, each.name)
            if isinstance(value, bool):
                continue
            if isinstance(value, int):
                is_tick = each.name in ("base", "upto", "tick", "lost", "released", "delivered")
                known = (
                    self._ticks
                    if is_tick
                    else self._numbers.setdefault(each.name, deque(maxlen=REMEMBERED_MAX))
                )
                known.append(value)
            elif isinstance(value, CheckpointToken):
                self._ticks.extend(list(value.values())[:2])
            elif isinstance(value, EventBatch):
                self._ticks.append(int(value.ticks[-1]))
            elif isinstance(value, tuple):
                for item in value[:3]:
                    self.learn(item)

    def pick(self, values: Sequence[_T]) -> _T:
        """One of these."""
        return self.chance.choice(values)

    def number(self, field: str) -> int:
        """A number for a field of this name that is no tick."""
        lot = self.chance.random()
        known = self._numbers.get(field)
        if lot < 0.5 and known:
            return max(0, self.pick(known) + self.pick((0, 0, 0, 1, -1)))
        if lot < 0.7:
            return self.chance.randrange(0, 10)
        if lot > 1 - self.nonsense:
            return self.pick(OUTSIDE)
        return min(self.pick(EDGES), BOUNDS.get(field, EPOCH_MAX))

    def tick(self) -> int:
        """A tick, or something that is none."""
        lot = self.chance.random()
        if lot < 0.65:
            return nearest_position(self.pick(self._ticks) + self.pick((0, 0, 1, -1, 1_000_000, -1_000_000)))
        if lot < 1 - self.nonsense:
            return self.pick(TICK_EDGES)
        return self.pick((*OUTSIDE, TICK_MAX))

    def span(self) -> tuple[int, int]:
        """A range, nearly always in order."""
        base, upto = sorted((self.tick(), self.tick()))
        if upto - base < 100 and self.chance.random() < 0.7:
            base, upto = sorted((base, nearest_position(base + 1_000_000)))  # room for a few events
        return (base, upto) if self.chance.random() >= self.nonsense else (upto, base)

    def text(self, field: str) -> str:
        """A text for a field of this name."""
        pools: dict[str, Sequence[str]] = {
            "pubend": (*self._pubends, *self._pubends, *self._pubends, "nowhere", ""),
            "broker": (*self._brokers, "nobody", ""),
            "host": (*self._brokers, "nobody", ""),
            "publisher": PUBLISHERS,
            "topic": TOPICS,
            "pattern": PATTERNS,
            "selector": SELECTORS,
            "schemas": SCHEMAS,
            "arguments": ARGUMENTS,
            "text": TEXTS,
            "ticket": (*self.leases, "none"),
            "up": self._brokers,
        }
        if field in ("pattern", "selector", "arguments", "schemas", "text"):
            # Half of the time something simple: too much nonsense would never get far.
            return self.pick(pools[field][:4] if self.chance.random() < 0.5 else pools[field])
        if self.chance.random() < 0.08:
            return self.pick(ODD_NAMES)
        return self.pick(pools.get(field, SUBSCRIBERS))
