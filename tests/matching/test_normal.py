"""The normal form means exactly what the selector means, and is as small as promised."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.selector_strategies import FIELDS, SimpleFields, clauses_match, events, matches, trees
from tidemark.lab.bench.steps.counting import CallCounter
from tidemark.matching.forms.clauses import CLAUSES_MAX, EVERYTHING, Absent, Clause, Interval, OneOf, Present
from tidemark.matching.forms.normal import normalise
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.tree import Node
from tidemark.message.types import LONG

NOON = 1_709_208_000_000_000


def normal(text: str) -> tuple[Clause, ...] | None:
    return normalise(parse(text), FIELDS)


def only(text: str) -> Any:
    """The one constraint of the one clause of a selector on one field."""
    clauses = normal(text)
    assert clauses is not None
    assert len(clauses) == 1
    assert not clauses[0].residuals
    ((_, constraint),) = clauses[0].constraints
    return constraint


def residuals(text: str) -> list[str]:
    """The residuals of the one clause, which has nothing else."""
    clauses = normal(text)
    assert clauses is not None
    assert len(clauses) == 1
    assert not clauses[0].constraints
    return [render(residual) for residual in clauses[0].residuals]


def one_of(*values: Any) -> OneOf:
    return OneOf(frozenset(values))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(trees(), st.lists(events(), min_size=1, max_size=8))
def test_the_normal_form_means_what_the_selector_means(tree: Node, some: list[Any]) -> None:
    clauses = normalise(tree, FIELDS)
    if clauses is None:
        return
    assert len(clauses) <= CLAUSES_MAX
    for event in some:
        assert clauses_match(clauses, event) == matches(tree, event)


@pytest.mark.parametrize(
    ("text", "constraint"),
    [
        ("i = 5", one_of(5)),
        ("5 = i", one_of(5)),
        ("i > 5", Interval(6, None)),
        ("5 > i", Interval(None, 4)),
        ("i > 4 AND i < 6", one_of(5)),
        ("i BETWEEN 1 AND 2 + 3", Interval(1, 5)),
        ("NOT i BETWEEN 1 AND 5 AND i > 3", Interval(6, None)),
        ("NOT (i <= 5)", Interval(6, None)),
        ("i IN (3, 1, 3)", one_of(1, 3)),
        ("i = 1 OR i = 2 OR i IN (7, 8)", one_of(1, 2, 7, 8)),
        ("i IN (1, 2, 3) AND i <> 2", one_of(1, 3)),
        ("i IN (1, 2, 3) AND i * 2 > 3", one_of(2, 3)),
        ("i > 5 AND i <> 5 AND i NOT IN (1, 2)", Interval(6, None)),
        ("i < 1E30", Present()),
        ("i < 3000000000", Present()),
        ("i > -2147483649 AND i <= 2147483647", Present()),
        ("l > 9007199254740992.0", Interval(2**53 + 2, None)),
        ("l = 9007199254740993.0", Interval(2**53, 2**53 + 1)),
        ("l = 9007199254740993", one_of(2**53 + 1)),
        ("l <= 9.3E18", Present()),
        ("l >= -9223372036854775808", Present()),
        ("_priority > 4.5", Interval(5, None)),
        ("d = -0.0", one_of(0.0)),
        ("d < 9007199254740993", Interval(None, float(2**53), high_open=True)),
        ("f >= 0.1", Interval(0.1, None)),
        ("m = 0.100000000000000000001", one_of(Decimal("0.100000000000000000001"))),
        ("m > 1.50", Interval(Decimal("1.5"), None, low_open=True)),
        ("m IN (1.0, 1, 100E-2)", one_of(Decimal(1))),
        ("s = 'x' OR s LIKE 'y'", one_of("x", "y")),
        ("s LIKE 'ab%'", Interval("ab", "ac", high_open=True)),
        ("s LIKE '%'", Present()),
        ("s LIKE 'a\ud7ff%'", Interval("a\ud7ff", "a\ue000", high_open=True)),
        ("s LIKE 'a\U0010ffff%'", Interval("a\U0010ffff", "b", high_open=True)),
        ("s LIKE '\U0010ffff%'", Interval("\U0010ffff", None)),
        ("s LIKE 'a!%%' ESCAPE '!'", Interval("a%", "a&", high_open=True)),
        ("s >= ''", Present()),
        ("s <= ''", one_of("")),
        ("s IN ('ab', 'cd', 'cb') AND s LIKE '%b'", one_of("ab", "cb")),
        ("y > X'00'", Interval(b"\x00", None, low_open=True)),
        ("b", one_of(True)),
        ("NOT b", one_of(False)),
        ("b <> TRUE", one_of(False)),
        ("b = TRUE OR NOT b", Present()),
        ("t >= TIMESTAMP '2024-02-29 12:00:00'", Interval(NOON, None)),
        ("t > TIMESTAMP '2024-02-29 17:30:00+05:30'", Interval(NOON + 1, None)),
        ("t = TIMESTAMP '2024-02-29 12:00:00.000001'", one_of(NOON + 1)),
        ("t <= TIMESTAMP '9999-12-31 23:59:59.999999'", Present()),
        ("q IS NULL", Absent()),
        ("NOT z IS NULL", Present()),
        ("z.nothing.known IS NOT NULL", Present()),
        ("i > 5 OR i > 3", Interval(4, None)),
        ("i = 1 AND 'a' LIKE 'a%' AND 1 < 2", one_of(1)),
        ("i = 1 OR 1 / 0 = 1 OR NOT 1 / 0 = 1", one_of(1)),
    ],
)  # fmt: skip
def test_a_condition_on_one_field_is_the_exact_set_of_its_values(text: str, constraint: Any) -> None:
    assert only(text) == constraint


@pytest.mark.parametrize(
    "text",
    [
        "FALSE",
        "i > 1E30",
        "i = 2.5",
        "i > 5 AND i < 5",
        "i > 2147483647",
        "i IS NULL AND i = 5",
        "i IS NULL AND i <> 5",
        "i = 5 AND i <> 5",
        "s < ''",
        "s = 'a' AND s LIKE 'b%'",
        "b AND NOT b",
        "t > TIMESTAMP '9999-12-31 23:59:59.999999'",
        "i > 1 / 0",
        "d > 1E308 * 10 - 1E308 * 10",
        "i IN (1.5, 3000000000)",
    ],
)
def test_what_can_never_be_true_has_no_clauses(text: str) -> None:
    assert normal(text) == ()


@pytest.mark.parametrize("text", ["", "TRUE", "1 = 1", "i = 5 OR NOT FALSE", "NOT 'a' LIKE 'b%'"])
def test_what_is_always_true_is_everything(text: str) -> None:
    assert normal(text) == (EVERYTHING,)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("i <> 5", ["i <> 5"]),
        ("NOT 5 = i", ["i <> 5"]),
        ("NOT i IN (1, 2)", ["i NOT IN (1, 2)"]),
        ("NOT s LIKE 'a%'", ["s NOT LIKE 'a%'"]),
        ("s LIKE '%a' AND s LIKE '_a'", ["s LIKE '%a'", "s LIKE '_a'"]),
        ("5 < i + j", ["i + j > 5"]),
        ("NOT i < j", ["i >= j"]),
        ("NOT i + 1 BETWEEN 1 AND 5", ["i + 1 NOT BETWEEN 1 AND 5"]),
        ("z = 5 AND z > 3", ["z = 5", "z > 3"]),
        ("NOT z", ["NOT z"]),
        ("m > 1.5 + 1", ["m > 1.5 + 1"]),
        ("d < 1E308 * 10", ["d < 1E308 * 10"]),
    ],
)
def test_what_is_no_set_of_one_fields_values_stays_as_it_is(text: str, kept: list[str]) -> None:
    assert residuals(text) == kept


def test_a_pattern_with_a_prefix_is_an_interval_and_itself() -> None:
    found, prefixed = normal("s LIKE 'ab%c_'"), normal("s LIKE 'ab%'")
    assert found is not None
    assert prefixed is not None
    assert found[0].constraints == prefixed[0].constraints
    assert [render(each) for each in found[0].residuals] == ["s LIKE 'ab%c_'"]


def test_clauses_that_differ_in_one_fields_values_are_united() -> None:
    clauses = normal("i = 1 AND s = 'a' OR i = 2 AND s = 'a' OR i = 1 AND s = 'b' OR i = 2 AND s = 'b'")
    assert clauses == (Clause(((("i",), one_of(1, 2)), (("s",), one_of("a", "b")))),)


def test_clauses_with_different_residuals_stay_apart() -> None:
    clauses = normal("i = 1 AND d <> e OR i = 2")
    assert clauses is not None
    assert [len(clause.residuals) for clause in clauses] == [1, 0]


def test_a_negated_between_can_be_true_beside_a_null_end() -> None:
    clauses = normal("j IS NULL AND i + 1 NOT BETWEEN j AND 5")
    assert clauses is not None
    assert clauses_match(clauses, {("i",): 7})
    assert normal("j IS NULL AND i + 1 BETWEEN j AND 5") == ()


def test_a_constant_zero_has_no_sign() -> None:
    (zero,) = only("d = -0.0").values
    assert math.copysign(1, zero) == 1


def test_a_clause_that_another_covers_is_dropped() -> None:
    assert normal("i > 3 OR i > 5 AND s = 'a' OR i IN (7, 8)") == normal("i > 3")


def test_the_order_of_operands_does_not_matter() -> None:
    assert normal("s = 'x' AND j + i > 1 OR d > 1 OR i = 3") == normal(
        "i = 3 OR d > 1 OR j + i > 1 AND 'x' = s"
    )


def test_a_half_constant_between_gives_what_it_can() -> None:
    assert normal("i BETWEEN 3 AND j") == normal("i >= 3 AND i <= j")


def test_too_many_clauses_have_no_normal_form_and_cost_little() -> None:
    names = [f"v{index}" for index in range(36)]
    fields = SimpleFields({(name,): LONG for name in names})
    pairs = zip(names[::2], names[1::2], strict=True)
    text = " AND ".join(f"({a} = 1 OR {b} = 2)" for a, b in pairs)
    assert normalise(parse(text), fields) is None
    assert normalise(parse(f"NOT ({text})"), fields) is not None
    assert normalise(parse(f"v0 = 0 AND v0 = 1 AND {text.partition(' AND ')[2]}"), fields) == ()


def test_many_values_of_one_field_are_one_clause() -> None:
    text = " OR ".join(f"i = {value}" for value in range(48))
    assert only(text) == one_of(*range(48))


def test_microseconds_survive_far_from_the_epoch() -> None:
    late = datetime(9999, 12, 31, 23, 59, 59, 999_998, tzinfo=UTC)
    exact = (late - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert only("t = TIMESTAMP '9999-12-31 23:59:59.999998'") == one_of(exact)


def test_what_has_no_normal_form_is_given_up_soon() -> None:
    for count in (10, 15, 20):
        tree = parse(" AND ".join(f"(s LIKE '%{n}%' OR i <> {n})" for n in range(count)))

        def run(tree: Node = tree) -> int:
            assert normalise(tree, FIELDS) is None
            return 1

        counter = CallCounter()
        counts = counter.counts(counter.run(run), 1)
        assert counts.python_calls + counts.c_calls < 200_000
