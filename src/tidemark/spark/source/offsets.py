"""Where reading starts and how far it can go now, as checkpoint tokens.

Spark's streaming offset is a checkpoint token: everything of each pubend up to its tick has been read. A
pubend that a token does not name is new, and is read from its beginning. A token never goes back, and it
advances only when there are events: silence alone makes no batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tidemark.errors import ConfigError
from tidemark.spark.options import ReadPoint
from tidemark.spark.source.losses import lost, released_upto
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.ticks.tick import Range
from tidemark.wire.answers import PubendStatus

Token = CheckpointToken
#: (pubend, base, upto) -> the ranges of `(base, upto]` that an archive lacks, in order
Gaps = Callable[[str, int, int], list[Range]]


class PubendExtent(NamedTuple):
    """How far a pubend goes, as its broker answers."""

    #: everything at or below is known to the broker
    position: int
    #: the last event that is on disk; TICK_MIN if there is none
    end: int
    #: everything at or below is gone from the broker
    lost: int
    bytes: int


def pubend_extents(pubends: Iterable[PubendStatus]) -> dict[str, PubendExtent]:
    """pubend -> its extent, from a broker's answer to the question `pubends`."""
    found = {}
    for each in pubends:
        lost = TICK_MIN if each.lost is None else each.lost
        last = TICK_MIN if each.last_event is None else each.last_event
        # An event that has a tick but is not on disk yet lies above the position.
        end = min(last, each.position)
        found[each.pubend] = PubendExtent(each.position, end, lost, each.bytes)
    return found


def initial(start: ReadPoint, there: Mapping[str, PubendExtent], archive_gaps: Gaps) -> Token:
    """The token to start from.

    `earliest` starts with what still exists: the beginning of the archive, else the first event that the
    broker has. A token or a time starts just there, and what is gone since is a gap. Raises ConfigError if
    the token names a pubend that the broker does not host.
    """
    if start.at == "latest":
        return Token({name: extent.position for name, extent in there.items()})
    if start.at == "earliest":
        return Token({name: _beginning(archive_gaps(name, TICK_MIN, p.lost)) for name, p in there.items()})
    if start.tick is not None:
        return Token(dict.fromkeys(there, start.tick))
    assert start.after is not None
    strange = start.after.keys() - there.keys()
    if strange:
        raise ConfigError(
            f"the token names the pubend {min(strange)!r}, which this broker does not host; it hosts "
            f"{', '.join(sorted(there)) or 'none'}",
            key="start",
        )
    return start.after


def latest(start: Token, there: Mapping[str, PubendExtent], ceiling: Token | None = None) -> Token:
    """The token of all that can be read now, but not beyond `ceiling`; `start` if there is nothing new."""
    ends = {name: extent.end for name, extent in there.items() if extent.end > TICK_MIN}
    if ceiling is not None:
        ends = {name: min(end, ceiling[name]) for name, end in ends.items() if name in ceiling}
    return start.merge(Token(ends))


def ceiling(end: ReadPoint, there: Mapping[str, PubendExtent]) -> Token | None:
    """The token beyond which a read with this end reads nothing; None if it reads all there is.

    A pubend that the token of the end does not name is not read.
    """
    if end.tick is not None:
        return Token(dict.fromkeys(there, end.tick))
    return end.after


def check_gaps(
    start: Token, end: Token, there: Mapping[str, PubendExtent], archive_gaps: Gaps, first_base: int
) -> None:
    """Raise EventsLostError, with the whole range, if the broker has released what the archive lacks."""
    for name, upto in end.items():
        if name not in there:
            continue
        # Silence is released too, but is not missed: ranges end at events.
        base, gone = start.get(name, first_base), min(there[name].lost, upto)
        missing = archive_gaps(name, base, gone) if base < gone else []
        if missing:
            raise lost(name, *missing[0], released_upto(there[name].lost))


def _beginning(gaps: list[Range]) -> int:
    """The tick after which history begins, if `gaps` is what the archive lacks of the released history."""
    return gaps[0][1] if gaps and gaps[0][0] == TICK_MIN else TICK_MIN
