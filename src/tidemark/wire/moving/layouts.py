"""The layouts of the frames of publishers that move. Leave and Left are for brokers and clients."""

from __future__ import annotations

from tidemark.wire.fields import NAME, TICK, at_end, integer
from tidemark.wire.layouts import record
from tidemark.wire.limits import MOVE_MAX, SEQUENCE_MAX
from tidemark.wire.moving.frames import Come, Leave, Left

#: A publisher may leave before any of its events was logged; the last number has a successor.
_SEQUENCE = integer(0, SEQUENCE_MAX - 1)

LAYOUTS = (
    record(
        Leave,
        4,
        sequence=_SEQUENCE,
        move=integer(1, MOVE_MAX),
        pubend=NAME,
        publisher=NAME,
        to=NAME,
        owner=at_end(NAME, ""),
    ),
    record(
        Left,
        5,
        sequence=_SEQUENCE,
        tick=TICK,
        move=integer(0, MOVE_MAX),
        pubend=NAME,
        publisher=NAME,
        to=NAME,
    ),
    record(Come, 63, sequence=_SEQUENCE, move=integer(1, MOVE_MAX), pubend=NAME, publisher=NAME),
)
