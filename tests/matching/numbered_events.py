"""Batches of the smallest events there are: a topic and one number."""

from __future__ import annotations

import numpy as np

from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.schema import Schema

SCHEMA = Schema.parse("[n: int]")


def batch(*numbers: int, topic: str = "t") -> EventBatch:
    """An event for each number: its field `n`, and its tick."""
    builder = BatchBuilder()
    for number in numbers:
        builder.add(Shape(topic, SCHEMA.fingerprint), SCHEMA.encode({"n": number}))
    built = builder.build()
    built.fill_ticks(np.array(numbers, np.int64))
    return built
