"""A selector as a test of Arrow columns says just what the reference evaluator says."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from tests.spark.event_frames import table_of
from tests.spark.selector_samples import FIELDS, TYPES, Samples, SimpleFields
from tidemark.errors import TranslationError
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.message.types import Dynamic, Path
from tidemark.spark.archive_scan.row_test import row_test


def as_it_is(path: Path) -> Path:
    return path


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_the_reference_on_random_selectors_and_events(seed: int) -> None:
    samples = Samples(Random(f"arrow {seed}"))
    events = samples.events(60)
    table = table_of(events, TYPES)
    taken = 0
    for tree in [samples.leaf() for _ in range(300)] + [samples.tree() for _ in range(100)]:
        with suppress(TranslationError):
            test = row_test(tree, FIELDS, as_it_is)
            taken += 1
            for event, truth in zip(
                events, test(table.select(sorted(test.columns))).to_pylist(), strict=True
            ):
                assert truth is evaluate(tree, event.get), f"{render(tree)}\n{event}"
    assert taken > 120


@pytest.mark.parametrize(
    "selector", ["i + 1 = 2", "i = j", "n = 1.5", "s = 5", "i LIKE 'a'", "x = 5", "y = 'a'"]
)
def test_what_is_no_test_of_one_column_is_refused(selector: str) -> None:
    with pytest.raises(TranslationError):
        row_test(parse(selector), SimpleFields({**TYPES, ("x",): Dynamic()}), as_it_is)


def test_a_constant_is_as_long_as_the_table() -> None:
    table = table_of(Samples(Random(1)).events(3), TYPES)
    assert row_test(parse("TRUE OR FALSE"), FIELDS, as_it_is)(table).to_pylist() == [True] * 3
