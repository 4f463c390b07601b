"""Acknowledgements and credit of many subscriptions, in frames that keep no broker for long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Ack, Credit
from tidemark.wire.limits import ACK_TICKS


def in_frames(tokens: Sequence[tuple[str, CheckpointToken]], granted: Sequence[Credit]) -> Iterator[Ack]:
    """Yield acknowledgements of `tokens`, and credit, in frames of about ACK_TICKS ticks and credits each."""
    held: list[tuple[str, CheckpointToken]] = []
    ticks = 0
    for name, token in tokens:
        held.append((name, token))
        ticks += 1 + len(token)
        if ticks >= ACK_TICKS:
            yield Ack(tuple(held))
            held, ticks = [], 0
    first = max(0, ACK_TICKS - ticks)
    if held or granted[:first]:
        yield Ack(tuple(held), 0, tuple(granted[:first]))
    for at in range(first, len(granted), ACK_TICKS):
        yield Ack((), 0, tuple(granted[at : at + ACK_TICKS]))
