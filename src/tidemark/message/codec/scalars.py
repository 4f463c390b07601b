"""Atomic values to their stored form in a message, and back.

The stored form is an argument of struct for kinds of fixed width and bytes for the others. Storing checks
type and range and raises EncodeError; loading checks what damaged bytes could get wrong and raises
DecodeError. Neither rounds, truncates or guesses, with one exception: `float` keeps 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from struct import Struct
from typing import Any

from tidemark.errors import DecodeError, EncodeError
from tidemark.message.types import Atomic, Kind

Store = Callable[[Any], Any]
Load = Callable[[Any], Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: microseconds of the first and the last moment that a datetime can be
TIMESTAMP_MIN = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
TIMESTAMP_MAX = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_FLOAT32 = Struct("<f")
#: Wide enough that no operation on 38-digit decimals rounds.
EXACT = Context(prec=120)
_BOOLEANS = (False, True)


def storer(item: Atomic) -> Store:
    """The function that checks a Python value of this type and turns it into its stored form."""
    match item.kind:
        case Kind.INT:
            return _int_storer(32, "int")
        case Kind.LONG:
            return _int_storer(64, "long")
        case Kind.DECIMAL:
            return lambda value: _store_decimal(value, item)
        case _:
            return _STORE[item.kind]


def loader(item: Atomic) -> Load:
    """The function that turns a stored form of this type into its Python value."""
    if item.kind is Kind.DECIMAL:
        return lambda stored: load_decimal(int.from_bytes(stored, "little", signed=True), item.scale)
    return _LOAD[item.kind]


def microseconds(value: datetime) -> int:
    """Microseconds from the epoch to an aware datetime, exactly."""
    return (value - EPOCH) // _MICROSECOND


def unscaled(value: Decimal | int, item: Atomic) -> int:
    """The integer that a decimal type stores for this value; EncodeError if it does not fit exactly."""
    number = Decimal(value)
    if not number.is_finite():
        raise EncodeError(f"{value} is not a number that a decimal can hold")
    if not number:
        return 0
    if number.adjusted() >= item.precision - item.scale:
        raise EncodeError(f"{value} has more than {item.precision - item.scale} digits before the point")
    shifted = number.scaleb(item.scale, EXACT)
    if shifted != shifted.to_integral_value():
        raise EncodeError(f"{value} has more than {item.scale} digits after the point")
    return int(shifted)


def load_decimal(stored: int, scale: int) -> Decimal:
    """The decimal that an unscaled integer stands for."""
    return Decimal(stored).scaleb(-scale, EXACT)


def load_timestamp(stored: int) -> datetime:
    """The datetime of a number of microseconds; DecodeError beyond the years that Python has."""
    try:
        return EPOCH + timedelta(microseconds=stored)
    except OverflowError:
        raise DecodeError(f"{stored} microseconds lie outside the years 1 to 9999") from None


def load_string(stored: bytes) -> str:
    """The text of UTF-8 bytes; DecodeError if they are not UTF-8."""
    try:
        return str(stored, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"not UTF-8 at byte {error.start}") from None


def load_boolean(stored: int) -> bool:
    """False for 0, True for 1; DecodeError for any other byte."""
    try:
        return _BOOLEANS[stored]
    except IndexError:
        raise DecodeError(f"the byte {stored} is neither false nor true") from None


def _int_storer(bits: int, name: str) -> Store:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def store(value: Any) -> int:
        if type(value) is not int:
            value = _index(value, name)
        if not low <= value <= high:
            raise EncodeError(f"{value} does not fit {name} ({bits} bits)")
        return value  # type: ignore[no-any-return]  # narrowed to int above

    return store


def _index(value: Any, name: str) -> int:
    """An integer of another class, numpy's for example, as int; EncodeError for a bool or anything else."""
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        return int(value.__index__())
    raise _wrong(value, name)


def _store_double(value: Any) -> float:
    if isinstance(value, bool) or not (isinstance(value, float | int) or hasattr(value, "__float__")):
        raise _wrong(value, "a number")
    if isinstance(value, str | bytes | Decimal):
        raise _wrong(value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise EncodeError("the integer is too large for a double") from None


def _store_float(value: Any) -> float:
    number = _store_double(value)
    try:
        _FLOAT32.pack(number)
    except OverflowError:
        raise EncodeError(f"{number} does not fit float (32 bits)") from None
    return number


def _store_boolean(value: Any) -> int:
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise _wrong(value, "boolean")
    return int(value)


def _store_string(value: Any) -> bytes:
    if not isinstance(value, str):
        raise _wrong(value, "string")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"a lone surrogate at character {error.start} is not text") from None


def _store_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong(value, "bytes")
    return bytes(value)


def _store_timestamp(value: Any) -> int:
    if not isinstance(value, datetime):
        raise _wrong(value, "timestamp")
    if value.utcoffset() is None:
        raise EncodeError("a datetime without a time zone is no instant: use datetime.now(timezone.utc)")
    return microseconds(value)


def _store_decimal(value: Any, item: Atomic) -> bytes:
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise _wrong(value, "decimal (decimal.Decimal or int)")
    return unscaled(value, item).to_bytes(16, "little", signed=True)


def _wrong(value: Any, name: str) -> EncodeError:
    text = repr(value)
    return EncodeError(
        f"{text if len(text) <= 40 else text[:37] + '...'} ({type(value).__name__}) is not {name}"
    )


_STORE: dict[Kind, Store] = {
    Kind.BOOLEAN: _store_boolean,
    Kind.FLOAT: _store_float,
    Kind.DOUBLE: _store_double,
    Kind.STRING: _store_string,
    Kind.BYTES: _store_bytes,
    Kind.TIMESTAMP: _store_timestamp,
}
_LOAD: dict[Kind, Load] = {
    Kind.BOOLEAN: load_boolean,
    Kind.INT: int,
    Kind.LONG: int,
    Kind.FLOAT: float,
    Kind.DOUBLE: float,
    Kind.STRING: load_string,
    Kind.BYTES: bytes,
    Kind.TIMESTAMP: load_timestamp,
}
