"""Reasons: the truth of every condition of a selector, and the values that it looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemark.matching.reasons import Reason, reason_for
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.parser import parse

EVENT = {"price": 10.0, "symbol": "ACME"}


def reason(text: str) -> Reason:
    return reason_for(parse(text), lambda path: EVENT.get(path[0]))


def test_each_condition_has_its_truth_and_its_values() -> None:
    found = reason("price > 5 AND (symbol = 'X' OR NOT qty < 3)")
    assert (found.joint, found.truth) == ("AND", None)
    price, either = found.parts
    assert (price.truth, price.values) == (True, {"price": 10.0})
    symbol, opposite = either.parts
    assert (symbol.truth, symbol.values) == (False, {"symbol": "ACME"})
    assert (opposite.joint, opposite.truth) == ("NOT", None)
    assert opposite.parts[0].values == {"qty": None}


def test_a_condition_over_two_fields_names_both() -> None:
    assert reason("price * 2 > qty").values == {"price": 10.0, "qty": None}


@given(
    st.sampled_from(
        ["price > 5", "NOT symbol LIKE 'A%'", "qty IS NULL OR price IN (1, 2)", "price BETWEEN 1 AND 20"]
    )
)
def test_the_truth_of_the_whole_is_that_of_the_evaluator(text: str) -> None:
    assert reason(text).truth == evaluate(parse(text), lambda path: EVENT.get(path[0]))
