"""Any message value as JSON text, and back to the same value.

Values that JSON has are written plainly. A value that JSON lacks is an object with one key that starts with
`$`: {"$bytes": base64}, {"$decimal": digits}, {"$timestamp": ISO 8601 in UTC}, {"$double": "NaN"}. A dict
that looks like one of these is wrapped in {"$object": ...}.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

from tidemark.errors import DecodeError, EncodeError
from tidemark.message.types import NESTING_MAX


def to_json_text(value: Any) -> str:
    """The value as one line of JSON; EncodeError if it is no message value."""
    return json.dumps(_plain(value, 0), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def from_json_text(text: str) -> Any:
    """The value that `to_json_text` was given; DecodeError for a text that it does not write."""
    try:
        return _restored(json.loads(text), 0)
    except (ValueError, RecursionError, InvalidOperation, TypeError) as error:
        raise DecodeError(f"not the JSON of a value: {error}") from None


def _plain(value: Any, depth: int) -> Any:
    if depth > NESTING_MAX:
        raise EncodeError(f"nested deeper than {NESTING_MAX} levels")
    match value:
        case float() if not isfinite(value):
            return {"$double": str(value)}
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return {"$bytes": b64encode(value).decode()}
        case Decimal():
            return {"$decimal": str(value)}
        case datetime():
            return {"$timestamp": value.astimezone(UTC).isoformat()}
        case list():
            return [_plain(item, depth + 1) for item in value]
        case dict():
            plain = {key: _plain(item, depth + 1) for key, item in value.items()}
            return {"$object": plain} if _is_tagged(plain) else plain
    raise EncodeError(f"a {type(value).__name__} is no message value")


def _restored(value: Any, depth: int) -> Any:
    if depth > NESTING_MAX:
        raise DecodeError(f"nested deeper than {NESTING_MAX} levels")
    match value:
        case list():
            return [_restored(item, depth + 1) for item in value]
        case dict() if not _is_tagged(value):
            return {key: _restored(item, depth + 1) for key, item in value.items()}
        case {"$object": dict(inner)}:
            return {key: _restored(item, depth + 1) for key, item in inner.items()}
        case dict():
            ((tag, text),) = value.items()
            restore = _RESTORE.get(tag)
            if restore is None:
                raise DecodeError(f"{tag!r} is no kind of value")
            return restore(text)
    return value


def _is_tagged(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith("$")


def _timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


_RESTORE: dict[str, Callable[[str], Any]] = {
    "$bytes": lambda text: b64decode(text, validate=True),
    "$decimal": Decimal,
    "$timestamp": _timestamp,
    "$double": float,
}
