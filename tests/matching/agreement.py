"""Do the vectorised conditions agree with the reference, on columns as bad as real ones may be?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.matching.dict_columns import DictColumns
from tests.matching.selector_strategies import Event, SimpleFields
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.tree import Node
from tidemark.matching.vectors.vector import compile_condition
from tidemark.message.batches.columns import Column, Decimals, Spans
from tidemark.message.types import Path, Type


class ScatteredColumns(DictColumns):
    """DictColumns that promise no more than a Column does: strings far apart, garbage where NULL."""

    def __init__(
        self,
        rows: Sequence[Mapping[Any, Any]],
        types: Mapping[Path, Type],
        junk: bytes = b"ab\0z",
        seed: int = 0,
    ) -> None:
        super().__init__(rows, types)
        self.junk = junk
        self.seed = seed

    def column(self, path: Path) -> Column:
        plain = super().column(path)
        values: Any = plain.values
        if isinstance(values, Spans):
            return Column(plain.type, self._scattered(values), plain.valid)
        if plain.valid is None or isinstance(values, list):
            return plain
        return Column(plain.type, _with_garbage(values, ~plain.valid), plain.valid)

    def _scattered(self, spans: Spans) -> Spans:
        """The rows in another order, with junk before, between and (if the seed is odd) behind them."""
        parts = spans.tolist()
        body = bytearray()
        starts = np.zeros(len(parts), np.int64)
        for row in np.random.default_rng(self.seed).permutation(len(parts)).tolist():
            body += self.junk
            starts[row] = len(body)
            body += parts[row]
        body += self.junk * (self.seed % 2)
        return Spans(np.frombuffer(bytes(body), np.uint8), starts, starts + spans.lengths)


def _with_garbage(values: Any, absent: Any) -> Any:
    if isinstance(values, Decimals):
        low, high = values.low.copy(), values.high.copy()
        low[absent], high[absent] = 2**64 - 1, -(2**63)
        return Decimals(low, high, values.scale)
    changed = values.copy()
    changed[absent] = {"b": True, "i": -(2**63), "f": np.nan}[values.dtype.kind]
    return changed


def assert_agrees(tree: Node, rows: Sequence[Event], types: dict[Path, Type], junk: bytes = b"ab\0z") -> None:
    """The compiled tree says of every row what the reference says, however the columns lie."""
    condition = compile_condition(tree, SimpleFields(types))
    expected = [evaluate(tree, row.get) for row in rows]
    for columns in (DictColumns(rows, types), ScatteredColumns(rows, types, junk, seed=len(rows))):
        is_true, is_false = condition.truth(columns)
        assert is_true.dtype == is_false.dtype == np.bool_
        assert [
            True if t else False if f else None for t, f in zip(is_true, is_false, strict=True)
        ] == expected
        assert not (is_true & is_false).any()
        assert condition.matched(columns).tolist() == is_true.tolist()


def truths(text: str, item: Type, values: Sequence[Any]) -> list[bool | None]:
    """What `text` says of the field x for each value, checked against the reference."""
    rows: list[Event] = [{("x",): value} for value in values]
    assert_agrees(parse(text), rows, {("x",): item})
    return [evaluate(parse(text), row.get) for row in rows]
