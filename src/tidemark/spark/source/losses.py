"""Why a reader does not get events, and the error that says so."""

from __future__ import annotations

from tidemark.errors import EventsLostError

DAMAGED = "the log of the broker is damaged there"
UNDECODABLE = "events cannot be decoded"
#: of a read of an archive as it was, in which brokers have no part
ABSENT = "the archive does not have them"
#: reasons for which another archive is of no use
_ANYWHERE = (UNDECODABLE, ABSENT)


def released_upto(tick: int) -> str:
    """The reason if the broker has said that it has released what it had up to a tick."""
    return f"the broker has let go what it had up to {tick}"


def lost(pubend: str, base: int, upto: int, why: str) -> EventsLostError:
    """The error of a reader for which gaps are failures."""
    archive = "" if why in _ANYWHERE else "Name an archive that has them with the option archive, or "
    advice = f"{archive}set failOnGap to false and get a row for each gap"
    return EventsLostError(f"{why}. {advice[0].upper()}{advice[1:]}", pubend=pubend, base=base, upto=upto)
