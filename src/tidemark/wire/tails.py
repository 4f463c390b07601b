"""The tail of a frame: the event batch at its end, which is never rebuilt on its way.

The batch starts at a multiple of 8 bytes from the start of the frame and takes the rest of it. A frame
without a batch ends with its fields. A sender writes the batch's own buffer. A receiver gives the batch a
writable buffer of its own, since a pubend writes ticks into it; that costs at most one copy.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from tidemark.errors import DecodeError, WireError
from tidemark.message.batches.batch import BATCH_BYTES_MAX, Buffer, EventBatch
from tidemark.ticks import Tick
from tidemark.wire.fields import check_position

ALIGNMENT_BYTES = 8
_HEADER_BYTES = 8
_PADDING = tuple(bytes(size) for size in range(ALIGNMENT_BYTES))

#: `tail(data, start, at, end)` -> the batch in data[at:end] of the frame whose payload starts at data[start],
#: or None if there is none. A header is as long as the alignment, so counting from the payload is the same.
Tail = Callable[[Buffer, int, int, int], EventBatch | None]


def write_with_batch(
    head: Struct, key: int, numbers: tuple[int, ...], names: bytes, batch: EventBatch | None
) -> list[Buffer]:
    """The buffers of a frame: one of `head` (the header, then these numbers) and `names`, then the batch's.

    WireError if the batch is empty or too large.
    """
    size = head.size + len(names)
    if batch is None:
        return [head.pack(size - _HEADER_BYTES, key, 0, *numbers) + names]
    data = batch.data
    if not batch.count or len(data) > BATCH_BYTES_MAX:
        raise WireError(f"{batch!r} does not fit into a frame: 1 event to {BATCH_BYTES_MAX} bytes do")
    padding = -size % ALIGNMENT_BYTES
    payload = size + padding + len(data) - _HEADER_BYTES
    return [head.pack(payload, key, 0, *numbers) + names + _PADDING[padding], data]


def copied_tail(data: Buffer, start: int, at: int, end: int) -> EventBatch | None:
    """The batch, as a Tail reads it, of a buffer that other frames use too: its bytes are copied."""
    first = _first_byte(data, start, at, end)
    return None if first is None else _parsed(bytearray(memoryview(data)[first:end]))


def owned_tail(data: Buffer, start: int, at: int, end: int) -> EventBatch | None:
    """The batch, as a Tail reads it, of a buffer that holds this frame only.

    The buffer becomes the batch's own; the caller must not use it any more.
    """
    assert isinstance(data, bytearray)
    assert end == len(data)
    first = _first_byte(data, start, at, end)
    if first is None:
        return None
    # Deleting the first bytes of a bytearray does not move the others.
    del data[:first]
    return _parsed(data)


def check_ticks(batch: EventBatch | None, base: Tick, upto: Tick) -> None:
    """WireError unless `(base, upto]` is a range of real ticks that the ticks of the batch increase in."""
    check_position("base", base)
    check_position("upto", upto)
    if base > upto:
        raise WireError(f"({base}, {upto}] is not a range")
    if batch is None:
        return
    ticks = batch.ticks
    is_ordered = batch.count == 1 or (ticks[1:] > ticks[:-1]).all()
    if ticks[0] <= base or ticks[-1] > upto or not is_ordered:
        raise WireError(f"the ticks of the batch do not increase strictly within ({base}, {upto}]")


def _first_byte(data: Buffer, start: int, at: int, end: int) -> int | None:
    if at == end:
        return None
    padding = (start - at) % ALIGNMENT_BYTES
    first = at + padding
    if first >= end:
        raise WireError("the frame ends within its fields, or before its batch")
    if data[at:first] != _PADDING[padding]:
        raise WireError("the padding before the batch is not zero")
    return first


def _parsed(data: bytearray) -> EventBatch:
    try:
        batch = EventBatch.parse(data)
    except DecodeError as error:
        raise WireError(f"the batch is damaged: {error}") from error
    if not batch.count:
        raise WireError("the batch has no events")
    return batch
