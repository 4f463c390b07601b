"""What subscribers asked for: decided by Spark SQL where that is exact, else by the reference evaluator.

The types of a field are those that its values have in all the publishers' ledgers. If the values are of one
type, the selector is translated to Spark SQL. A field with values of several types, of none, or beyond 64
bits leaves the selector to the reference evaluator in Python. The broker's own matcher has no part in it: an
audit should not trust what it audits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.errors import TranslationError
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.selector import paths_of
from tidemark.matching.selectors.tree import HEADERS
from tidemark.matching.topics import ONE, TopicPattern
from tidemark.message import types
from tidemark.message.types import Path, Type
from tidemark.spark.audit.ledger_lines import BOOLEAN, DOUBLE, LONG, STRING, lookup, value_column
from tidemark.spark.audit.ledgers import LedgerSubscription
from tidemark.spark.sql.expression import to_spark_sql
from tidemark.spark.sql.text import column_text, string_text

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: dict[str, Type] = {
    LONG: types.LONG,
    DOUBLE: types.DOUBLE,
    STRING: types.STRING,
    BOOLEAN: types.BOOLEAN,
}


@dataclass(frozen=True, slots=True)
class SelectorGroup:
    """The subscribers that asked for the same topics and selector. `number` is its place among the groups."""

    number: int
    topic: str
    where: str
    #: the numbers of the subscribers' ledgers
    ledgers: tuple[int, ...]


def selector_groups(subscriptions: Iterable[LedgerSubscription]) -> list[SelectorGroup]:
    """The groups of subscribers: each pair of topic pattern and selector once."""
    who: dict[tuple[str, str], list[int]] = {}
    for each in subscriptions:
        who.setdefault((each.topic, each.where), []).append(each.ledger)
    return [
        SelectorGroup(number, *asked, tuple(ledgers)) for number, (asked, ledgers) in enumerate(who.items())
    ]


def paths(groups: Iterable[SelectorGroup]) -> list[Path]:
    """The fields that any of the selectors tests, in a fixed order."""
    return sorted({path for group in groups for path in paths_of(parse(group.where))})


class SeenFields:
    """The types of fields by their values in the ledgers; a `message.batches.columns.FieldTypes`."""

    #: A field that no publisher has used is NULL everywhere.
    open = True

    def __init__(self, seen: Mapping[Path, Iterable[str]]) -> None:
        self._numbers = {path: number for number, path in enumerate(seen)}
        self._kinds = {path: frozenset(kinds) for path, kinds in seen.items()}

    def type_of(self, path: Path) -> Type | None:
        """The type of all values of the field; None if they are not of one type."""
        kind = self._kind(path)
        return None if kind is None else _TYPES.get(kind)

    def paths(self) -> Sequence[Path]:
        """The fields whose types were looked for."""
        return list(self._kinds)

    def column(self, path: Path) -> str:
        """The column with the values of a field. Raises TranslationError if they are not of one type."""
        kind = self._kind(path)
        if kind is None or (len(path) == 1 and path[0] in HEADERS):
            raise TranslationError(f"{types.path_text(path)}: is not of one type in the ledgers")
        return column_text((value_column(self._numbers[path], kind),))

    def _kind(self, path: Path) -> str | None:
        kinds = self._kinds[path]
        return next(iter(kinds)) if len(kinds) == 1 else None


def translated(group: SelectorGroup, fields: SeenFields) -> str | None:
    """Spark SQL that is true for exactly the publications that the group asked for; None if there is none."""
    try:
        selector = to_spark_sql(parse(group.where), fields, column=fields.column)
    except TranslationError:
        return None
    return f"{topic_condition(group.topic)} AND {selector}"


def topic_condition(pattern: str) -> str:
    """Spark SQL that is true when the column `topic` matches the pattern."""
    parsed = TopicPattern.parse(pattern)
    if parsed.is_exact:
        return f"topic = {string_text(pattern)}"
    size = f"size(split(topic, '[.]')) {'>' if parsed.rest else '='} {len(parsed.levels)}"
    levels = (
        f"get(split(topic, '[.]'), {at}) = {string_text(level)}"
        for at, level in enumerate(parsed.levels)
        if level != ONE
    )
    return " AND ".join((size, *levels))


def decide(
    batches: Iterable[pa.RecordBatch], left: Sequence[SelectorGroup], name: str
) -> Iterator[pa.RecordBatch]:
    """The batches with a column `name`: the numbers of the groups in `left` that each event matches."""
    import pyarrow as pa

    selectors = [(group.number, TopicPattern.parse(group.topic), parse(group.where)) for group in left]
    for batch in batches:
        found: list[list[int]] = []
        for topic, text in zip(batch["topic"].to_pylist(), batch["fields"].to_pylist(), strict=True):
            fields = json.loads(text) if text is not None else None
            found.append(
                [
                    number
                    for number, pattern, tree in selectors
                    if fields is not None
                    and pattern.matches(topic)
                    and evaluate(tree, lambda path, fields=fields: lookup(fields, path)) is True  # type: ignore[misc]
                ]
            )
        yield batch.append_column(name, pa.array(found, pa.list_(pa.int32())))
