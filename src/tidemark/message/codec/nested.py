"""Messages inside messages: what an encoder and a decoder ask of the schema that they work for."""

from __future__ import annotations

from typing import Any, Protocol


class NestedMessages(Protocol):
    """How a schema encodes and decodes the messages that lie inside its own; `Schema` is the one there is.

    `depth` is the number of messages around the nested one; beyond NESTING_MAX all four raise.
    """

    def encode_dynamic(self, value: Any, depth: int) -> bytes:
        """The bytes of a dynamic value: its schema's text and its message. EncodeError if it does not fit."""

    def encode_named(self, name: str, value: Any, depth: int) -> bytes:
        """The message of a value of the named schema. EncodeError if it does not fit."""

    def decode_dynamic(self, data: bytes, depth: int) -> Any:
        """The dynamic value in `data`, by the schema that it carries; DecodeError if there is none."""

    def decode_named(self, name: str, data: bytes, depth: int) -> Any:
        """The value of a message of the named schema. DecodeError if the bytes are not one."""
