"""Messages: what a queue carries - bytes, a text or a dict - as the fields of an event, and back.

The fields of a dict are the fields of the event, so that selectors, Spark and every other client see them.
Bytes and texts go into one field, by whose name the reader knows what they were.
"""

from __future__ import annotations

from typing import Any

from tidemark.errors import EncodeError

#: What can be put into a queue.
Message = bytes | str | dict[str, Any]

BYTES_FIELD = "_bytes"
TEXT_FIELD = "_text"


def to_fields(message: Message) -> dict[str, Any]:
    """The fields of the event that carries `message`; EncodeError if it cannot be put into a queue."""
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
    """The message that an event with these fields carries."""
    if len(fields) == 1:
        name, value = next(iter(fields.items()))
        if (name == BYTES_FIELD and isinstance(value, bytes)) or (
            name == TEXT_FIELD and isinstance(value, str)
        ):
            message: Message = value
            return message
    return fields
