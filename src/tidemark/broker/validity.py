"""Validity: how long an event is worth telling (MOPS). At every broker, one past it is silence."""

from __future__ import annotations

import numpy as np

from tidemark.message.batches.batch import PRELUDE, EventBatch

MILLISECOND = 1_000


def unexpired(batch: EventBatch, wall: int) -> EventBatch | None:
    """An event past its validity is silence for whoever has not got it yet."""
    if batch.count == 1:
        validity_ms: int = PRELUDE.unpack_from(batch.body.data)[-1]
        is_alive = not validity_ms or int(batch.ticks[0]) + validity_ms * MILLISECOND > wall
        return batch if is_alive else None
    validity = batch.prelude("validity_ms")
    if not validity.any():
        return batch
    alive = (validity == 0) | (batch.ticks + validity.astype(np.int64) * MILLISECOND > wall)
    if alive.all():
        return batch
    return batch.take(alive) if alive.any() else None
