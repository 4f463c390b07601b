"""One atomic field of many events, from a Column to an Arrow array and back, as whole arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import EncodeError
from tidemark.message.batches.columns import Bools, Column, Decimals, Spans
from tidemark.message.batches.spans import joined
from tidemark.message.foreign.arrow.types import arrow_type, from_arrow_schema
from tidemark.message.text import type_text
from tidemark.message.types import Atomic, Kind, Path, Tuple, path_text

if TYPE_CHECKING:
    import pyarrow as pa

#: Types of columns of which it is remembered what they are like: batch after batch has the same ones.
_TYPES_KEPT_MAX = 256
_NARROW: dict[Kind, str] = {Kind.INT: "i4", Kind.FLOAT: "f4"}


def column_array(column: Column) -> pa.Array:
    """The Arrow array of a column of atomic values."""
    import pyarrow as pa

    core = column.type
    assert isinstance(core, Atomic)
    if isinstance(column.values, Spans):
        return _from_spans(column.values, column.valid, arrow_type(core))
    if isinstance(column.values, Decimals):
        return _from_decimals(column.values, column.valid, arrow_type(core))
    found = cast("NDArray[Any]", column.values)
    if core.kind is Kind.BOOLEAN:
        data = np.packbits(found, bitorder="little")
    else:
        data = np.ascontiguousarray(found, _NARROW.get(core.kind, found.dtype))
    # `pa.array` would import pandas first, to find out whether these are its values.
    return pa.Array.from_buffers(arrow_type(core), len(found), [bitmap(column.valid), pa.py_buffer(data)])


def array_column(array: pa.Array, item: Atomic, path: Path) -> Column:
    """The column of an Arrow array of a like type; EncodeError if a value does not fit without loss."""
    import pyarrow as pa

    where = path_text(path)
    if not _is_like(array.type, item):
        raise EncodeError(f"Arrow's {array.type} is not {type_text(item)}: cast the column first", path=where)
    try:
        cast_ = array.cast(arrow_type(item))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise EncodeError(f"Arrow's {array.type} does not fit: {error}", path=where) from None
    valid = None if cast_.null_count == 0 else cast_.is_valid().to_numpy(zero_copy_only=False)
    if item.kind in (Kind.STRING, Kind.BYTES):
        return Column(item, _to_spans(cast_), valid)
    if item.kind is Kind.DECIMAL:
        return Column(item, _to_decimals(cast_, item), valid)
    if item.kind is Kind.TIMESTAMP:
        cast_ = cast_.cast(pa.int64())
    filled = cast_ if valid is None else cast_.fill_null(False if item.kind is Kind.BOOLEAN else 0)
    return Column(item, filled.to_numpy(zero_copy_only=False), valid)


#: kind of an Arrow column -> kinds it may be cast to, with a check of each value; Arrow itself would cast
#: more
_LIKE: dict[Kind, tuple[Kind, ...]] = {
    Kind.INT: (Kind.INT, Kind.LONG, Kind.DOUBLE, Kind.DECIMAL),
    Kind.LONG: (Kind.INT, Kind.LONG, Kind.DOUBLE, Kind.DECIMAL),
    Kind.FLOAT: (Kind.FLOAT, Kind.DOUBLE),
    Kind.DOUBLE: (Kind.FLOAT, Kind.DOUBLE),
}


@lru_cache(_TYPES_KEPT_MAX)
def _is_like(source: pa.DataType, item: Atomic) -> bool:
    import pyarrow as pa

    if pa.types.is_null(source):
        return True
    (field,) = cast(Tuple, from_arrow_schema(pa.schema([pa.field("c", source, nullable=False)]))).fields
    found = field.type
    return isinstance(found, Atomic) and item.kind in _LIKE.get(found.kind, (found.kind,))


def _to_spans(array: pa.Array) -> Spans:
    _, offsets, data = array.buffers()
    if len(array) == 0 or offsets is None:
        return Spans(np.zeros(0, np.uint8), np.zeros(len(array), np.int64), np.zeros(len(array), np.int64))
    marks = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    body = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return Spans(body, marks[:-1], marks[1:])


def _to_decimals(array: pa.Array, item: Atomic) -> Decimals:
    if len(array) == 0:
        return Decimals(np.zeros(0, np.uint64), np.zeros(0, np.int64), item.scale)
    pairs = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)[
        array.offset : array.offset + len(array)
    ]
    return Decimals(pairs[:, 0].copy(), pairs[:, 1].copy().view(np.int64), item.scale)


def _from_spans(spans: Spans, valid: Bools | None, item: pa.DataType) -> pa.Array:
    import pyarrow as pa

    body, ends = joined(spans)
    offsets = np.zeros(len(spans) + 1, np.int32)
    offsets[1:] = ends
    buffers = [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(body)]
    return pa.Array.from_buffers(item, len(spans), buffers)


def _from_decimals(values: Decimals, valid: Bools | None, item: pa.DataType) -> pa.Array:
    import pyarrow as pa

    pairs = np.empty((len(values), 2), np.uint64)
    pairs[:, 0], pairs[:, 1] = values.low, values.high.view(np.uint64)
    return pa.Array.from_buffers(item, len(values), [bitmap(valid), pa.py_buffer(pairs)])


def bitmap(valid: Bools | None) -> pa.Buffer | None:
    """Arrow's bitmap of the valid rows; None if all are valid."""
    import pyarrow as pa

    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
