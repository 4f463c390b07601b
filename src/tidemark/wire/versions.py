"""Which version of the protocol two sides speak: the newest that both can.

Hello and Connect say what the sender can speak, so their layout is the same in every version, for ever.
"""

from __future__ import annotations

from tidemark.errors import VersionError
from tidemark.wire.limits import PROTOCOL_NEWEST, PROTOCOL_OLDEST


def agree(oldest: int, newest: int) -> int:
    """The version to speak with a side that can speak `oldest` to `newest`; VersionError if there is none."""
    if oldest > newest:
        raise VersionError(f"the other side says that it speaks protocol versions {oldest} to {newest}")
    version = min(newest, PROTOCOL_NEWEST)
    if version < max(oldest, PROTOCOL_OLDEST):
        older = "the other side" if newest < PROTOCOL_OLDEST else "this side"
        raise VersionError(
            f"the other side speaks protocol versions {oldest} to {newest} and this side {PROTOCOL_OLDEST} "
            f"to {PROTOCOL_NEWEST}: update {older}"
        )
    return version
