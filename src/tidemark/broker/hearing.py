"""Which stimuli may be heard one after the other before the broker settles.

Settling costs the same after one stimulus as after many. A Publish gives its batch to the log and does
nothing else, so of several that came in one read all are heard first: their batches share one sync. An Ack
with a ticket waits for a commit of the tables, so those that have come from several subscribers are heard
first: they share one commit.
"""

from __future__ import annotations

from tidemark.broker.effects import ClientFrameReceived, Stimulus
from tidemark.wire.frames import Ack, ClientFrame, Publish


def may_settle_later(stimulus: Stimulus) -> bool:
    """Return whether further stimuli of which this says the same may be heard before `Broker.settle`."""
    if type(stimulus) is not ClientFrameReceived:
        return False
    return type(stimulus.frame) is Publish or is_commit(stimulus.frame)


def is_published(stimulus: Stimulus) -> bool:
    """Return whether a client publishes: the log gets that, and nothing else is to be settled for it."""
    return type(stimulus) is ClientFrameReceived and type(stimulus.frame) is Publish


def is_commit(frame: ClientFrame) -> bool:
    """Return whether a subscriber waits until what it acknowledges with this frame is on disk."""
    return type(frame) is Ack and frame.ticket > 0
