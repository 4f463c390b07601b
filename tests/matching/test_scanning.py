"""Which selectors no index can find: what is said without types agrees with the index itself."""

from __future__ import annotations

import pytest

from tidemark.matching.forms.scanning import is_scanned
from tidemark.matching.index.plans import plans_of
from tidemark.matching.selectors.parser import parse
from tidemark.message.batches.reader import EventReader
from tidemark.message.schema import Schema

SCHEMA = Schema.parse("[n: int, m: int, text: string, is_on: boolean]")
FOUND = (
    "",
    "n = 1",
    "1 < n + 0 AND n > 5",
    "n BETWEEN 1 AND 5",
    "NOT n BETWEEN 1 AND 5",
    "n IN (1, 2)",
    "text LIKE 'a%'",
    "text LIKE 'a%b_'",
    "text LIKE '%a' AND n = 1",
    "n <> 1 AND m IS NULL",
    "NOT (n <> 1 OR text LIKE '%a')",
    "is_on",
    "NOT is_on",
    "n = 1 OR text LIKE 'b%c'",
    "text LIKE '!%a' ESCAPE '!'",
)
SCANNED = (
    "text LIKE '%a'",
    "text LIKE '_a'",
    "text NOT LIKE 'a%'",
    "NOT text LIKE 'a%'",
    "n <> 1",
    "NOT n = 1",
    "n NOT IN (1, 2)",
    "n = m",
    "n + 1 = 2",
    "n BETWEEN m AND 5 OR text LIKE '%a'",
    "n = 1 OR text LIKE '%a'",
    "n <> 1 AND text LIKE '%a'",
)


@pytest.mark.parametrize("text", [*FOUND, *SCANNED])
def test_what_is_said_to_be_found_is_found_by_the_index(text: str) -> None:
    plans = plans_of(parse(text), EventReader(SCHEMA, {}))
    assert any(not plan.ranges and plan.conditions for plan in plans) == (text in SCANNED)
    assert is_scanned(parse(text)) == (text in SCANNED)
