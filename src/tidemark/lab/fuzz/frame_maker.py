"""FrameMaker: frames of every kind there is, with hostile values, as bytes.

The fields of a frame are taken from its class, and the classes from the layouts of the wire: a frame that is
added there is fuzzed at once. An encoder refuses numbers out of bounds, which are what a broker has to be
shown. So a frame is encoded with marks in place of its numbers, and the marks in its bytes are then replaced.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from itertools import count
from struct import pack
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from tidemark.errors import TidemarkError
from tidemark.lab.fuzz.values import MANY, MANY_SHARE, PUBLISHERS, RICH, SCHEMAS, HostileValues
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.schema import Schema
from tidemark.ticks import TICK_FIRST, TICK_LAST, CheckpointToken
from tidemark.wire.codec import LAYOUTS, encode
from tidemark.wire.frames import Together

#: every kind of frame
KINDS: tuple[type[Any], ...] = tuple(layout.frame for layout in LAYOUTS)
#: The first of the numbers that stand for others until the frame is encoded; every field of 8 bytes takes it.
_FIRST_MARK = 700_000_001
#: Fields that hold versions in 2 bytes.
_SHORT = ("oldest", "newest")
_TICKS = ("base", "upto", "lost", "tick", "released", "delivered")
_PLAIN = tuple(Schema.parse(text) for text in SCHEMAS[:3])
_RICH = tuple((Schema.parse(text), values) for text, values in RICH)
#: Schemas of which hostile publishers declare topics.
DECLARED = (_PLAIN[0], *(schema for schema, _ in _RICH))


class FrameMaker:
    """Makes frames from hostile values."""

    def __init__(self, values: HostileValues) -> None:
        self._values = values
        self._chance = values.chance
        #: mark -> the number that it stands for in the frame that is being made; None: there are no marks
        self._marks: dict[int, int] | None = {}
        self._next_mark = count(_FIRST_MARK)
        #: the value that is being made is one of many
        self._is_within = False
        #: the range of the frame that is being made
        self._span = (0, 0)

    def make(self, kind: type[Any], **fixed: Any) -> tuple[bytes, str]:
        """A frame of this kind as bytes, and how to print it; the values of `fixed` are as given."""
        for is_marked in (True, False):
            self._marks = {} if is_marked else None
            self._next_mark = count(_FIRST_MARK)
            self._span = self._values.span()
            frame = self._object(kind, fixed)
            try:
                raw = b"".join(bytes(piece) for piece in encode(frame))
            except (TidemarkError, OverflowError):
                continue  # a field is narrower than a mark: plain small numbers will do
            for mark, number in (self._marks or {}).items():
                raw = raw.replace(pack("<q", mark), pack("<q", max(-(2**63), min(number, 2**63 - 1))))
            return raw, f"{frame!r:.400} with {self._marks}"
        return b"", ""

    def _object(self, kind: type[Any], fixed: dict[str, Any]) -> Any:
        hints: dict[str, Any] = _hints_of(kind)  # type: ignore[arg-type]  # classes are hashable
        given: dict[str, Any] = {}
        for each in fields(kind):
            if each.name not in fixed:
                given[each.name] = self._value(each.name, hints[each.name])
            elif type(fixed[each.name]) is int:
                given[each.name] = self._marked(fixed[each.name])
                if each.name in ("base", "upto"):
                    low, high = self._span
                    number = fixed[each.name]
                    self._span = (number, high) if each.name == "base" else (low, number)
            else:
                given[each.name] = fixed[each.name]
        return kind(**given)

    def _marked(self, number: int) -> int:
        if self._marks is None:
            return abs(number) % 3
        mark = next(self._next_mark)
        self._marks[mark] = number
        return mark

    def _value(self, name: str, hint: Any) -> Any:
        values, chance = self._values, self._chance
        arguments = get_args(hint)
        if isinstance(hint, UnionType) or (arguments and NoneType in arguments):
            if NoneType in arguments and chance.random() < 0.3:
                return None
            # A frame of several others has none of its own kind in it.
            some = [each for each in arguments if each not in (NoneType, Together)]
            return self._value(name, chance.choice(some) if len(some) > 1 else some[0])
        if hint is bool:
            return chance.random() < 0.5
        if hint is int:
            return self._number(name)
        if hint is str:
            return values.text(name)
        if hint is EventBatch:
            return self._batch()
        if hint is CheckpointToken:
            return self._token()
        if get_origin(hint) is tuple:
            return self._tuple(name, arguments)
        assert is_dataclass(hint), f"the fuzzer does not know how to make {hint} yet"
        assert isinstance(hint, type)
        return self._object(hint, {})

    def _number(self, name: str) -> int:
        if name in _SHORT:
            return self._values.pick((0, 1, 2, 2, 2, 3, 65_535))
        if name == "base":
            return self._marked(self._span[0])
        if name == "upto":
            return self._marked(self._span[1])
        return self._marked(self._values.tick() if name in _TICKS else self._values.number(name))

    def _tuple(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if arguments[-1] is not Ellipsis:
            return tuple(self._value(name, each) for each in arguments)
        size = self._chance.choice((0, 1, 1, 1, 2, 3, 5))
        if not self._is_within and self._chance.random() < MANY_SHARE:
            return self._many(name, arguments[0])
        if get_args(arguments[0]) == (int, int):
            return self._ranges(size)
        made = [self._value(name, arguments[0]) for _ in range(size)]
        if get_args(arguments[0]) == (str, CheckpointToken):
            made = list(dict(made).items())
        return tuple(made)

    def _many(self, name: str, item: Any) -> tuple[Any, ...]:
        """As many items as a frame may have, or nearly: a few different ones again and again."""
        size = self._chance.choice(MANY)
        if get_args(item) == (int, int):
            return self._ranges(min(size, MANY[1]))
        self._is_within = True
        try:
            some = [self._value(name, item) for _ in range(8)]
        finally:
            self._is_within = False
        if get_args(item) == (str, CheckpointToken):
            return tuple((f"evil-{at}", some[at % 8][1]) for at in range(size))
        return tuple(some[at % 8] for at in range(size))

    def _ranges(self, size: int) -> tuple[tuple[int, int], ...]:
        """Ranges in order, which are within the range of the frame if it has one."""
        low, high = self._span if self._chance.random() >= self._values.nonsense else self._values.span()
        low = max(low, TICK_FIRST)
        if high - low < 2 * size:
            return ()
        ends = sorted({self._chance.randint(low, high) for _ in range(2 * size)})
        marked = [self._marked(end) for end in ends]
        return tuple(zip(marked[::2], marked[1::2], strict=False))

    def _token(self) -> CheckpointToken:
        size = self._chance.choice((0, 1, 1, 2, 3))
        if not self._is_within and self._chance.random() < MANY_SHARE:
            return CheckpointToken({f"p{at}": self._values.tick() % TICK_LAST for at in range(MANY[-1])})
        names = {self._values.text("pubend") or "p" for _ in range(size)}
        return CheckpointToken({name: self._marked(self._values.tick()) for name in sorted(names)})

    def _batch(self) -> EventBatch:
        builder, chance = BatchBuilder(), self._chance
        size = chance.choice((1, 1, 2, 4))
        for _ in range(size):
            fingerprint, message = self._message()
            topic = self._values.text("topic") if chance.random() < 0.95 else "nowhere"
            self._add(builder, Shape(topic, fingerprint), message)
        batch = builder.build()
        low, high = max(self._span[0], TICK_FIRST - 1), self._span[1]
        if high - low > size and chance.random() >= self._values.nonsense:
            ticks = sorted({chance.randint(low + 1, high) for _ in range(size)})
            ticks += range(high - (size - len(ticks)) + 1, high + 1)
            ticks.sort()
        else:
            ticks = [self._values.tick() for _ in range(size)]
        batch.fill_ticks(np.array([self._marked(tick) for tick in ticks], np.int64))
        return batch

    def batch_of(self, topic: str, number: int) -> EventBatch:
        """A few events of one topic, of the schema DECLARED[number], most of which are as it says."""
        builder, schema = BatchBuilder(), DECLARED[number]
        for _ in range(self._chance.choice((1, 1, 2, 4))):
            message = self._encoded(schema)
            if self._chance.random() < 0.1:
                message = self._rotten(message)
            self._add(builder, Shape(topic, schema.fingerprint), message)
        return builder.build()

    def _add(self, builder: BatchBuilder, shape: Shape, message: bytes) -> None:
        chance = self._chance
        builder.add(
            shape,
            message,
            publisher=self._values.pick(PUBLISHERS),
            key=chance.choice((b"", b"k", b"\xff" * 300)),
            priority=chance.randrange(10),
            validity_ms=chance.choice((0, 0, 0, 1, 0xFFFF_FFFF)),
        )

    def _encoded(self, schema: Schema) -> bytes:
        for rich, values in _RICH:
            if rich is schema:
                return rich.encode(self._values.pick(values))
        chance = self._chance
        value = {"n": chance.randrange(5), "text": chance.choice(("", "abc", "é")), "more": None}
        return schema.encode({name: each for name, each in value.items() if name in schema.text})

    def _message(self) -> tuple[int, bytes]:
        """A fingerprint and a message of it, whose bytes at times are not as the schema says."""
        chance = self._chance
        schema = self._values.pick(_PLAIN) if chance.random() < 0.5 else self._values.pick(_RICH)[0]
        message = self._encoded(schema)
        lot = chance.random()
        if lot < 0.04:
            return schema.fingerprint, chance.randbytes(chance.randrange(60))
        if lot < 0.08:
            return schema.fingerprint, message.replace(b"abc", b"a\xff\xfe")
        if lot < 0.11:
            return chance.getrandbits(64), message
        if lot < 0.25:
            return schema.fingerprint, self._rotten(message)
        return schema.fingerprint, message

    def _rotten(self, message: bytes) -> bytes:
        """A message with a few bytes changed, cut off or added: its positions and counts are lies then."""
        chance, rotten = self._chance, bytearray(message)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(rotten) + 1)
            match chance.randrange(4):
                case 0 if rotten:
                    rotten[at % len(rotten)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
                case 1:
                    rotten[at : at + 4] = pack("<i", chance.choice((-1, 0, 1, 2**31 - 1, len(message))))
                case 2:
                    del rotten[at:]
                case _:
                    rotten[at:at] = chance.randbytes(chance.randrange(1, 9))
        return bytes(rotten)


@cache
def _hints_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
