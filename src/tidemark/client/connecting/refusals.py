"""Refusals: the error that a client raises for a request that a broker refused."""

from __future__ import annotations

from tidemark.errors import RefusedError
from tidemark.wire.frames import Refused


def error_of(frame: Refused) -> RefusedError:
    """Return the error that says what the frame says."""
    return RefusedError(frame.reason, what=frame.what, name=frame.name, code=frame.code)
