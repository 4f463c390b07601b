"""Trace contexts: how an event carries the W3C traceparent of whoever published it (docs/monitoring.md).

A sampled event names its publisher and its traceparent in one name of the batch's dictionary of publishers,
with a space between them. So a trace context needs no place in rows that have none, goes wherever the row
goes, and does not concern the schema. What shows a publisher's name to anybody shows it without that.
"""

from __future__ import annotations

import re

import numpy as np

from tidemark.errors import EncodeError
from tidemark.message.batches.batch import EventBatch

#: Version 00: trace id, parent id, flags.
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
TRACEPARENT_CHARS = 55


def check_traceparent(text: str) -> str:
    """Return `text` if it is a traceparent; EncodeError if it is not."""
    if not isinstance(text, str) or _TRACEPARENT.fullmatch(text) is None:
        raise EncodeError(
            f"{text!r} is no traceparent: it has the form 00-TRACE-PARENT-FLAGS with 32, 16 and 2 "
            "hexadecimal digits (https://www.w3.org/TR/trace-context/)"
        )
    return text


def sampled_traceparent(text: str) -> str | None:
    """Return `text` if it is the traceparent of a sampled trace; None for anything else."""
    is_sampled = _TRACEPARENT.fullmatch(text) is not None and int(text[-2:], 16) & 1
    return text if is_sampled else None


def with_traceparent(publisher: str, traceparent: str) -> str:
    """Return the name under which a batch's dictionary has this publisher of a traced event."""
    return f"{publisher} {traceparent}"


def traceparent_of(name: str) -> str | None:
    """Return the traceparent in a name of a batch's dictionary of publishers; None if it has none."""
    if len(name) <= TRACEPARENT_CHARS or name[-TRACEPARENT_CHARS - 1] != " ":
        return None
    found = name[-TRACEPARENT_CHARS:]
    return found if _TRACEPARENT.fullmatch(found) is not None else None


def publisher_of(name: str) -> str:
    """Return the publisher's own name, without a traceparent."""
    return name if traceparent_of(name) is None else name[: -TRACEPARENT_CHARS - 1]


def traced_rows(batch: EventBatch, rows_max: int) -> list[tuple[int, str]]:
    """Return the first rows that carry a traceparent, at most `rows_max`, each with its traceparent."""
    traced = {at: found for at, name in enumerate(batch.publishers) if (found := traceparent_of(name))}
    if not traced:
        return []
    publishers = batch.prelude("publisher")
    rows = np.flatnonzero(np.isin(publishers, list(traced)))[:rows_max]
    return [(row, traced[int(publishers[row])]) for row in rows.tolist()]
