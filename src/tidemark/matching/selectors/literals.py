"""Literals: from the characters of a selector to values.

The functions raise ValueError when the characters are no such literal, and OverflowError when the value is
out of the type's range.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from math import isinf

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

#: Digits of a literal's exponent. With more, a few characters could ask for gigabytes of decimal digits.
EXPONENT_DIGITS_MAX = 3

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))?)?",
    re.ASCII,
)
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")


def number(text: str) -> int | float:
    """The value of a numeric literal: an int (long), or a float (double) if it has a point or an exponent."""
    if text.lstrip("-").isdigit():
        return _long(text)
    mantissa, _, exponent = text.lower().partition("e")
    if len(exponent.lstrip("+-")) > EXPONENT_DIGITS_MAX:
        raise OverflowError(f"an exponent has at most {EXPONENT_DIGITS_MAX} digits")
    value = float(text)
    if isinf(value):
        raise OverflowError("the number is too large for a double")
    if value == 0 and mantissa.strip("-.0"):
        raise OverflowError("the number is too small for a double")
    return value


def _long(text: str) -> int:
    value = int(text)
    if not LONG_MIN <= value <= LONG_MAX:
        raise OverflowError(
            f"the number does not fit 64 bits; `{text}.`, with a point, is an approximate number"
        )
    return value


def timestamp(text: str) -> datetime:
    """The instant, in UTC, of YYYY-MM-DD, or of YYYY-MM-DD HH:MM:SS[.ffffff] with a zone (Z or ±HH:MM).

    Without a zone it is UTC.
    """
    found = _TIMESTAMP.fullmatch(text)
    if not found:
        raise ValueError("a timestamp is written 'YYYY-MM-DD HH:MM:SS[.ffffff][Z|+HH:MM|-HH:MM]'")
    year, month, day, hour, minute, second, fraction, sign, zone_hours, zone_minutes = found.groups("")
    clock = (int(hour or 0), int(minute or 0), int(second or 0), int(fraction.ljust(6, "0")))
    offset = timedelta(hours=int(zone_hours or 0), minutes=int(zone_minutes or 0))
    zone = timezone(-offset if sign == "-" else offset)
    return datetime(int(year), int(month), int(day), *clock, tzinfo=zone).astimezone(UTC)


def hexadecimal(text: str) -> bytes:
    """The bytes of X'...'."""
    if not _HEX.fullmatch(text):
        raise ValueError("X'...' takes an even number of hexadecimal digits")
    return bytes.fromhex(text)
