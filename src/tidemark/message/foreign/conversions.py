"""Python values that messages do not have, and what they are converted to (docs/messages.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np

from tidemark.errors import EncodeError

#: class whose values are text in a message -> how a value is written, how it is read
TEXTS: Mapping[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = MappingProxyType(
    {UUID: (str, UUID), date: (date.isoformat, date.fromisoformat)}
)


def sorted_list(values: Any) -> list[Any]:
    """The items of a set in order, so that equal sets have equal messages; EncodeError if they have none."""
    plain = [item.item() if isinstance(item, np.generic) else item for item in values]
    try:
        return sorted(plain)
    except TypeError:
        raise EncodeError("the items of a set need an order: use a set of numbers or of texts") from None


def of_numpy(value: np.generic) -> Any:
    """The number, text or time of a scalar of numpy."""
    if isinstance(value, np.datetime64):
        return _moment(value)
    return value.item()


def _of_array(value: np.ndarray[Any, Any]) -> Any:
    if value.dtype.kind == "M":
        return [_moment(each) for each in value.ravel()] if value.ndim == 1 else value.tolist()
    return value.tolist()


def _moment(value: np.datetime64) -> datetime | None:
    """The time of a datetime64, which is in UTC, to the microsecond; None for NaT."""
    found = value.astype("M8[us]").item()
    if found is None:
        return None
    if not isinstance(found, datetime):
        raise EncodeError(f"{value} lies outside the years 1 to 9999")
    return found.replace(tzinfo=UTC)


def _text_of_date(value: date) -> Any:
    """The text of a date; a datetime, which is a date too, is a timestamp as it is."""
    return value if isinstance(value, datetime) else value.isoformat()


#: class -> how a value of it becomes a message value. The first class that fits counts.
CONVERSIONS: Mapping[type, Callable[[Any], Any]] = MappingProxyType(
    {
        np.generic: of_numpy,
        np.ndarray: _of_array,
        UUID: str,
        date: _text_of_date,
        set: sorted_list,
        frozenset: sorted_list,
        bytearray: bytes,
        memoryview: bytes,
    }
)
