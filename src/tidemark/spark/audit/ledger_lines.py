"""Lines of ledgers as record batches, as Spark tasks read them: every value in the type it was written in.

JSON is parsed here and not by Spark, which rewrites numbers (`1e5`, `10.0`, NaN) on the way: whether a
selector matches, and whether two events are the same, must come out as in the single-process audit. A line
that cannot be read becomes a row with `what` = DAMAGED, so that the driver can raise one clear error.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.message.types import Path as FieldPath
from tidemark.spark.audit.ledgers import PARQUET, SQLITE, LedgerPart

if TYPE_CHECKING:
    import pyarrow as pa

LedgerLine = dict[str, Any]

BATCH_LINES_MAX = 10_000
DAMAGED = "damaged"
#: Columns of every line, as Spark names their types; `at` is the line's place in its ledger.
COLUMNS = {
    "ledger": "int", "at": "bigint", "what": "string", "key": "string", "publisher": "string",
    "sequence": "bigint", "pubend": "string", "topic": "string", "fields": "string", "outcome": "string",
    "tick": "bigint", "time": "bigint", "base": "bigint", "upto": "bigint", "reason": "string",
}  # fmt: skip
#: A field that selectors test has a column for each type of JSON; in a row at most one of them is not null.
LONG, DOUBLE, STRING, BOOLEAN, OTHER = "long", "double", "string", "boolean", "other"
_KINDS = {int: LONG, float: DOUBLE, str: STRING, bool: BOOLEAN}
VALUE_COLUMNS = {LONG: "bigint", DOUBLE: "double", STRING: "string", BOOLEAN: "boolean", OTHER: "boolean"}
#: `what` of a line -> the names that the line must have.
_NEEDED = {
    "publish": ("key", "publisher", "sequence", "pubend", "topic", "fields"),
    "outcome": ("key", "publisher", "sequence", "outcome"),
    "event": ("key", "pubend", "tick", "topic", "fields"),
    "gap": ("pubend", "base", "upto"),
    "subscriber": (),
    "returned": (),
    DAMAGED: (),
}
_INT64 = range(-(2**63), 2**63)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
#: Always the same NaN object: Python compares lists and dicts with NaN as equal if the NaN is the same
#: object.
_DECODER = json.JSONDecoder(
    parse_constant={"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.__getitem__
)


def value_column(number: int, kind: str) -> str:
    """The name of the column with the values of one type, for the field of that number."""
    return f"value_{number}_{kind}"


def columns(paths: Sequence[FieldPath]) -> dict[str, str]:
    """name -> Spark type of all columns, with those of the values at `paths`."""
    values = {
        value_column(number, kind): type_
        for number in range(len(paths))
        for kind, type_ in VALUE_COLUMNS.items()
    }
    return COLUMNS | values


def read(parts: Iterable[LedgerPart], paths: Sequence[FieldPath]) -> Iterator[pa.RecordBatch]:
    """The lines of these parts, with the values that their fields have at `paths`."""
    for part in parts:
        for places, lines in _chunks(part):
            for at, line in enumerate(lines):
                if fault := _fault(line):
                    lines[at] = {"what": DAMAGED, "reason": fault}
            yield _batch(part, places, lines, paths)


def compact(fields: Any) -> str:
    """Fields as text.

    Equal texts are equal fields; fields with unequal texts may be equal too (1 and 1.0).
    """
    return _ENCODER.encode(fields)


def is_same(text: str, other: str) -> bool:
    """Are two texts of `compact` the same fields, as the single-process audit compares them?"""
    return bool(decoded(text) == decoded(other))


def decoded(text: str) -> Any:
    """The value of a text of JSON; both audits compare such values by `==`, where NaN inside equals NaN."""
    return _DECODER.decode(text)


def settled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with `is_right` in place of is_due, is_doubtful, mine and theirs.

    JSON is parsed only for rows whose texts differ.
    """
    import pyarrow as pa

    right = batch["is_due"].to_numpy(zero_copy_only=False).copy()
    for at in batch["is_doubtful"].to_numpy(zero_copy_only=False).nonzero()[0].tolist():
        right[at] = is_same(batch["mine"][at].as_py(), batch["theirs"][at].as_py())
    rest = batch.drop_columns(["is_due", "is_doubtful", "mine", "theirs"])
    return rest.append_column("is_right", pa.array(right, pa.bool_()))


def lookup(fields: Any, path: FieldPath) -> Any:
    """The value of an event's fields at a path; None if there is none."""
    value = fields
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _chunks(part: LedgerPart) -> Iterator[tuple[list[int], list[Any]]]:
    """The places of lines in the ledger, and the lines, BATCH_LINES_MAX at a time."""
    suffix = Path(part.path).suffix
    if suffix == PARQUET:
        yield from _parquet_chunks(part)
        return
    texts = _sqlite_texts(part) if suffix == SQLITE else _jsonl_texts(part)
    while some := list(islice(texts, BATCH_LINES_MAX)):
        yield [at for at, _ in some], _parsed([text for _, text in some])


def _jsonl_texts(part: LedgerPart) -> Iterator[tuple[int, bytes]]:
    """The lines of a part of a JSONL file. A last line without its end, cut short by a crash, is left out."""
    with Path(part.path).open("rb") as file:
        at = part.base
        if at:
            # A line that reaches into this part belongs to the part before, even if it ends just here.
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < part.upto and (text := file.readline()).endswith(b"\n"):
            yield at, text
            at += len(text)


def _sqlite_texts(part: LedgerPart) -> Iterator[tuple[int, bytes]]:
    query = "SELECT n, CAST(line AS BLOB) FROM ledger WHERE n > ? AND n <= ? ORDER BY n"
    with closing(sqlite3.connect(part.path)) as database:
        yield from database.execute(query, (part.base, part.upto))


def _parquet_chunks(part: LedgerPart) -> Iterator[tuple[list[int], list[Any]]]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(part.path)
    names = [name for name in file.schema_arrow.names if name in COLUMNS]
    at = part.first
    for batch in file.iter_batches(BATCH_LINES_MAX, row_groups=[part.upto], columns=names):
        yield list(range(at, at + batch.num_rows)), [_with_fields(line) for line in batch.to_pylist()]
        at += batch.num_rows


def _with_fields(line: LedgerLine) -> LedgerLine:
    """A line of a Parquet ledger, whose `fields` are JSON text, with the fields parsed."""
    if line.get("fields") is None:
        return line
    try:
        return line | {"fields": json.loads(line["fields"])}
    except (ValueError, TypeError) as error:
        return {"what": DAMAGED, "reason": f"`fields` is not text of JSON: {error}"}


def _parsed(texts: list[bytes]) -> list[Any]:
    """The lines parsed as one array, which is much faster; one by one if one of them is not JSON."""
    try:
        lines: list[Any] = json.loads(b"[" + b",".join(texts) + b"]")
    except ValueError:
        return [_parsed_alone(text) for text in texts]
    return lines if len(lines) == len(texts) else [_parsed_alone(text) for text in texts]


def _parsed_alone(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        return {"what": DAMAGED, "reason": f"it is not JSON: {error}"}


def _fault(line: Any) -> str:
    """What is wrong with a line; "" if nothing is."""
    needed = _NEEDED.get(str(line.get("what"))) if isinstance(line, dict) else None
    if needed is None:
        return "`what` is none of publish, outcome, subscriber, returned, event, gap"
    if line["what"] == DAMAGED:
        return str(line["reason"])
    for name in needed:
        if line.get(name) is None:
            return f"a line {line['what']!r} without `{name}`"
    return ""


def _batch(
    part: LedgerPart, places: list[int], lines: list[LedgerLine], paths: Sequence[FieldPath]
) -> pa.RecordBatch:
    import pyarrow as pa

    try:
        found = _columns(part, places, lines, paths)
        return pa.RecordBatch.from_pydict(found, schema=_schema(columns(paths)))
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        broken = {"what": DAMAGED, "reason": f"a value of the wrong type at or after it: {error}"}
        return _batch(part, places[:1], [broken], paths)


def _columns(
    part: LedgerPart, places: list[int], lines: list[LedgerLine], paths: Sequence[FieldPath]
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [line.get(name) for line in lines] for name in COLUMNS}
    found["ledger"] = [part.ledger] * len(lines)
    found["at"] = places
    fields = found["fields"]
    found["fields"] = [None if each is None else compact(each) for each in fields]
    for number, path in enumerate(paths):
        for kind, values in _by_kind(fields, path).items():
            found[value_column(number, kind)] = values
    return found


def _by_kind(fields: Sequence[Any], path: FieldPath) -> dict[str, list[Any]]:
    """The values at a path, in the columns of their types."""
    found: dict[str, list[Any]] = {kind: [None] * len(fields) for kind in VALUE_COLUMNS}
    for at, each in enumerate(fields):
        value = lookup(each, path)
        if value is not None:
            kind = _kind(value)
            found[kind][at] = True if kind == OTHER else value
    return found


def _kind(value: Any) -> str:
    kind = _KINDS.get(type(value), OTHER)
    if (kind == LONG and value not in _INT64) or (kind == STRING and not _is_unicode(value)):
        return OTHER
    return kind


def _is_unicode(text: str) -> bool:
    """Does the text have a UTF-8 form? JSON can contain half a surrogate pair, which has none."""
    return text.isascii() or text.encode(errors="replace").decode() == text


def _schema(wanted: dict[str, str]) -> pa.Schema:
    import pyarrow as pa

    types = {"int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
    return pa.schema([(name, types.get(type_, pa.string())) for name, type_ in wanted.items()])
