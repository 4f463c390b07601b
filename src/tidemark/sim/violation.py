"""ViolationError: a promise of the protocol was not kept."""

from __future__ import annotations


class ViolationError(AssertionError):
    """An invariant of the protocol does not hold."""
