"""When the events of a batch expire (MOPS): an event's validity counts from its tick, and 0 is for ever."""

from __future__ import annotations

import numpy as np

from tidemark.message.batches.batch import PRELUDE, EventBatch

MILLISECOND = 1_000


def may_expire(batch: EventBatch) -> bool:
    """Return whether any event of the batch has a validity."""
    if batch.count == 1:
        return bool(PRELUDE.unpack_from(batch.body.data)[-1])
    if batch.common is not None:
        return bool(batch.common.validity_ms)
    return bool(batch.prelude("validity_ms").any())


def expires_at(batch: EventBatch) -> int | None:
    """Return the time of day at which every event of the batch has expired; None if one never does."""
    validity = batch.prelude("validity_ms")
    if not validity.all():
        return None
    return int((batch.ticks + validity.astype(np.int64) * MILLISECOND).max())
