"""Refusals: the error that a client raises for a request that a broker refused."""

from __future__ import annotations

from tidemark.errors import RefusedError
from tidemark.message.visible import visible, visible_lines
from tidemark.wire.frames import Refused


def error_of(frame: Refused) -> RefusedError:
    """Return the error that says what the frame says; a program may print it where it likes."""
    return RefusedError(
        visible_lines(frame.reason), what=frame.what, name=visible(frame.name), code=frame.code
    )
