"""Columns out of a whole batch: how many field values a second."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tidemark.lab.bench.measure import check_exact, race
from tidemark.lab.bench.messages.samples import Sample, at, samples
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.batches.columns import Column, Spans
from tidemark.message.batches.reader import EventReader
from tidemark.message.schema import Schema

FIXED_WIDTH_VALUES_A_SECOND = 20e6


def measure_columns(messages: int, rounds: int, seed: int) -> Section:
    """Time all sixteen columns of a batch of each sample, made anew from its bytes each time."""
    cases: dict[str, Callable[[], object]] = {}
    present: dict[str, int] = {}
    for sample in samples():
        random = Random(seed)
        values = [sample.message(random) for _ in range(messages)]
        cases[sample.name] = extract = _extraction(sample, values)
        present[sample.name] = _check(sample, values, extract())
    times = race(cases, rounds)
    measurements = []
    for name, timing in times.items():
        goal = Goal(">=", FIXED_WIDTH_VALUES_A_SECOND) if name.endswith("Int") else None
        metric = "field values" if goal else "field values (spans)"
        measurements.append(Measurement(name, metric, present[name] * 1e9 / timing.best, "/s", goal))
    return Section(
        f"all columns of a batch of {messages:,} messages",
        measurements,
        notes=("from the batch's bytes, checked and viewed anew each time; absent values do not count",),
    )


def _extraction(sample: Sample, values: list[Any]) -> Callable[[], list[Column]]:
    schema = Schema.parse(sample.text)
    builder = BatchBuilder()
    for value in values:
        builder.add(Shape("bench", schema.fingerprint), schema.encode(value))
    data = bytes(builder.build().data)
    reader = EventReader(schema, {schema.fingerprint: schema})

    def extract() -> list[Column]:
        columns = reader.columns(EventBatch.parse(data))
        return [columns.column(path) for path in sample.paths]

    return extract


def _check(sample: Sample, values: list[Any], columns: list[Column]) -> int:
    """Compare every value with its source; returns how many values are present."""
    present = 0
    for path, column in zip(sample.paths, columns, strict=True):
        found = _listed(column)
        for row, value in enumerate(values):
            check_exact(found[row], at(value, path), f"{sample.name}, column {'.'.join(path)}, row {row}")
        present += sum(item is not None for item in found)
    return present


def _listed(column: Column) -> list[Any]:
    """Returns the column as Python values, None where absent."""
    values: Any = column.values
    found = [item.decode() for item in values.tolist()] if isinstance(values, Spans) else values.tolist()
    if column.valid is None:
        return found
    return [item if valid else None for item, valid in zip(found, column.valid.tolist(), strict=True)]
