"""Events as a Spark DataFrame, and conditions on them in as few jobs as will do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tidemark.message.foreign.arrow.types import arrow_type
from tidemark.message.types import Field, Path, Tuple, Type, optional

#: Expressions in one job: more, and Spark compiles one method longer than Java likes.
EXPRESSIONS_A_JOB = 60


def frame_of(spark: Any, events: Sequence[Mapping[Path, Any]], types: Mapping[Path, Type]) -> Any:
    """A DataFrame of the events, in order."""
    return spark.createDataFrame(table_of(events, types)).coalesce(1)


def table_of(events: Sequence[Mapping[Path, Any]], types: Mapping[Path, Type]) -> pa.Table:
    """An Arrow table of the events; paths of two names are fields of structs."""
    columns: dict[str, list[Any]] = {}
    schema: dict[str, Any] = {}
    for name in dict.fromkeys(path[0] for path in types):
        inner = {path[1]: item for path, item in types.items() if path[0] == name and len(path) > 1}
        if inner:
            schema[name] = arrow_type(Tuple(tuple(Field(key, optional(item)) for key, item in inner.items())))
            columns[name] = [_struct({key: event.get((name, key)) for key in inner}) for event in events]
        else:
            schema[name] = arrow_type(types[(name,)])
            columns[name] = [event.get((name,)) for event in events]
    return pa.table([pa.array(columns[name], kind) for name, kind in schema.items()], names=list(schema))


def truths(frame: Any, expressions: Sequence[str]) -> list[list[bool | None]]:
    """truths[expression][event]."""
    from pyspark.sql import functions

    answers: list[list[bool | None]] = []
    for first in range(0, len(expressions), EXPRESSIONS_A_JOB):
        some = expressions[first : first + EXPRESSIONS_A_JOB]
        rows = frame.select(*(functions.expr(text).alias(f"x{at}") for at, text in enumerate(some))).collect()
        answers += [[row[at] for row in rows] for at in range(len(some))]
    return answers


@contextmanager
def settings(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session, put back at the end."""
    before = {key: spark.conf.get(key) for key in values}
    try:
        for key, value in values.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def _struct(fields: dict[str, Any]) -> dict[str, Any] | None:
    """A struct without any field is NULL itself, as an option of a tuple is."""
    return fields if any(value is not None for value in fields.values()) else None
