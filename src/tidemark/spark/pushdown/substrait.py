"""What an Arrow expression says, read from its Substrait form.

Substrait is the only form in which pyarrow shows the inside of an expression by a documented interface. This
module reads the few protobuf messages that a condition on columns is made of, and raises TranslationError for
anything else. Field numbers are those of Substrait's algebra.proto and extended_expression.proto.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from struct import unpack
from typing import Any

from tidemark.errors import TranslationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ColumnPosition:
    """A column by its position, followed by positions inside structs."""

    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """A constant; None is NULL."""

    value: Any


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The call of a function, by the name that Substrait has for it."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class IsOneOf:
    """Is the operand one of the options?"""

    operand: Expression
    options: tuple[Expression, ...]


Expression = ColumnPosition | ConstantValue | FunctionCall | IsOneOf

#: field number -> its values, since a field may be repeated. Numbers are ints, everything else is bytes.
_Message = dict[int, list[Any]]


def read_expression(data: bytes) -> Expression:
    """The one expression of a serialized ExtendedExpression. Raises TranslationError."""
    message = _message(data)
    functions = dict(_function(declaration) for declaration in message.get(2, ()))
    (referred,) = message[3]
    return _ExpressionReader(functions).part(_message(referred)[1][0])


class _ExpressionReader:
    def __init__(self, functions: dict[int, str]) -> None:
        self._functions = functions

    def part(self, data: bytes) -> Expression:
        ((number, (body, *_)),) = _message(data).items()
        match number:
            case 1:
                return ConstantValue(_literal(body))
            case 2:
                return ColumnPosition(_positions(_only(_message(body), 1, beside=(4,))))
            case 3:
                return self._call(_message(body))
            case 8:
                message = _message(body)
                options = tuple(self.part(option) for option in message.get(2, ()))
                return IsOneOf(self.part(message[1][0]), options)
        raise TranslationError("the expression holds more than columns, constants and functions")

    def _call(self, message: _Message) -> FunctionCall:
        name = self._functions[_number(message, 1)]
        for option in map(_message, message.get(5, ())):
            if option != {1: [b"case_sensitivity"], 2: [b"CASE_SENSITIVE"]}:
                raise TranslationError(f"{name} has an option that selectors have not")
        arguments = [_only(_message(argument), 3) for argument in message.get(4, ())]
        return FunctionCall(name, tuple(self.part(argument) for argument in arguments))


def _function(declaration: bytes) -> tuple[int, str]:
    """The number of a function and its name, without the types that may follow the name."""
    message = _message(_only(_message(declaration), 3))
    return _number(message, 2), message[3][0].decode().partition(":")[0]


def _positions(reference: bytes) -> tuple[int, ...]:
    segment = _message(_only(_message(reference), 2))
    inner = _positions(segment[2][0]) if 2 in segment else ()
    return (_number(segment, 1), *inner)


def _literal(data: bytes) -> Any:
    for number, (body, *_) in _message(data).items():
        if number in _LITERALS:
            return _LITERALS[number](body)
    raise TranslationError("the expression holds a constant of a type that selectors have not")


def _signed(value: int) -> int:
    """64 bits of protobuf as a signed number."""
    return value - (1 << 64) if value >> 63 else value


def _decimal(body: bytes) -> Decimal:
    message = _message(body)
    unscaled = int.from_bytes(message[1][0], "little", signed=True)
    return Decimal(f"{unscaled}E-{_number(message, 3)}")


def _instant(value: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=_signed(value))
    except OverflowError:
        raise TranslationError("the expression holds a time out of the years 1 to 9999") from None


_LITERALS: dict[int, Callable[[Any], Any]] = {
    1: bool,
    **dict.fromkeys((2, 3, 5, 7), _signed),  # i8, i16, i32, i64
    10: lambda body: unpack("<f", body)[0],  # fp32
    11: lambda body: unpack("<d", body)[0],  # fp64
    12: bytes.decode,  # string
    13: bytes,  # binary
    24: _decimal,
    27: _instant,  # timestamp_tz; 14, without a zone, is no instant
    29: lambda _: None,  # null
}


def _only(message: _Message, number: int, beside: tuple[int, ...] = ()) -> bytes:
    """The field `number` of a message. Raises TranslationError if there are others but those in `beside`."""
    if number not in message or not message.keys() <= {number, *beside}:
        raise TranslationError("the expression holds more than columns, constants and functions")
    body: bytes = message[number][0]
    return body


def _number(message: _Message, number: int) -> int:
    """The number in a field; protobuf leaves out 0."""
    value: int = message.get(number, [0])[0]
    return value


def _message(data: bytes) -> _Message:
    found: _Message = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value: int | bytes
        match key & 7:
            case 0:
                value, at = _varint(data, at)
            case 1 | 2 | 5 as kind:
                size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
                value, at = data[at : at + size], at + size
            case _:
                raise TranslationError("the expression is not in protobuf's wire format")
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in 7-bit groups, and the offset behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
