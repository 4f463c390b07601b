"""Arrow's filter objects as selectors: expressions, and the lists of tuples that pyarrow's readers take.

Lists are read as they are. The only documented way to look inside an expression is its Substrait form, and to
write that form pyarrow needs twice the memory for every level of nesting (apache/arrow#48761). So expressions
are taken up to LEVELS_MAX levels: a chain of that many `&`. Lists have no such limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from struct import pack, unpack
from typing import TYPE_CHECKING, Any

from tidemark.errors import TranslationError
from tidemark.matching.forms.domains import type_at
from tidemark.matching.selectors.tree import FALSE, HEADERS, And, CompareOp, Literal, Node, Or
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.foreign.arrow.types import arrow_type
from tidemark.message.types import DOUBLE, FLOAT, INT, LONG, Atomic, Path, path_text
from tidemark.spark.pushdown.column_tests import ColumnTest, TextOp, is_writable, joined, selector
from tidemark.spark.pushdown.substrait import (
    ColumnPosition,
    ConstantValue,
    Expression,
    FunctionCall,
    IsOneOf,
    read_expression,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

LEVELS_MAX = 14

#: To Arrow, NaN is unequal to everything, by IEEE 754.
_TRUE_FOR_NAN: tuple[CompareOp, ...] = ("<>",)

_LIST_COMPARISONS: dict[str, CompareOp] = {
    "=": "=",
    "==": "=",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
#: Substrait's names -> the comparison, and the one that it is if the column stands on the right.
_COMPARISONS: dict[str, tuple[CompareOp, CompareOp]] = {
    "equal": ("=", "="),
    "not_equal": ("<>", "<>"),
    "lt": ("<", ">"),
    "lte": ("<=", ">="),
    "gt": (">", "<"),
    "gte": (">=", "<="),
}
_TEXT_TESTS: dict[str, TextOp] = {"starts_with": "starts", "ends_with": "ends", "contains": "contains"}
#: Fields of these types are widened, without loss, to compare with wider constants; Substrait cannot express
#: that.
_WIDENED = {INT: LONG, FLOAT: DOUBLE}


def from_arrow_expression(expression: pc.Expression | Sequence[Any], fields: FieldTypes) -> Node:
    """The selector for the rows that `expression` keeps. Raises TranslationError if there is none.

    Takes a pyarrow expression, or filters in disjunctive normal form: `[("x", ">", 5), ("s", "in", ["a"])]`,
    or a list of such lists, any of which is to hold.
    """
    if isinstance(expression, Sequence):
        node = _from_lists(expression, fields)
    else:
        node = _from_expression(expression, fields)
    if not is_writable(node):
        raise TranslationError("as a selector it would be over the limits for selectors")
    return node


def _from_lists(filters: Sequence[Any], fields: FieldTypes) -> Node:
    conjunctions = [filters] if all(isinstance(each, tuple) for each in filters) else filters
    if not all(conjunctions):
        raise TranslationError("a list of filters without a filter keeps all rows or none; say which")
    return joined(
        Or, [joined(And, [_from_tuple(each, fields) for each in conjunction]) for conjunction in conjunctions]
    )


def _from_tuple(condition: Any, fields: FieldTypes) -> Node:
    try:
        name, op, value = condition
    except (TypeError, ValueError):
        raise TranslationError(f"{condition!r}: is not (column, operator, value)") from None
    path = name if isinstance(name, tuple) else (name,)
    if op in ("in", "not in") and isinstance(value, list | tuple | set | frozenset):
        values = sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
        return selector(_membership(path, values, fields), op == "in", fields, _TRUE_FOR_NAN)
    if op not in _LIST_COMPARISONS:
        raise TranslationError(f"{condition!r}: is not a condition that Arrow has")
    return selector(ColumnTest(_LIST_COMPARISONS[op], path, value), True, fields, _TRUE_FOR_NAN)


def _membership(path: Path, values: list[Any], fields: FieldTypes) -> ColumnTest:
    """Arrow's is_in, which is false for NULL. Raises TranslationError where it differs from comparisons."""
    item = type_at(path, fields)
    if None in values:
        raise TranslationError(f"{path_text(path)}: a list with NULL may or may not be meant to match NULL")
    if item in (FLOAT, DOUBLE) and not all(isinstance(value, float) and value for value in values):
        raise TranslationError(f"{path_text(path)}: in a list, but not elsewhere, Arrow tells -0.0 from 0.0")
    if item == FLOAT and not all(map(_fits_float, values)):
        raise TranslationError(f"{path_text(path)}: in a list, but not elsewhere, Arrow rounds to 32 bits")
    return ColumnTest("in", path, values, null_is_false=True)


def _fits_float(value: float) -> bool:
    """Does the value survive being stored in 32 bits?"""
    try:
        return bool(unpack("<f", pack("<f", value))[0] == value)
    except OverflowError:
        return False


def _from_expression(expression: Any, fields: FieldTypes) -> Node:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(expression, pc.Expression):
        raise TranslationError(f"{type(expression).__name__} is no filter object of Arrow's")
    if _levels(str(expression)) > LEVELS_MAX:
        raise TranslationError(
            f"the expression is over {LEVELS_MAX} levels deep; write it as lists of tuples"
        )
    schema = _schema(fields)
    try:
        message = bytes(expression.to_substrait(schema))
    except pa.ArrowException as error:
        raise TranslationError(f"Arrow itself cannot spell the expression out: {error}") from None
    return _Translator(schema, fields).node(read_expression(message), True)


def _levels(text: str) -> int:
    """How deep the parentheses of an expression nest: only to refuse it, never to interpret it."""
    return max(accumulate({"(": 1, ")": -1}.get(character, 0) for character in text))


class _Translator:
    def __init__(self, schema: pa.Schema, fields: FieldTypes) -> None:
        self._schema = schema
        self._fields = fields

    def node(self, part: Expression, wanted: bool) -> Node:
        """The selector that is true exactly where `part` is `wanted`."""
        match part:
            case FunctionCall("and" | "or" as name, arguments):
                nodes = [self.node(argument, wanted) for argument in arguments]
                return joined(And if (name == "and") == wanted else Or, nodes)
            case FunctionCall("not", (argument,)):
                return self.node(argument, not wanted)
            case FunctionCall("is_not_null", arguments):
                return self.node(FunctionCall("is_null", arguments), not wanted)
            case ConstantValue(bool() as value):
                return Literal(value == wanted)
            case ConstantValue(None):
                return FALSE
        return selector(self._test(part), wanted, self._fields, _TRUE_FOR_NAN)

    def _test(self, part: Expression) -> ColumnTest:
        match part:
            case ColumnPosition():
                return ColumnTest("=", self._path(part), True)
            case FunctionCall(name, (ColumnPosition() as column, ConstantValue(value))) if (
                name in _COMPARISONS
            ):
                return ColumnTest(_COMPARISONS[name][0], self._path(column), value)
            case FunctionCall(name, (ConstantValue(value), ColumnPosition() as column)) if (
                name in _COMPARISONS
            ):
                return ColumnTest(_COMPARISONS[name][1], self._path(column), value)
            case FunctionCall(name, (ColumnPosition() as column, ConstantValue(value))) if (
                name in _TEXT_TESTS
            ):
                return ColumnTest(_TEXT_TESTS[name], self._path(column), value)
            case FunctionCall("is_null", (ColumnPosition() as column,)):
                return ColumnTest("null", self._path(column))
            case IsOneOf(ColumnPosition() as column, options):
                values = [option.value if isinstance(option, ConstantValue) else None for option in options]
                return _membership(self._path(column), values, self._fields)
        raise TranslationError("a selector tests one column against constants; the expression does not")

    def _path(self, column: ColumnPosition) -> Path:
        names: list[str] = []
        inside: Any = self._schema
        for position in column.positions:
            names.append(inside.field(position).name)
            inside = inside.field(position).type
        return tuple(names)


def _schema(fields: FieldTypes) -> pa.Schema:
    """Columns for all fields that hold one value, and for the headers."""
    import pyarrow as pa

    nested: dict[str, Any] = {}
    for path in (*fields.paths(), *((header,) for header in HEADERS)):
        item = type_at(path, fields)
        if isinstance(item, Atomic):
            inside = nested
            for name in path[:-1]:
                inside = inside.setdefault(name, {})
            inside[path[-1]] = arrow_type(_WIDENED.get(item, item))
    return pa.schema(_arrow_fields(nested))


def _arrow_fields(nested: dict[str, Any]) -> list[pa.Field]:
    import pyarrow as pa

    return [
        pa.field(name, pa.struct(_arrow_fields(item)) if isinstance(item, dict) else item)
        for name, item in nested.items()
    ]
