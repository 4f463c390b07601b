"""Trees to text and back."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings

from tests.matching.any_trees import trees
from tidemark.errors import SelectorError
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render, render_path
from tidemark.matching.selectors.tree import FieldRef, Literal, Negate, Node


@given(trees)
@settings(derandomize=True, deadline=None, max_examples=1000)
def test_rendered_text_parses_to_the_same_tree(tree: Node) -> None:
    assert parse(render(tree)) == tree


@given(trees)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_no_pair_of_parentheses_is_superfluous(tree: Node) -> None:
    text = render(tree)
    for opened, closed in _pairs(text):
        without = f"{text[:opened]} {text[opened + 1 : closed]} {text[closed + 1 :]}"
        with suppress(SelectorError):
            assert parse(without) != tree


def _pairs(text: str) -> list[tuple[int, int]]:
    """Where parentheses open and close, outside quotes. Those of IN and of -(-x) belong to the grammar."""
    pairs, opened, quote = [], [], ""
    for index, character in enumerate(text):
        if quote or character in "'\"":
            quote = "" if character == quote else quote or character
        elif character == "(":
            opened.append(index)
        elif character == ")":
            start = opened.pop()
            if not text[:start].endswith(("IN ", "-")):
                pairs.append((start, index))
    return pairs


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("", "TRUE"),
        ("((a)) = (((1)))", "a = 1"),
        ("(a and b) or not (c)", "a AND b OR NOT c"),
        ("a and (b or c)", "a AND (b OR c)"),
        ("(a AND b) AND c", "(a AND b) AND c"),
        ("not (a and b)", "NOT (a AND b)"),
        ("(a * b) + (c / d) > 1", "a * b + c / d > 1"),
        ("a - (b - c) = (a - b) - c", "a - (b - c) = a - b - c"),
        ("-(a) = - 5", "-a = -5"),
        ("-(5) = -(-a)", "-(5) = -(-a)"),
        ("x IN ( 'it''s' ,+1,- 2.50 )", "x IN ('it''s', 1, -2.50)"),
        ("x LIKE 'a!%' ESCAPE '!'", "x LIKE 'a!%' ESCAPE '!'"),
        ("d = X'00fF'", "d = X'00ff'"),
        ("t > timestamp '2024-01-02T03:04:05+01:00'", "t > TIMESTAMP '2024-01-02 02:04:05Z'"),
        ("t > TIMESTAMP '0099-01-02 03:04:05.5'", "t > TIMESTAMP '0099-01-02 03:04:05.500000Z'"),
        ('"and"."plain" IS NOT NULL', '"and".plain IS NOT NULL'),
    ],
)
def test_canonical_text_has_capitals_single_spaces_and_few_parentheses(written: str, canonical: str) -> None:
    assert render(parse(written)) == canonical


def test_a_negated_literal_is_not_a_negative_literal() -> None:
    assert parse("-5") == Literal(-5, "-5")
    assert parse("-(5)") == Negate(Literal(5, "5"))


def test_names_are_quoted_when_they_are_keywords_or_odd() -> None:
    assert render_path(("payload", "order", "Not")) == 'payload.order."Not"'
    assert render_path(("a b", 'say "x"', "1st", "€uro", "naïve")) == '"a b"."say ""x"""."1st".€uro.naïve'
    assert render(FieldRef(("timestamp",))) == "timestamp"
