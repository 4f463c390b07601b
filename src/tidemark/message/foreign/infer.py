"""Types from samples: the shape of a Python value, and the least type that two shapes fit.

`infer` gives every value of the table in `message.types` a type that it fits. `merge` is commutative (but
for the order of fields), associative and idempotent, so a type inferred from many samples does not
depend on their order. Types that `merge` cannot reconcile become `dynamic`; it never raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any, assert_never

from tidemark.errors import EncodeError, SchemaError
from tidemark.message.codec.flat import LEAVES_MAX
from tidemark.message.error_path import prefix_path
from tidemark.message.foreign.dataclasses import from_dataclass, to_value
from tidemark.message.foreign.references import write_out
from tidemark.message.types import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    LONG,
    NESTING_MAX,
    STRING,
    TIMESTAMP,
    Atomic,
    Dynamic,
    Field,
    Kind,
    List,
    Reference,
    Tuple,
    Type,
    Variant,
    absent_case,
    decimal,
    is_enumeration,
    name_problem,
    option_item,
    optional,
)

DECIMAL_DIGITS_MAX = 38

#: The type of a value that no sample has shown yet: it has no values and merges with every other type. It is
#: used within this module only: `_settle` replaces it by `dynamic`.
_NOTHING: Type = Variant(())
_TOO_DEEP = f"nested deeper than {NESTING_MAX} levels"

_BY_CLASS: dict[type, Type] = {bool: BOOLEAN, float: DOUBLE, str: STRING, bytes: BYTES}
_NUMBERS = (Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE)

#: class of a value that has no type -> what the error advises instead
_HINTS: tuple[tuple[type, str], ...] = (
    (complex, "use two numbers"),
    (timedelta, "use its total_seconds()"),
    (time, "use text, like its isoformat()"),
)


class _TooDeepError(EncodeError):
    """A sample has more levels than a type may have. `to_value`, which does not count them, cannot help."""


def infer(value: Any) -> Type:
    """The type of one sample; EncodeError, with the path, for a part that has no type.

    Values that `to_value` converts have the type of what they are converted to.
    """
    try:
        shape = _shape(value, 0)
    except EncodeError as refused:
        if isinstance(refused, _TooDeepError):
            raise
        # Most samples have no such value, and do not pay for the conversion.
        shape = _shape(to_value(value), 0)
    return _settle(shape, 0)


def infer_many(values: Iterable[Any]) -> Type:
    """The least type that all samples fit; `dynamic` when there are none.

    This is better than merging the `infer` of each sample, since None and [] do not show what type they could
    have held.
    """
    shapes: Iterator[Type] = (_shape(value, 0) for value in values)
    return _settle(reduce(merge, shapes, _NOTHING), 0)


def merge_shapes(shapes: Iterable[Type]) -> Type:
    """The least type that all events of these shapes fit; each shape is the `infer` of one event.

    A field that was None in one event takes the type that it has in others.
    """
    return _settle(reduce(merge, map(_unsettled, shapes), _NOTHING), 0)


class ShapeUnion:
    """What `merge_shapes` returns for shapes that come one by one, each at the cost of its own fields.

    An open topic may have thousands of shapes. Merging each of them with one large type would take time
    proportional to shapes times fields, so the fields of tuples are kept in dicts that are changed in place.
    """

    def __init__(self) -> None:
        self._root = _MergedField()
        #: Some shape is so deep that the union may be too deep. The union is then tried before it is changed.
        self._is_deep = False

    def add(self, shape: Type) -> bool:
        """Merge a shape into the union; returns whether the union is another type now.

        Raises SchemaError, and changes nothing, if the union would have too many fields or be too deep.
        """
        leaves = self._root.leaves_with(_unsettled(shape))
        if leaves > LEAVES_MAX:
            raise SchemaError(f"all shapes together would have {leaves} fields; at most {LEAVES_MAX} can be")
        # Each field counts twice, since it becomes an option when another shape does not have it.
        if self._is_deep or 2 * _levels(shape) > NESTING_MAX:
            try:
                _settle(merge(self._root.type(), _unsettled(shape)), 0)
            except EncodeError as error:
                raise SchemaError(f"all shapes together would be too deep: {error}") from None
            self._is_deep = True
        return self._root.add(_unsettled(shape))

    def type(self) -> Type:
        """The least type that all events of the shapes so far fit."""
        return _settle(self._root.type(), 0)


class _MergedField:
    """The types of one field in all shapes so far, merged."""

    def __init__(self) -> None:
        #: whether None is a value
        self.optional = False
        #: of a field that was a tuple in all shapes: its fields; else None
        self.fields: dict[str, _MergedField] | None = None
        #: the names in `fields` of those that are not optional
        self._mandatory: set[str] = set()
        #: the type without options, if `fields` is None
        self._other: Type = _NOTHING
        #: what `_leaves` counts in the type
        self.leaves = 0

    def leaves_with(self, item: Type) -> int:
        """The leaves that there would be after `add(item)`; at least as many, where types are no tuples."""
        item = _without_option(item)
        if self.fields is None or not _has_plain_fields(item):
            return self.leaves + (0 if item == self._other else _leaves(item))
        assert isinstance(item, Tuple)
        more = 0
        for field in item.fields:
            known = self.fields.get(field.name)
            more += _leaves(field.type) if known is None else known.leaves_with(field.type) - known.leaves
        return self.leaves + more

    def add(self, item: Type) -> bool:
        """Merge a type into this one; returns whether it is another one now."""
        inner = _without_option(item)
        changed = inner is not item and not self.optional
        self.optional = self.optional or inner is not item
        if inner == _NOTHING:
            return changed
        is_new = self.fields is None and self._other == _NOTHING
        if _has_plain_fields(inner) and (is_new or self.fields is not None):
            assert isinstance(inner, Tuple)
            return self._add_fields(inner) or changed or is_new
        merged = merge(self._of_value(), inner)
        changed = changed or merged != self._of_value()
        self.fields, self._other, self.leaves = None, _without_option(merged), _leaves(merged)
        self.optional = self.optional or self._other is not merged
        return changed

    def _add_fields(self, item: Tuple) -> bool:
        changed, is_first = False, self.fields is None
        if self.fields is None:
            self.fields = {}
        for name in self._mandatory.difference(field.name for field in item.fields):
            self.fields[name].optional = changed = True
            self._mandatory.remove(name)
        for field in item.fields:
            known = self.fields.get(field.name)
            if known is None:
                known = self.fields[field.name] = _MergedField()
                known.optional = not is_first
                changed = True
            before = known.leaves
            changed = known.add(field.type) or changed
            self.leaves += known.leaves - before
            if known.optional:
                self._mandatory.discard(field.name)
            elif is_first:
                self._mandatory.add(field.name)
        return changed

    def type(self) -> Type:
        """The merged type, not settled."""
        item = self._of_value()
        return or_absent(item) if self.optional else item

    def _of_value(self) -> Type:
        if self.fields is None:
            return self._other
        return Tuple(tuple(Field(name, each.type()) for name, each in self.fields.items()))


def _has_plain_fields(item: Type) -> bool:
    """Is this a tuple whose fields all have names? Others are merged to `dynamic`."""
    return isinstance(item, Tuple) and all(field.name for field in item.fields)


def _without_option(item: Type) -> Type:
    inner = option_item(item)
    while inner is not None:
        item, inner = inner, option_item(inner)
    return item


def _leaves(item: Type) -> int:
    """The fields of a type in all, its own and those inside; no fewer than its flat form has leaves."""
    match item:
        case Tuple():
            return sum(_leaves(field.type) for field in item.fields)
        case Variant():
            return sum(_leaves(case.type) for case in item.cases)
        case List():
            return _leaves(item.item)
    return 1


def _levels(item: Type) -> int:
    match item:
        case Tuple():
            return 1 + max((_levels(field.type) for field in item.fields), default=0)
        case Variant():
            return 1 + max((_levels(case.type) for case in item.cases), default=0)
        case List():
            return 1 + _levels(item.item)
    return 0


def merge(a: Type, b: Type) -> Type:
    """The least type that values of both fit; `dynamic` when no other does.

    Numbers widen: int to long to double (a long beyond 2**53 is then rounded). Decimals keep all digits after
    the point and, up to 38 in all, the digits before it. A field that one of the types lacks becomes
    optional.
    """
    if a == b or b == _NOTHING:
        return a
    if a == _NOTHING:
        return b
    some_a, some_b = option_item(a), option_item(b)
    if some_a is not None or some_b is not None:
        return or_absent(merge(a if some_a is None else some_a, b if some_b is None else some_b))
    match a, b:
        case Atomic(), Atomic():
            return _merge_atomic(a, b)
        case Tuple(), Tuple():
            return _merge_tuples(a, b)
        case List(), List():
            return List(merge(a.item, b.item))
        case Variant(), Variant():
            return _merge_variants(a, b)
    return Dynamic()


def _merge_atomic(a: Atomic, b: Atomic) -> Type:
    if a.kind in _NUMBERS and b.kind in _NUMBERS:
        return LONG if {a.kind, b.kind} == {Kind.INT, Kind.LONG} else DOUBLE
    if a.kind is Kind.DECIMAL and b.kind is Kind.DECIMAL:
        scale = max(a.scale, b.scale)
        whole = max(a.precision - a.scale, b.precision - b.scale)
        return decimal(min(whole + scale, DECIMAL_DIGITS_MAX), scale)
    return Dynamic()


def _merge_tuples(a: Tuple, b: Tuple) -> Type:
    left = {field.name: field.type for field in a.fields}
    right = {field.name: field.type for field in b.fields}
    if "" in left or "" in right:
        return Dynamic()
    return Tuple(tuple(Field(name, _merge_field(left.get(name), right.get(name))) for name in left | right))


def _merge_field(a: Type | None, b: Type | None) -> Type:
    if a is not None and b is not None:
        return merge(a, b)
    present = a if a is not None else b
    assert present is not None
    return or_absent(present)


def _merge_variants(a: Variant, b: Variant) -> Type:
    left = {case.name: case.type for case in a.cases}
    right = {case.name: case.type for case in b.cases}
    # The value of an enumeration is a string, that of another variant a dict: no variant takes both.
    if "" in left or "" in right or is_enumeration(a) != is_enumeration(b):
        return Dynamic()
    both = {name: merge(left[name], right[name]) for name in left if name in right}
    return Variant(tuple(Field(name, item) for name, item in (left | right | both).items()))


def or_absent(item: Type) -> Type:
    """`item` if None is a value of it, else the option of `item`."""
    if isinstance(item, Variant) and absent_case(item) is not None:
        return item
    return optional(item)


def _shape(value: Any, depth: int) -> Type:
    found = _BY_CLASS.get(type(value))
    if found is not None:
        return found
    match value:
        case None:
            return optional(_NOTHING)
        case int():
            if not -(2**63) <= value < 2**63:
                raise EncodeError("an integer has at most 64 bits; use decimal.Decimal or a string")
            return LONG
        case float():
            return DOUBLE
        case str():
            return STRING
        case bytes():
            return BYTES
        case Decimal():
            return _decimal_shape(value)
        case datetime():
            if value.utcoffset() is None:
                raise EncodeError("a datetime needs a time zone: use datetime.now(timezone.utc)")
            return TIMESTAMP
    if depth >= NESTING_MAX:
        raise _TooDeepError(_TOO_DEEP)
    match value:
        case dict():
            return _dict_shape(value, depth)
        case list():
            return _list_shape(value, depth)
    if is_dataclass(value) and not isinstance(value, type):
        return _dataclass_shape(type(value))
    raise EncodeError(_no_type(value))


def _decimal_shape(value: Decimal) -> Type:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise EncodeError("a decimal is a finite number; use float for infinities and NaN")
    scale = max(-exponent, 0)
    whole = max(len(digits) + exponent, 0) if value else 0
    if whole + scale > DECIMAL_DIGITS_MAX:
        raise EncodeError(f"a decimal has at most {DECIMAL_DIGITS_MAX} digits")
    return decimal(DECIMAL_DIGITS_MAX, scale)


def _dict_shape(value: dict[Any, Any], depth: int) -> Type:
    fields: list[Field] = []
    for key, item in value.items():
        problem = name_problem(key)
        if problem:
            raise EncodeError(f"{problem} (the key {key!r})")
        try:
            fields.append(Field(key, _shape(item, depth + 1)))
        except EncodeError as error:
            raise prefix_path(key, error) from None
    return Tuple(tuple(fields))


def _list_shape(value: list[Any], depth: int) -> Type:
    item: Type = _NOTHING
    for index, each in enumerate(value):
        try:
            item = merge(item, _shape(each, depth + 1))
        except EncodeError as error:
            raise prefix_path(index, error) from None
    return List(item)


def _dataclass_shape(cls: type) -> Type:
    try:
        return write_out(*from_dataclass(cls))
    except SchemaError as error:
        raise EncodeError(str(error)) from None


def _no_type(value: object) -> str:
    hint = next((f"; {hint}" for kind, hint in _HINTS if isinstance(value, kind)), "")
    return f"{type(value).__name__} has no type in a message{hint}"


def _settle(item: Type, depth: int) -> Type:
    """The type without `_NOTHING` and without lists of items that hold nothing; EncodeError if too deep."""
    if depth > NESTING_MAX:
        raise EncodeError(_TOO_DEEP + ", what may be missing counting as one")
    match item:
        case Tuple():
            return Tuple(tuple(_settle_field(field, depth) for field in item.fields))
        case List():
            return List(_settle(Dynamic() if _is_hollow(item.item) else item.item, depth + 1))
        case Variant():
            cases = tuple(_settle_field(case, depth) for case in item.cases)
            return Variant(cases) if cases else Dynamic()
        case Atomic() | Dynamic() | Reference():
            return item
    assert_never(item)


def _settle_field(field: Field, depth: int) -> Field:
    try:
        return Field(field.name, _settle(field.type, depth + 1))
    except EncodeError as error:
        raise (prefix_path(field.name, error) if field.name else error) from None


def _unsettled(item: Type) -> Type:
    """The inverse of `_settle`, as far as it is known.

    Outside lists, `dynamic?` can only have come from None; in a list it may have come from a conflict.
    """
    if item == optional(Dynamic()):
        return optional(_NOTHING)
    if isinstance(item, Tuple):
        return Tuple(tuple(Field(field.name, _unsettled(field.type)) for field in item.fields))
    return item


def _is_hollow(item: Type) -> bool:
    """Is this a tuple without any value in it? A list of such tuples would have nothing to store."""
    return isinstance(item, Tuple) and all(_is_hollow(field.type) for field in item.fields)
