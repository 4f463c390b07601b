"""The version of the protocol that two sides speak: the newest that both can.

Hello and Connect carry the versions that the sender can speak, so their own layout never changes.
"""

from __future__ import annotations

from tidemark.errors import VersionError
from tidemark.wire.frames import Claim, Frame, Heard, Together, Topic, Ways, Yielded
from tidemark.wire.limits import LINK_NEWEST, LINK_OLDEST, PROTOCOL_NEWEST, PROTOCOL_OLDEST
from tidemark.wire.moving.frames import Leave, Left


def agree(oldest: int, newest: int) -> int:
    """The version to speak with a client that can speak `oldest` to `newest`; VersionError if none fits."""
    return _common(oldest, newest, PROTOCOL_OLDEST, PROTOCOL_NEWEST)


def agree_link(oldest: int, newest: int, mine: int = LINK_NEWEST) -> int:
    """The version to speak with a broker that can speak `oldest` to `newest`; VersionError if none fits.

    `mine` is the newest that this side speaks.
    """
    return _common(oldest, newest, LINK_OLDEST, mine)


def is_spoken(frame: Frame, version: int) -> bool:
    """Whether a broker that speaks this version of the protocol between brokers understands `frame`."""
    match frame:
        case Together() | Yielded():
            return version >= 4
        case Claim(owner=owner) if owner:
            return version >= 7
        case Claim(to=more) | Heard(lost=more):
            return version >= 4 or not more
        case Topic(generation=more):
            return version >= 5 or not more
        case Leave(owner=owner) if owner:
            return version >= 8
        case Leave() | Left():
            return version >= 6
        case Ways():
            return version >= 3
        case _:
            return True


def _common(oldest: int, newest: int, my_oldest: int, my_newest: int) -> int:
    if oldest > newest:
        raise VersionError(f"the other side says that it speaks protocol versions {oldest} to {newest}")
    version = min(newest, my_newest)
    if version < max(oldest, my_oldest):
        older = "the other side" if newest < my_oldest else "this side"
        raise VersionError(
            f"the other side speaks protocol versions {oldest} to {newest} and this side {my_oldest} "
            f"to {my_newest}: update {older}"
        )
    return version
