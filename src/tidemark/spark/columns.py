"""Where the fields of events lie among the columns that `message.foreign.arrow.types` gives them, and back.

A field's column has the field's own path, but for one case: the chosen case of a variant whose value may
itself be NULL lies in a field `value` of a struct, so that the choice shows. Headers are columns by their own
names.
"""

from __future__ import annotations

from tidemark.errors import TranslationError
from tidemark.matching.selectors.tree import HEADERS
from tidemark.message.members import Member, cases, members, split_option
from tidemark.message.types import Path, Tuple, Type, Variant, is_enumeration, path_text
from tidemark.spark.sql.text import column_text


class EventColumns:
    """The columns of events of type `root`, in which references are written out."""

    def __init__(self, root: Type) -> None:
        self._root = root

    def text(self, field: Path) -> str:
        """Spark SQL for the column of a field, for `to_spark_sql(..., column=...)`."""
        return column_text(self.column(field))

    def column(self, field: Path) -> Path:
        """The path of the column that holds `field`. Raises TranslationError if it has none."""
        if _is_header(field):
            return field
        column: Path = ()
        inside = self._root
        for depth, name in enumerate(field):
            member = _members(inside).get(name)
            if member is None:
                raise TranslationError(f"{path_text(field[: depth + 1])}: has no column of its own")
            column += (name, "value") if _is_boxed(member) else (name,)
            inside = member.type
        return column

    def field(self, column: Path) -> Path | None:
        """The field that `column` holds, or None; for `from_spark_filters(..., field=...)`."""
        if _is_header(column):
            return column
        names: Path = ()
        rest = column
        inside = self._root
        while rest:
            name, *after = rest
            member = _members(inside).get(name)
            if member is None or (_is_boxed(member) and after[:1] != ["value"]):
                return None
            names += (name,)
            rest = tuple(after[1:] if _is_boxed(member) else after)
            inside = member.type
        return names


def _members(item: Type) -> dict[str, Member]:
    """name -> member: what lies directly in the column of a type."""
    core, _ = split_option(item)
    if isinstance(core, Tuple):
        return {member.name: member for member in members(core)}
    if isinstance(core, Variant) and not is_enumeration(core):
        return {case.name: Member(case.name, case.type, chosen=True) for case in cases(core)}
    return {}


def _is_boxed(member: Member) -> bool:
    return member.chosen and split_option(member.type)[1]


def _is_header(path: Path) -> bool:
    return len(path) == 1 and path[0] in HEADERS
