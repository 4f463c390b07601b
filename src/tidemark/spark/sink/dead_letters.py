"""Rows that do not fit their topic: as events of a topic of their own, or as lines of JSON in a folder.

A dead letter has the topic that the row was meant for, the reason why it did not fit, and the row as JSON.
Dead letters are staged and recorded with the batch that they are from, and so told of once, as its events
are published once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidemark.message.batches.batch import EventBatch
from tidemark.message.foreign.arrow.batches import from_record_batch
from tidemark.message.schema import Schema
from tidemark.spark.stores.folder import Folder

if TYPE_CHECKING:
    import pyarrow as pa

#: The schema of dead letters.
LETTER = Schema.parse("[topic: string, reason: string, row: string]")
#: Characters of a row and of a reason; what is longer is cut.
ROW_CHARACTERS_MAX = 256 << 10
REASON_CHARACTERS_MAX = 4 << 10


def is_directory(dead_letter: str) -> bool:
    """Is this the folder of dead letters, rather than their topic?"""
    return "/" in dead_letter


def letter(row: pa.RecordBatch, topic: str, reason: str, dead_topic: str, publisher: str) -> EventBatch:
    """The dead letter of one row."""
    import pyarrow as pa

    (values,) = row.to_pylist()
    text = json.dumps(values, default=str, ensure_ascii=False)
    said = {"topic": topic, "reason": reason[:REASON_CHARACTERS_MAX], "row": text[:ROW_CHARACTERS_MAX]}
    records = pa.RecordBatch.from_pylist([said])
    return EventBatch.parse(from_record_batch(records, LETTER, dead_topic, publisher=publisher).data)


def write_letters(folder: Folder, name: str, batches: Iterable[EventBatch]) -> None:
    """Write dead letters into the file of this name, which is replaced if it exists, and sync it."""
    lines = [
        json.dumps(LETTER.decode(batch.message(row)), ensure_ascii=False)
        for batch in batches
        for row in range(batch.count)
    ]
    folder.replace(f"{name}.jsonl", "".join(f"{line}\n" for line in lines).encode())
