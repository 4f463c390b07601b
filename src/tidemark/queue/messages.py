"""Messages: what a queue carries - bytes, a text or a dict - as the fields of an event, and back.

A dict is the event, so that selectors, Spark and every other client see its fields. Bytes and texts go into a
field of their own, by whose name they are known again.
"""

from __future__ import annotations

from typing import Any

from tidemark.errors import EncodeError

Message = bytes | str | dict[str, Any]

BYTES_FIELD = "_bytes"
TEXT_FIELD = "_text"


def to_fields(message: Message) -> dict[str, Any]:
    """The fields of the event that carries a message; EncodeError for what is none."""
    match message:
        case bytes():
            return {BYTES_FIELD: message}
        case str():
            return {TEXT_FIELD: message}
        case dict():
            if len(message) == 1 and (BYTES_FIELD in message or TEXT_FIELD in message):
                raise EncodeError(f"a dict of {next(iter(message))!r} alone would come back as its value")
            return message
    raise EncodeError(f"a message is bytes, a str or a dict, not {type(message).__name__}")


def from_fields(fields: dict[str, Any]) -> Message:
    """The message that an event carries."""
    if len(fields) == 1:
        name, value = next(iter(fields.items()))
        if (name == BYTES_FIELD and isinstance(value, bytes)) or (
            name == TEXT_FIELD and isinstance(value, str)
        ):
            message: Message = value
            return message
    return fields
