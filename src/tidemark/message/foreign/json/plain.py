"""Message values as JSON that people and other programs read, and that the topic's schema reads back."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from typing import Any


def to_json_value(value: Any) -> Any:
    """Return a message value in the JSON that `tidemark pub` and the HTTP door read back.

    Times are ISO 8601, bytes base64 and decimals digits. A double that is not finite is its name.
    """
    match value:
        case float() if not isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat()
        case list():
            return [to_json_value(part) for part in value]
        case dict():
            return {name: to_json_value(part) for name, part in value.items()}
    return value
