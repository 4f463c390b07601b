"""Which stimuli may be heard one after the other before the broker settles.

Settling costs the same after one stimulus as after many. A Publish gives its batch to the log and does
nothing else, so of several that came in one read all are heard first: their batches share one sync.
"""

from __future__ import annotations

from tidemark.broker.effects import ClientFrameReceived, Stimulus
from tidemark.wire.frames import Publish


def may_settle_later(stimulus: Stimulus) -> bool:
    """Return whether further stimuli of which this says the same may be heard before `Broker.settle`."""
    return is_published(stimulus)


def is_published(stimulus: Stimulus) -> bool:
    """Return whether a client publishes: the log gets that, and nothing else is to be settled for it."""
    return type(stimulus) is ClientFrameReceived and type(stimulus.frame) is Publish
