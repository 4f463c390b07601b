"""Event options: what goes with an event besides its fields, checked."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from tidemark.errors import EncodeError
from tidemark.message.batches.batch import KEY_BYTES_MAX, PRIORITY_DEFAULT, PRIORITY_MAX, VALIDITY_MS_MAX
from tidemark.message.batches.trace_context import check_traceparent


class EventOptions(NamedTuple):
    """What goes with an event besides its fields."""

    key: bytes = b""
    priority: int = PRIORITY_DEFAULT
    #: 0 if the event is valid for ever
    validity_ms: int = 0
    #: the number that the application gives to the event, if its publisher is named
    sequence: int | None = None
    #: the trace context that the event carries; "" for none
    traceparent: str = ""


def event_options(
    key: str | bytes,
    priority: int,
    validity: float | None,
    sequence: int | None,
    traceparent: str | None = None,
) -> EventOptions:
    """The options of the arguments of Client.publish; EncodeError if one of them is out of its range."""
    if not isinstance(key, str | bytes):
        raise EncodeError(f"a key is str or bytes, not {type(key).__name__}: convert it first")
    raw = key.encode() if isinstance(key, str) else key
    if len(raw) > KEY_BYTES_MAX:
        raise EncodeError(f"a key has at most {KEY_BYTES_MAX} bytes, not {len(raw)}")
    if not 0 <= priority <= PRIORITY_MAX:
        raise EncodeError(f"a priority is from 0 to {PRIORITY_MAX}, not {priority}")
    milliseconds = 0 if validity is None else ceil(validity * 1_000)
    if validity is not None and not 0 < milliseconds <= VALIDITY_MS_MAX:
        raise EncodeError(
            f"a validity is more than 0 and at most {VALIDITY_MS_MAX // 1_000} s, not {validity}"
        )
    carried = "" if traceparent is None else check_traceparent(traceparent)
    return EventOptions(raw, priority, milliseconds, sequence, carried)
