"""Natural types as Arrow types, and back. `message.foreign.arrow.values` converts the values.

| type                         | Arrow                                                                 |
|------------------------------|-----------------------------------------------------------------------|
| boolean, int, long           | bool, int32, int64                                                    |
| float, double                | float32, float64                                                      |
| decimal(p, s)                | decimal128(p, s)                                                      |
| string, bytes, timestamp     | string, binary, timestamp(us, UTC)                                    |
| a tuple                      | struct of the keys of its dict, spliced ones included                 |
| a tuple without fields       | bool, always true: Parquet and Spark have no struct without fields    |
| a list                       | list of `element`                                                     |
| T?                           | T, nullable; only this and the variants below are nullable            |
| an enumeration               | string                                                                |
| another variant              | struct of one nullable child for each case but the absent one; nullable |
|                              | if it has that. A case whose own value may be None is a struct of one  |
|                              | field `value`, so that choosing it shows                               |
| dynamic, a reference         | string of JSON text as `message.foreign.json.text` writes it |

References are JSON text because only references that recur are left: `references.write_out` replaces the
others. These are exactly the types that Spark's own conversion gives (`tidemark.spark.types`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, assert_never

from tidemark.errors import SchemaError
from tidemark.message.foreign.arrow.values import case_type, from_arrow_value, to_arrow_value
from tidemark.message.members import Member, cases, members, split_option
from tidemark.message.types import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Atomic,
    Dynamic,
    Field,
    Kind,
    List,
    Path,
    Reference,
    Tuple,
    Type,
    Variant,
    decimal,
    is_enumeration,
    is_spliced,
    name_problem,
    optional,
    path_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["arrow_schema", "arrow_type", "from_arrow_schema", "from_arrow_value", "to_arrow_value"]


def arrow_type(item: Type) -> pa.DataType:
    """The Arrow type of `item`. Whether it is nullable is a property of the Arrow field that holds it."""
    import pyarrow as pa

    core, _ = split_option(item)
    match core:
        case Atomic():
            return _atomic(core)
        case Dynamic() | Reference():
            return pa.string()
        case List():
            return pa.list_(_field("element", core.item))
        case Tuple():
            return _struct([_member(member) for member in members(core)])
        case Variant():
            if is_enumeration(core):
                return pa.string()
            return _struct([_case(case) for case in cases(core)])
    assert_never(core)


def arrow_schema(item: Type) -> pa.Schema:
    """The Arrow schema of events of type `item`: the members of a tuple, or the cases of a variant.

    The rows are what `to_arrow_value` returns. Any other type is one column called `_0`.
    """
    import pyarrow as pa

    if isinstance(item, Tuple):
        return pa.schema([_member(member) for member in members(item)])
    if isinstance(item, Variant) and is_spliced(Field("", item)):
        return pa.schema([_case(case) for case in cases(item)])
    return pa.schema([_field("_0", item)])


def from_arrow_schema(schema: pa.Schema) -> Type:
    """The tuple whose events have these columns; SchemaError, with the column, if one has no type here."""
    return Tuple(_from_fields(list(schema), ()))


def _member(member: Member) -> pa.Field:
    plain = Field(member.name, member.type)
    return _case(plain) if member.chosen else _field(plain.name, plain.type)


def _case(case: Field) -> pa.Field:
    import pyarrow as pa

    return pa.field(case.name, arrow_type(case_type(case.type)), nullable=True)


def _field(name: str, item: Type) -> pa.Field:
    import pyarrow as pa

    return pa.field(name, arrow_type(item), nullable=split_option(item)[1])


def _struct(fields: list[pa.Field]) -> pa.DataType:
    import pyarrow as pa

    return pa.struct(fields) if fields else pa.bool_()


def _atomic(item: Atomic) -> pa.DataType:
    import pyarrow as pa

    if item.kind is Kind.DECIMAL:
        return pa.decimal128(item.precision, item.scale)
    plain: dict[Kind, pa.DataType] = {
        Kind.BOOLEAN: pa.bool_(),
        Kind.INT: pa.int32(),
        Kind.LONG: pa.int64(),
        Kind.FLOAT: pa.float32(),
        Kind.DOUBLE: pa.float64(),
        Kind.STRING: pa.string(),
        Kind.BYTES: pa.binary(),
        Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    }
    return plain[item.kind]


def _from_fields(fields: list[pa.Field], path: Path) -> tuple[Field, ...]:
    found: dict[str, Field] = {}
    for field in fields:
        where = (*path, field.name)
        problem = name_problem(field.name)
        if field.name in found:
            problem = "two columns have this name"
        if problem:
            raise SchemaError(f"{path_text(where)}: {problem}")
        found[field.name] = Field(field.name, _from_field(field, where))
    return tuple(found.values())


def _from_field(field: pa.Field, path: Path) -> Type:
    item = _from_type(field.type, path)
    return optional(item) if field.nullable else item


def _from_type(item: pa.DataType, path: Path) -> Type:
    import pyarrow.types as kinds

    if kinds.is_struct(item):
        return Tuple(_from_fields(list(item.fields), path))
    if kinds.is_list(item) or kinds.is_large_list(item) or kinds.is_fixed_size_list(item):
        return List(_from_field(item.value_field, path))
    if kinds.is_dictionary(item):
        return _from_type(item.value_type, path)
    if kinds.is_decimal(item) and item.precision <= 38 and 0 <= item.scale <= item.precision:
        return decimal(item.precision, item.scale)
    found = next((found for found, tests in _plain_types() if any(test(item) for test in tests)), None)
    if found is None:
        raise SchemaError(f"{path_text(path)}: Arrow's {item} has no type here; cast it to one that has")
    return found


def _plain_types() -> list[tuple[Type, list[Callable[[Any], bool]]]]:
    """For each atomic type, tests for the Arrow types whose values fit it without loss."""
    import pyarrow.types as kinds

    return [
        (BOOLEAN, [kinds.is_boolean]),
        (INT, [kinds.is_int8, kinds.is_int16, kinds.is_int32, kinds.is_uint8, kinds.is_uint16]),
        (LONG, [kinds.is_int64, kinds.is_uint32]),
        (FLOAT, [kinds.is_float16, kinds.is_float32]),
        (DOUBLE, [kinds.is_float64]),
        (STRING, [kinds.is_string, kinds.is_large_string, kinds.is_string_view]),
        (BYTES, [kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary]),
        # Nanoseconds would be cut, and a time without a zone is no instant.
        (TIMESTAMP, [lambda item: kinds.is_timestamp(item) and item.tz is not None and item.unit != "ns"]),
    ]
