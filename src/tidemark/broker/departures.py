"""Departures: what is said to one neighbour in one turn travels together, in one frame.

A frame may have patience: it waits until something else leaves for the same neighbour, or until its patience
ends. All silence has, and silence that goes on where other silence ends joins it, as an event does that comes
after silence. What waited leaves before what is said later. Answers to questions travel by themselves, since
they give way to everything else on a slow link (`outgoing`), and so do frames that are large already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidemark.broker.effects import Effect, SendPeer
from tidemark.broker.outgoing import is_history
from tidemark.wire.frames import (
    Fetch,
    Interest,
    Knowledge,
    Links,
    Nack,
    PeerFrame,
    Release,
    Together,
    Ways,
)
from tidemark.wire.limits import NAME_BYTES_MAX, TOGETHER_MAX
from tidemark.wire.peer_layouts import MERGED

#: Frames of about so many bytes or more travel by themselves, and others together up to so many bytes.
LARGE_BYTES = 64 << 10
TOGETHER_BYTES = 256 << 10
#: Bytes that a frame, and each of its rows, takes at the most besides what is counted.
FRAME_BYTES = 4 * NAME_BYTES_MAX
ROW_BYTES = NAME_BYTES_MAX + 32


class Departures:
    """The frames that one broker is about to send to its neighbours."""

    def __init__(self, silence_patience: int) -> None:
        """`silence_patience`: microseconds for which first-time silence may wait."""
        self._silence_patience = silence_patience
        #: neighbour -> what is said to it in this turn
        self._now: dict[str, list[PeerFrame]] = {}
        #: neighbour -> what waits for company, each with the monotonic time until which it does
        self._patient: dict[str, list[tuple[int, PeerFrame]]] = {}

    def take(self, effects: list[Effect], now: int) -> list[Effect]:
        """Keep the frames to neighbours among these effects, and return the others."""
        for effect in effects:
            if type(effect) is SendPeer:
                break
        else:
            return effects
        others: list[Effect] = []
        for effect in effects:
            if not isinstance(effect, SendPeer):
                others.append(effect)
                continue
            frame, patience = effect.frame, effect.patience
            if isinstance(frame, Knowledge) and frame.first:
                until, frame = self._joined(effect.peer, frame, now + self._silence_patience)
                patience = until - now if _is_silence(frame) else 0
            if patience > 0:
                self._patient.setdefault(effect.peer, []).append((now + patience, frame))
            else:
                self._now.setdefault(effect.peer, []).append(frame)
        return others

    def _joined(self, peer: str, frame: Knowledge, until: int) -> tuple[int, Knowledge]:
        """Return first-time knowledge together with the silence before it that waits, and until when."""
        waiting = self._patient.get(peer, [])
        place = frame.pubend, frame.version, frame.base
        if frame.base == frame.upto or frame.damaged:
            return until, frame
        for at, (since, each) in enumerate(waiting):
            if isinstance(each, Knowledge) and (each.pubend, each.version, each.upto) == place:
                del waiting[at]
                return since, replace(frame, base=each.base, lost=max(each.lost, frame.lost))
        return until, frame

    def leave(self, now: int) -> list[Effect]:
        """Return what leaves at the end of a turn: for each neighbour as few frames as may be."""
        if not (self._now or self._patient):
            return []
        for peer, waiting in list(self._patient.items()):
            if peer in self._now or min((until for until, _ in waiting), default=now) <= now:
                self._now[peer] = [frame for _, frame in waiting] + self._now.get(peer, [])
                del self._patient[peer]
        leaving, self._now = self._now, {}
        return [SendPeer(peer, frame) for peer, frames in leaving.items() for frame in _together(frames)]

    def link_down(self, peer: str) -> None:
        """What waits for a neighbour is lost, as everything is that was said to it."""
        self._patient.pop(peer, None)

    def next_wake(self) -> int | None:
        """Return the monotonic time when somebody's patience ends; None if nobody waits."""
        if not self._patient:
            return None
        return min((until for waiting in self._patient.values() for until, _ in waiting), default=None)


def _together(frames: list[PeerFrame]) -> Iterator[PeerFrame]:
    """Yield the same frames, live ones in their order, in as few frames as may be."""
    gathered: list[PeerFrame] = []
    size = 0
    for frame in frames:
        if is_history(frame):
            yield frame
            continue
        count = _bytes(frame)
        is_single = type(frame) not in MERGED or count >= LARGE_BYTES
        if gathered and (is_single or size + count > TOGETHER_BYTES or len(gathered) >= TOGETHER_MAX):
            yield _one(gathered)
            gathered, size = [], 0
        if is_single:
            yield frame
        else:
            gathered.append(frame)
            size += count
    if gathered:
        yield _one(gathered)


def _is_silence(frame: Knowledge) -> bool:
    """Whether first-time knowledge tells of no event, of no damage, and of some ticks."""
    return frame.batch is None and frame.base < frame.upto and not frame.damaged


def _one(frames: list[PeerFrame]) -> PeerFrame:
    return frames[0] if len(frames) == 1 else Together(tuple(frames))


def _bytes(frame: PeerFrame) -> int:
    """Return about how many bytes a frame takes, rather too many than too few."""
    match frame:
        case Knowledge(batch=batch):
            return FRAME_BYTES + (len(batch.data) if batch is not None else 0)
        case Interest(wanted=wanted):
            return FRAME_BYTES + sum(ROW_BYTES + 4 * len(each.selector) for each in wanted or ())
        case Release(rows=rows):
            return FRAME_BYTES + ROW_BYTES * len(rows)
        case Nack(ranges=ranges):
            return FRAME_BYTES + ROW_BYTES * len(ranges)
        case Links(up=up):
            return FRAME_BYTES + ROW_BYTES * len(up)
        case Ways(unreachable=unreachable, grades=grades):
            return FRAME_BYTES + ROW_BYTES * (len(unreachable) + len(grades))
        case Fetch(selector=selector):
            return FRAME_BYTES + 4 * len(selector)
        case _:
            return FRAME_BYTES
