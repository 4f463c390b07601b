"""Arrow streams in the bodies of requests, which strangers have written.

Arrow trusts what it reads: offsets that lead beyond a buffer would show the memory of the console, and a
small body may stand for very much. So everything is validated before a value is looked at, and compressed
bodies are refused, as are types by which few bytes stand for many values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.console.problems import ProblemError

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of the values of a body, where it names each of them once and refers to it by number.
VALUES_BYTES_MAX = 64 << 20
#: Values of all columns and lists in one body: bits, and structures without fields, take next to no bytes.
VALUES_MAX = 10_000_000
#: Places of fields in the flatbuffers of Arrow's Message.fbs.
_HEADER_TYPE, _HEADER = 1, 2
_OF_DICTIONARY, _COMPRESSION = 1, 3
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3


def rows_of_arrow(body: bytes, events_max: int) -> list[dict[str, Any]]:
    """Return the rows of a body; ProblemError if it is no Arrow stream, too long, or of a kind not read."""
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise ProblemError(
            415, "request", "this console reads no Arrow: pip install 'tidemark[spark]' where it runs"
        ) from None
    try:
        _check_messages(pa, body)
        with pa.ipc.open_stream(body) as stream:
            _check_types(pa, stream.schema)
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise ProblemError(400, "request", f"the body is no Arrow stream: {error}") from None
    if table.num_rows > events_max:
        raise _too_long(f"{table.num_rows:,} events are over the limit of {events_max:,} a request")
    _check_size(pa, table)
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (ValueError, OverflowError) as error:
        raise ProblemError(
            422, "schema", f"a value cannot be read, such as a time after 9999: {error}"
        ) from None
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _check_messages(pa: Any, body: bytes) -> None:
    """Raise ProblemError 415 if a batch is compressed, which would only be known once it fills the memory."""
    reader = pa.ipc.MessageReader.open_stream(body)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        if _is_compressed(message.metadata.to_pybytes()):
            raise ProblemError(415, "request", "the Arrow stream is compressed: write it without compression")


def _is_compressed(metadata: bytes) -> bool:
    """Return whether a message is a batch of compressed buffers. ValueError if it makes no sense."""
    table = _Table(metadata, _number(metadata, 0, 4))
    kind, header = table.byte(_HEADER_TYPE), table.table(_HEADER)
    if kind == _DICTIONARY_BATCH and header is not None:
        header = header.table(_OF_DICTIONARY)
    elif kind != _RECORD_BATCH:
        return False
    return header is not None and header.table(_COMPRESSION) is not None


class _Table:
    """A table of a flatbuffer: where each of its fields is, in the order of its schema."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - _number(data, at, 4, signed=True)
        self._size = _number(data, self._fields, 2)

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        offset = _number(self._data, self._fields + entry, 2) if entry + 2 <= self._size else 0
        return self._at + offset if offset else None

    def byte(self, field: int) -> int:
        place = self._place(field)
        return 0 if place is None else _number(self._data, place, 1)

    def table(self, field: int) -> _Table | None:
        place = self._place(field)
        return None if place is None else _Table(self._data, place + _number(self._data, place, 4))


def _number(data: bytes, at: int, size: int, *, signed: bool = False) -> int:
    if not 0 <= at <= len(data) - size:
        raise ValueError("its metadata is damaged")
    return int.from_bytes(data[at : at + size], "little", signed=signed)


def _check_types(pa: Any, schema: pa.Schema) -> None:
    """Raise ProblemError 415 if a field is of a type in which a few bytes can stand for many values."""
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind) and _is_flat(kind.value_type):
            continue
        waiting = [kind]
        while waiting:
            each = waiting.pop()
            if not _is_flat(each) and not _is_nested(pa, each):
                reason = f"the field {field.name!r} has the type {each}, which is not read from strangers"
                raise ProblemError(415, "request", reason)
            waiting += [each.field(number).type for number in range(each.num_fields)]


def _is_flat(kind: pa.DataType) -> bool:
    """Return whether each value of a type has bytes of its own, or a fixed width."""
    import pyarrow.types as types

    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(is_one(kind) for is_one in (types.is_primitive, types.is_decimal, *texts))


def _is_nested(pa: Any, kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_struct(kind) or types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind)
    )


def _check_size(pa: Any, table: pa.Table) -> None:
    """Raise ProblemError 413 if there are too many values, or too much once numbers are written out."""
    import pyarrow.compute as compute

    count = sum(_count(pa, chunk) for column in table.columns for chunk in column.chunks)
    if count > VALUES_MAX:
        raise _too_long(f"{count:,} values are over the limit of {VALUES_MAX:,} a request")
    size = 0
    for column in table.columns:
        for chunk in column.chunks:
            if pa.types.is_dictionary(chunk.type) and not pa.types.is_primitive(chunk.type.value_type):
                longest = compute.max(compute.binary_length(chunk.dictionary.cast(pa.large_binary()))).as_py()
                size += len(chunk) * (longest or 0)
    if size > VALUES_BYTES_MAX:
        raise _too_long(f"the values of the body are over the limit of {VALUES_BYTES_MAX:,} bytes a request")


def _count(pa: Any, array: pa.Array) -> int:
    """Return how many values an array has, with those inside its lists and structures."""
    types, kind = pa.types, array.type
    if types.is_map(kind):
        return len(array) + _count(pa, array.keys) + _count(pa, array.items)
    if types.is_list(kind) or types.is_large_list(kind):
        return len(array) + _count(pa, array.values)
    if types.is_struct(kind):
        return len(array) + sum(_count(pa, array.field(at)) for at in range(kind.num_fields))
    return len(array)


def _too_long(reason: str) -> ProblemError:
    return ProblemError(413, "limit", f"{reason}: send them in parts")
