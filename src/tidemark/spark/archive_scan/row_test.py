"""A selector as a test of Arrow columns: true, false and null where the selector is true, false and unknown.

The test is exact for what it takes, and raises TranslationError for the rest when it is made: arithmetic,
decimals, two fields beside each other, dynamic fields. NaN, which Arrow compares as IEEE 754 does, is null
wherever it is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import TranslationError
from tidemark.matching.forms.domains import type_at
from tidemark.matching.selectors.like import Pattern, Segment
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.tree import (
    And,
    Between,
    Compare,
    CompareOp,
    FieldRef,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
)
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.codec.scalars import microseconds
from tidemark.message.types import Atomic, Dynamic, Kind, Path, Reference, path_text

#: A path of columns: a column, and fields of structs inside it.
ColumnPath = tuple[str, ...]
_Condition = Callable[[pa.Table], Any]

_OPERATIONS: dict[CompareOp, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_FLIPPED: dict[CompareOp, CompareOp] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGERS = (Kind.INT, Kind.LONG)
_DOUBLES = (Kind.FLOAT, Kind.DOUBLE)


@dataclass(frozen=True, slots=True)
class RowTest:
    """The test, and the columns that a table must have for it."""

    columns: frozenset[str]
    _condition: _Condition

    def __call__(self, table: pa.Table) -> pa.ChunkedArray | pa.Array:
        """truth[row]: true, false or null."""
        found = self._condition(table)
        return pa.repeat(found, table.num_rows) if isinstance(found, pa.Scalar) else found


def row_test(tree: Node, fields: FieldTypes, column: Callable[[Path], ColumnPath]) -> RowTest:
    """The test that is true for exactly the rows whose events `tree` matches.

    `column` returns where a field lies, and raises TranslationError if it lies nowhere. Raises
    TranslationError for what the module's docstring names.
    """
    writer = _Writer(fields, column)
    condition = writer.condition(tree)
    return RowTest(frozenset(writer.columns), condition)


class _Writer:
    def __init__(self, fields: FieldTypes, column: Callable[[Path], ColumnPath]) -> None:
        self._fields = fields
        self._column = column
        self.columns: set[str] = set()

    def condition(self, node: Node) -> _Condition:
        match node:
            case And(operands):
                return self._joined(pc.and_kleene, operands)
            case Or(operands):
                return self._joined(pc.or_kleene, operands)
            case Not(operand):
                return _negated(True, self.condition(operand))
            case Compare(op, FieldRef(path), Literal(value)):
                return self._compare(op, path, value, node)
            case Compare(op, Literal(value), FieldRef(path)):
                return self._compare(_FLIPPED[op], path, value, node)
            case Between(FieldRef() as operand, Literal() as low, Literal() as high, negated):
                ends = And((Compare(">=", operand, low), Compare("<=", operand, high)))
                return _negated(negated, self.condition(ends))
            case In(FieldRef() as operand, values, negated):
                tests = [self.condition(Compare("=", operand, value)) for value in values]
                return _negated(negated, lambda table: reduce(pc.or_kleene, [test(table) for test in tests]))
            case Like(FieldRef(path), pattern, escape, negated):
                return _negated(negated, self._like(path, Pattern.compile(pattern, escape), node))
            case IsNull(FieldRef(path), negated):
                read = self._reader(path)
                return lambda table: (pc.is_valid if negated else pc.is_null)(read(table))
            case FieldRef(path) if self._type(path, node).kind is Kind.BOOLEAN:
                return self._reader(path)
            case Literal(bool() as value):
                return lambda _: pa.scalar(value)
            case _:
                _refuse(node)

    def _joined(self, both: Callable[[Any, Any], Any], operands: Sequence[Node]) -> _Condition:
        tests = [self.condition(each) for each in operands]
        return lambda table: reduce(both, [test(table) for test in tests])

    def _compare(self, op: CompareOp, path: Path, value: Any, node: Node) -> _Condition:
        kind: Any = self._type(path, node).kind
        test, read = _OPERATIONS[op], self._reader(path)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if kind in _INTEGERS and is_number and type(value) is int:
            return lambda table: test(read(table).cast(pa.int64()), pa.scalar(value, pa.int64()))
        if kind in (*_INTEGERS, *_DOUBLES) and is_number:
            constant = pa.scalar(float(value), pa.float64())
            return lambda table: test(_comparable(read(table)), constant)
        if kind is Kind.TIMESTAMP and isinstance(value, datetime):
            # As numbers: not every instant is a Python datetime.
            instant = pa.scalar(microseconds(value), pa.int64())
            return lambda table: test(read(table).cast(pa.int64()), instant)
        if (kind is Kind.STRING and isinstance(value, str)) or (
            kind is Kind.BYTES and isinstance(value, bytes)
        ):
            return lambda table: test(read(table), pa.scalar(value))
        if kind is Kind.BOOLEAN and isinstance(value, bool) and op in ("=", "<>"):
            return lambda table: test(read(table), pa.scalar(value))
        _refuse(node)

    def _like(self, path: Path, pattern: Pattern, node: Node) -> _Condition:
        if self._type(path, node).kind is not Kind.STRING:
            _refuse(node)
        read, regex = self._reader(path), _regex(pattern)
        return lambda table: pc.match_substring_regex(read(table), regex)

    def _reader(self, path: Path) -> _Condition:
        """Reads the column of a field, null wherever a struct around it is null."""
        item = type_at(path, self._fields)
        if item is None or isinstance(item, Dynamic | Reference):
            raise TranslationError(f"{path_text(path)}: has no column of a type to compare by")
        first, *inner = self._column(path)
        self.columns.add(first)
        if not inner:
            return lambda table: table.column(first)
        return lambda table: pc.struct_field(table.column(first), inner)

    def _type(self, path: Path, node: Node) -> Atomic:
        item = type_at(path, self._fields)
        return item if isinstance(item, Atomic) else _refuse(node)


def _comparable(values: Any) -> Any:
    """Numbers as doubles, with null for NaN."""
    doubles = values.cast(pa.float64(), safe=False)
    return pc.if_else(pc.is_nan(doubles), pa.scalar(None, pa.float64()), doubles)


def _negated(negated: bool, condition: _Condition) -> _Condition:
    return (lambda table: pc.invert(condition(table))) if negated else condition


def _regex(pattern: Pattern) -> str:
    """A regular expression of RE2, which takes linear time."""
    return r"(?s)\A" + ".*".join(map(_regex_segment, pattern.segments)) + r"\z"


def _regex_segment(segment: Segment) -> str:
    return "".join(
        "." if index in segment.wild else rf"\x{{{ord(character):x}}}"
        for index, character in enumerate(segment.text)
    )


def _refuse(node: Node) -> NoReturn:
    raise TranslationError(f"`{render(node)}`: is no test of one column here")
