"""Archive tables in the language of Spark SQL: the fields of events, and which rows are wanted.

A field lies in one column for events of one schema and perhaps in another column for events of the next
(`spark.archive.layout`); where they differ, the expression for the field chooses by the schema of each row.
Conditions test the columns themselves, in the types that the topic has for its fields. Imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from tidemark.errors import SelectorError, TranslationError
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.selectors.tree import HEADERS
from tidemark.message.foreign.arrow.types import arrow_type
from tidemark.message.registry import TopicSchemas
from tidemark.message.schema import Schema
from tidemark.message.types import Path, Type
from tidemark.spark.archive.layout import TIME, ArchiveLayout, loose
from tidemark.spark.archive_scan.plain_columns import is_json, member_types
from tidemark.spark.columns import EventColumns
from tidemark.spark.sql.expression import plain_conjuncts, to_spark_sql
from tidemark.spark.sql.text import column_text, long_text, string_text


def field_text(layout: ArchiveLayout, versions: Iterable[Schema], name: str, wanted: Type) -> str:
    """Spark SQL for the field `name` of events of these schemas, as the type that a reader wants."""
    ways: dict[str, list[int]] = {}
    for schema in versions:
        have = member_types(schema).get(name)
        column = None if have is None else layout.column_of(name, loose(arrow_type(have)))
        if have is not None and column is not None:
            text = _converted(column_text((column,)), have, wanted)
            ways.setdefault(text, []).append(schema.fingerprint)
    if not ways:
        return f"CAST(NULL AS {type_text(loose(arrow_type(wanted)))})"
    if len(ways) == 1:
        return next(iter(ways))
    cases = (f"WHEN `_shape` IN ({_shapes(shapes)}) THEN {text}" for text, shapes in ways.items())
    return f"CASE {' '.join(cases)} END"


#: Headers of selectors that are no columns of the archive, as Spark SQL of its columns.
_HEADER_TEXTS = {
    # A string, NULL for an event without a key or with one that is no UTF-8.
    "_key": "(CASE WHEN length(`_key`) > 0 THEN try_validate_utf8(CAST(`_key` AS STRING)) END)",
}


def time_text(*, is_timed: bool) -> str:
    """Spark SQL for the time of a row.

    `is_timed` says that every row has it in a column, on which Parquet has bounds.
    """
    return column_text((TIME.name,)) if is_timed else "timestamp_micros(`_tick`)"


def condition_text(
    layout: ArchiveLayout, topic: TopicSchemas, selector: str, *, is_timed: bool = False
) -> str | None:
    """Spark SQL that is true for the rows of the topic whose events match; None if no event ever does.

    `is_timed` is that of `time_text`.
    """
    try:
        tree = Selector.parse(selector, topic.reader, topic.topic).tree
    except SelectorError:
        # The selector fits some other topic of the pattern: `make_topic_columns` has checked that.
        return None
    columns = EventColumns(topic.reader.schema.flat.root.type)
    types = member_types(topic.reader.schema)

    def column(path: Path) -> str:
        if path == ("_time",):
            return time_text(is_timed=is_timed)
        if len(path) == 1 and path[0] in HEADERS:
            return _HEADER_TEXTS.get(path[0], column_text(path))
        first, *rest = columns.column(path)
        text = field_text(layout, topic.versions, first, types[first])
        return f"({text}).{column_text(tuple(rest))}" if rest else f"({text})"

    if not selector:
        return "true"
    exact = to_spark_sql(tree, topic.reader, column=column)
    plain = plain_conjuncts(tree, topic.reader, column=column)
    return f"({' AND '.join([exact, *plain])})" if plain else exact


def matching_texts(
    layout: ArchiveLayout, topics: Sequence[TopicSchemas], selector: str, *, is_timed: bool = False
) -> tuple[dict[str, list[str]], list[TopicSchemas]]:
    """condition -> the topics whose rows it tests, and the topics for which the selector has no Spark SQL.

    A topic of which no event can ever match is in neither.
    """
    groups: dict[str, list[str]] = {}
    untranslated: list[TopicSchemas] = []
    for topic in topics:
        try:
            text = condition_text(layout, topic, selector, is_timed=is_timed)
        except TranslationError:
            untranslated.append(topic)
            continue
        if text is not None:
            groups.setdefault(text, []).append(topic.topic)
    return groups, untranslated


def of_topics_text(texts: Mapping[str, Sequence[str]]) -> str:
    """One condition for the rows of all topics; `texts` has a condition for each group of topics."""
    parts = [
        f"(`_topic` IN ({', '.join(map(string_text, names))}) AND {text})" for text, names in texts.items()
    ]
    return f"({' OR '.join(parts)})"


def type_text(item: pa.DataType) -> str:
    """A type as Spark SQL writes it."""
    if pa.types.is_struct(item):
        fields = (f"{column_text((field.name,))}: {type_text(field.type)}" for field in item)
        return f"STRUCT<{', '.join(fields)}>"
    if pa.types.is_list(item):
        return f"ARRAY<{type_text(item.value_type)}>"
    if pa.types.is_decimal(item):
        return f"DECIMAL({item.precision}, {item.scale})"
    return _NAMES[item]


_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}


def _converted(text: str, have: Type, wanted: Type) -> str:
    if is_json(wanted) and not is_json(have):
        return _json_text(text)
    return _cast(text, loose(arrow_type(have)), loose(arrow_type(wanted)), 0)


def _cast(text: str, have: pa.DataType, wanted: pa.DataType, depth: int) -> str:
    """A value of the wanted type, fields by their names: Spark's own casts go by position."""
    if have == wanted:
        return text
    if pa.types.is_struct(have) and pa.types.is_struct(wanted):
        parts = []
        for field in wanted:
            at = have.get_field_index(field.name)
            inner = f"{text}.{column_text((field.name,))}"
            value = (
                f"CAST(NULL AS {type_text(field.type)})"
                if at < 0
                else _cast(inner, have.field(at).type, field.type, depth)
            )
            parts.append(f"{string_text(field.name)}, {value}")
        return f"CASE WHEN {text} IS NOT NULL THEN named_struct({', '.join(parts)}) END"
    if pa.types.is_list(have) and pa.types.is_list(wanted):
        item = f"x{depth}"
        return f"transform({text}, {item} -> {_cast(item, have.value_type, wanted.value_type, depth + 1)})"
    if pa.types.is_string(wanted):
        return _json_text(text)
    return f"CAST({text} AS {type_text(wanted)})"


def _json_text(text: str) -> str:
    """A value as JSON, the common form of unlike types.

    Spark writes JSON for structs only, so one is put around.
    """
    whole = f"to_json(named_struct('v', {text}))"
    return f"CASE WHEN {text} IS NOT NULL THEN substring({whole}, 6, length({whole}) - 6) END"


def _shapes(fingerprints: Sequence[int]) -> str:
    """Fingerprints as the archive stores them: signed."""
    return ", ".join(long_text(each - 2**64 if each >= 2**63 else each) for each in fingerprints)
