"""Settling: how much may be heard from several sockets before the broker settles it."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.broker.effects import Effect, SaveReleased

#: From a client that has published so many bytes in one read more has often come meanwhile: it is read before
#: the broker settles, unless so many bytes have come already. What is less is settled, and synced, at once.
SETTLED_LATER_BYTES = 8 << 10
SETTLED_LATER_BYTES_MAX = 512 << 10
#: So many rows of acknowledgements gather from all sockets that can be read before the broker settles.
SETTLED_LATER_ROWS_MAX = 64


def are_few_rows(to_disk: Sequence[Effect]) -> bool:
    """Return whether the disk has nothing to do but to save a few acknowledgements, which may gather."""
    return len(to_disk) < SETTLED_LATER_ROWS_MAX and all(type(each) is SaveReleased for each in to_disk)
