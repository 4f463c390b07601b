"""Which events of a batch can be decoded, found out for the whole batch at once.

A pubend refuses a batch with an event that cannot be decoded, so that no subscriber meets one. Subscribers,
the Spark source and the archive look too, since an older broker may have logged such events: they pass over
them and say so. An event can be decoded if its header is one of its schema, its variable fields tile the rest
of the message, its text is UTF-8, its truth values are 0 or 1 and its times lie within the years 1 to 9999.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tidemark.errors import DecodeError
from tidemark.message.batches.alike import are_alike
from tidemark.message.batches.batch import PRELUDE, EventBatch, Shape, Verdict
from tidemark.message.batches.columns import Ints
from tidemark.message.batches.gather import Messages
from tidemark.message.codec.rest import Rest, no_rest, resting
from tidemark.message.schema import Schema
from tidemark.ticks import Range

#: Bytes of messages that one step of `check_in_steps` looks at: of a schema with single values only, whose
#: messages are looked at all at once, and of any other, whose messages are looked at one by one.
PLAIN_STEP_BYTES = 1 << 20
STEP_BYTES = 16 << 10
#: From so many messages of one schema on, array operations take less time than looking at each message.
ARRAY_ROWS_MIN = 24


def check_messages(batch: EventBatch, schemas: Mapping[int, Schema]) -> None:
    """DecodeError, with the number of the first such row, unless every row's message can be decoded."""
    if batch.verdict is not None:
        if batch.verdict.problem is not None:
            raise batch.verdict.problem
        return
    if batch.count == 1 and len(batch.shapes) == 1:
        # The most frequent case; slicing arrays would take longer than the rest.
        body = batch.body.data
        _, _, _, _, key_bytes, _ = PRELUDE.unpack_from(body)
        message = bytes(body[PRELUDE.size : len(body) - key_bytes])
        try:
            _known(batch.shapes[0], schemas).check(message)
        except DecodeError as error:
            raise _at(0, error) from None
        return
    common = batch.common
    if common is not None and are_alike(batch, common, _known(batch.shapes[common.shape], schemas)):
        return
    for shape, rows in _groups(batch):
        schema = _known(shape, schemas)
        if not _is_sound(batch, schema, rows):
            row, problem = next(_problems(batch, schema, rows))
            raise _at(row, problem)


class CheckWork:
    """Some messages of one schema to be looked at, on any thread: it changes nothing but itself."""

    def __init__(self, batch: EventBatch, schema: Schema, rows: Ints) -> None:
        self._batch, self._schema, self._rows = batch, schema, rows
        #: the first row that cannot be decoded, and why; None if there is none
        self.problem: DecodeError | None = None

    def __call__(self, rest: Rest = no_rest) -> None:
        """Do the work."""
        if not _is_sound(self._batch, self._schema, self._rows, rest):
            row, problem = next(_problems(self._batch, self._schema, self._rows, rest))
            self.problem = _at(row, problem)


def is_long_check(batch: EventBatch, schemas: Mapping[int, Schema]) -> bool:
    """Return whether `check_messages` would take more than about two milliseconds."""
    size = len(batch.body)
    if batch.verdict is not None or size <= STEP_BYTES:
        return False
    if size > 2 * PLAIN_STEP_BYTES or len(batch.shapes) > ARRAY_ROWS_MIN:
        return True
    return any(not schemas[each.fingerprint].is_plain for each in batch.shapes if each.fingerprint in schemas)


def check_in_steps(batch: EventBatch, schemas: Mapping[int, Schema]) -> Iterator[CheckWork]:
    """Do what `check_messages` does, in steps, and note the verdict in the batch.

    Each step that is yielded has to be done before the next is asked for; no step takes longer than looking
    at one message, or at STEP_BYTES.
    """
    problem: DecodeError | None = None
    sizes = batch.message_ends - batch.message_starts
    for shape, rows in _groups(batch):
        schema = schemas.get(shape.fingerprint)
        if schema is None:
            return  # the batch will be refused
        is_plain = schema.is_plain and len(rows) >= ARRAY_ROWS_MIN
        step = PLAIN_STEP_BYTES if is_plain else STEP_BYTES
        ends = np.cumsum(sizes[rows])
        first = 0
        while first < len(rows) and problem is None:
            used = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, used + step, side="right")), first + 1)
            work = CheckWork(batch, schema, rows[first:last])
            yield work
            problem, first = work.problem, last
        if problem is not None:
            break
    batch.verdict = Verdict(problem)


def without_damaged(
    batch: EventBatch, schemas: Mapping[int, Schema]
) -> tuple[EventBatch | None, list[Range]]:
    """The rows that can be decoded, None if there are none, and the ticks of the others as ranges.

    A row whose schema is not known is taken for sound. A batch without damage is returned itself.
    """
    damaged = damaged_rows(batch, schemas)
    if not damaged:
        return batch, []
    ticks = sorted(batch.ticks[damaged].tolist())
    kept = np.ones(batch.count, np.bool_)
    kept[damaged] = False
    return (batch.take(kept) if kept.any() else None), [(tick - 1, tick) for tick in ticks]


def damaged_rows(batch: EventBatch, schemas: Mapping[int, Schema]) -> list[int]:
    """The rows that cannot be decoded, in order; a row whose schema is not known is taken for sound."""
    if batch.count == 1:  # the arrays below would take longer than the rest
        schema = schemas.get(batch.shapes[PRELUDE.unpack_from(batch.body.data)[0]].fingerprint)
        return [] if schema is None or _can_decode(schema, batch.message(0)) else [0]
    common = batch.common
    if common is not None:
        schema = schemas.get(batch.shapes[common.shape].fingerprint)
        if schema is not None and are_alike(batch, common, schema):
            return []
    damaged: list[int] = []
    for shape, rows in _groups(batch):
        schema = schemas.get(shape.fingerprint)
        if schema is not None and not _is_sound(batch, schema, rows):
            damaged += [row for row, _ in _problems(batch, schema, rows)]
    return sorted(damaged)


def _can_decode(schema: Schema, message: bytes) -> bool:
    try:
        schema.check(message)
    except DecodeError:
        return False
    return True


def _groups(batch: EventBatch) -> Iterator[tuple[Shape, Ints]]:
    """The rows of each shape that has any."""
    if len(batch.shapes) == 1:
        yield batch.shapes[0], np.arange(batch.count)
        return
    of_shape = batch.prelude("shape")
    order = np.argsort(of_shape, kind="stable")
    ends = np.searchsorted(of_shape[order], np.arange(len(batch.shapes)), side="right")
    start = 0
    for index, end in enumerate(ends.tolist()):
        if start < end:
            yield batch.shapes[index], order[start:end]
        start = end


def _known(shape: Shape, schemas: Mapping[int, Schema]) -> Schema:
    try:
        return schemas[shape.fingerprint]
    except KeyError:
        raise DecodeError(f"no schema has the fingerprint {shape.fingerprint:016x}") from None


def _is_sound(batch: EventBatch, schema: Schema, rows: Ints, rest: Rest = no_rest) -> bool:
    if len(rows) < ARRAY_ROWS_MIN or not schema.is_plain:
        return next(_problems(batch, schema, rows, rest), None) is None
    starts, ends = batch.message_starts, batch.message_ends
    if len(rows) < batch.count:
        starts, ends = starts[rows], ends[rows]
    try:
        Messages(schema, batch.body, starts, ends).check()
    except DecodeError:
        return False
    return True


def _problems(
    batch: EventBatch, schema: Schema, rows: Ints, rest: Rest = no_rest
) -> Iterator[tuple[int, DecodeError]]:
    """The rows whose messages cannot be decoded, and why."""
    starts, ends = batch.message_starts[rows].tolist(), batch.message_ends[rows].tolist()
    data = batch.body.data
    for row, start, end in resting(zip(rows.tolist(), starts, ends, strict=True), rest):
        try:
            schema.check(bytes(data[start:end]))
        except DecodeError as error:
            yield row, error


def _at(row: int, error: DecodeError) -> DecodeError:
    return DecodeError(f"event {row} of the batch: {error.reason}", path=error.path)
