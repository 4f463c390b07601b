"""Clauses turn back into selectors that mean the same, as trees and as text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.matching.selector_strategies import FIELDS, trees
from tidemark.matching.forms.clause_tree import clauses_to_tree
from tidemark.matching.forms.clauses import EVERYTHING
from tidemark.matching.forms.normal import normalise
from tidemark.matching.selectors.check import check
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.tree import FALSE, TRUE, Node


@settings(derandomize=True, deadline=None, max_examples=80)
@given(trees(max_leaves=6))
def test_the_tree_of_a_normal_form_has_that_normal_form(tree: Node) -> None:
    clauses = normalise(tree, FIELDS)
    if clauses is None:
        return
    back = clauses_to_tree(clauses, FIELDS)
    assert normalise(back, FIELDS) == clauses
    check(back, FIELDS)
    for clause in clauses:  # all of them together may be longer than a selector can be
        part = clauses_to_tree((clause,), FIELDS)
        assert parse(render(part)) == part


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("s LIKE 'ab%'", "s LIKE 'ab%'"),
        ("s LIKE 'a!%!_\\%' ESCAPE '!'", "s LIKE 'a\\%\\_\\\\%' ESCAPE '\\'"),
        ("s >= 'a' AND s < 'c'", "s >= 'a' AND s < 'c'"),
        ("i > 3 AND i < 9", "i BETWEEN 4 AND 8"),
        ("d > 3 AND d <= 9", "d > 3.0 AND d <= 9.0"),
        ("i = 2 OR i = 1", "i IN (1, 2)"),
        ("NOT b", "NOT b"),
        ("m > 12345678901234567890.0", "m > 1.234567890123456789E+19"),
        ("m = 2.50 OR m = 100", "m IN (2.5, 100)"),
        ("m >= 1234567890123456789.5", "m >= 1234567890123456789.5"),
        ("t > TIMESTAMP '2024-02-29'", "t >= TIMESTAMP '2024-02-29 00:00:00.000001Z'"),
        ("y = X'00ff'", "y = X'00ff'"),
        ("i IS NULL AND s IS NOT NULL", "i IS NULL AND s IS NOT NULL"),
        ("i + j > 5 AND i = 3", "i = 3 AND i + j > 5"),
    ],
)
def test_clauses_are_written_as_a_person_would(text: str, written: str) -> None:
    clauses = normalise(parse(text), FIELDS)
    assert clauses is not None
    assert render(clauses_to_tree(clauses, FIELDS)) == written


def test_nothing_is_false_and_everything_is_true() -> None:
    assert clauses_to_tree(()) == FALSE
    assert clauses_to_tree((EVERYTHING,)) == TRUE
