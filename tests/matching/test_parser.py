"""The grammar: what is read, what is refused, where and with which advice."""

from __future__ import annotations

import inspect
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import SelectorError, SelectorLimitError, SelectorSyntaxError, SelectorTypeError
from tidemark.matching.selectors import parser
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.tree import (
    FALSE,
    TRUE,
    And,
    Arithmetic,
    Between,
    Compare,
    FieldRef,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
)


def ref(*path: str) -> FieldRef:
    return FieldRef(path)


def one(value: int) -> Literal:
    return Literal(value, str(value))


def like(pattern: str, escape: str = "", negated: bool = False) -> Like:
    return Like(ref("phone"), pattern, escape, negated)


A, B, C = ref("a"), ref("b"), ref("c")

#: The examples of the JMS specification, chapter "Message Selector Syntax".
JMS = [
    (
        "JMSType = 'car' AND color = 'blue' AND weight > 2500",
        And(
            (
                Compare("=", ref("JMSType"), Literal("car")),
                Compare("=", ref("color"), Literal("blue")),
                Compare(">", ref("weight"), one(2500)),
            )
        ),
    ),
    ("age BETWEEN 15 AND 19", Between(ref("age"), one(15), one(19))),
    (
        "age >= 15 AND age <= 19",
        And((Compare(">=", ref("age"), one(15)), Compare("<=", ref("age"), one(19)))),
    ),
    ("age NOT BETWEEN 15 AND 19", Between(ref("age"), one(15), one(19), negated=True)),
    (
        "age < 15 OR age > 19",
        Or((Compare("<", ref("age"), one(15)), Compare(">", ref("age"), one(19)))),
    ),
    (
        "Country IN (' UK', 'US', 'France')",
        In(ref("Country"), (Literal(" UK"), Literal("US"), Literal("France"))),
    ),
    (
        "Country NOT IN (' UK', 'US', 'France')",
        In(ref("Country"), (Literal(" UK"), Literal("US"), Literal("France")), negated=True),
    ),
    ("phone LIKE '12%3'", like("12%3")),
    ("phone LIKE 'l_se'", like("l_se")),
    ("phone LIKE '\\_%' ESCAPE '\\'", like("\\_%", "\\")),
    ("phone NOT LIKE '12%3'", like("12%3", negated=True)),
    ("prop_name IS NULL", IsNull(ref("prop_name"))),
    ("prop_name IS NOT NULL", IsNull(ref("prop_name"), negated=True)),
]


@pytest.mark.parametrize(("text", "tree"), JMS)
def test_examples_of_the_jms_specification_parse(text: str, tree: object) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", TRUE),
        (" \t\r\n\f", TRUE),
        ("true", TRUE),
        ("False", FALSE),
        ("a", A),
        ("a OR b AND c", Or((A, And((B, C))))),
        ("a AND b AND c", And((A, B, C))),
        ("a AND (b AND c)", And((A, And((B, C))))),
        ("NOT a AND b", And((Not(A), B))),
        ("NOT NOT a", Not(Not(A))),
        ("NOT a = b", Not(Compare("=", A, B))),
        ("a = b OR c", Or((Compare("=", A, B), C))),
        ("a<b", Compare("<", A, B)),
        ("a<>b", Compare("<>", A, B)),
        ("a + b * c = -a", Compare("=", Arithmetic("+", A, Arithmetic("*", B, C)), Negate(A))),
        ("a - b - c > 1", Compare(">", Arithmetic("-", Arithmetic("-", A, B), C), one(1))),
        ("a -5 = 1", Compare("=", Arithmetic("-", A, one(5)), one(1))),
        ("a - -5 = +1", Compare("=", Arithmetic("-", A, one(-5)), one(1))),
        ("+a = +(-a)", Compare("=", A, Negate(A))),
        ("- -5 = a", Compare("=", Negate(one(-5)), A)),
        ("a BETWEEN b+1 AND c AND a", And((Between(A, Arithmetic("+", B, one(1)), C), A))),
        ("a IN (-5, + 5, -.5)", In(A, (one(-5), one(5), Literal(-0.5, "-.5")))),
        ("a IN (TRUE, X'00')", In(A, (TRUE, Literal(b"\0")))),
        ("a = 'it''s'", Compare("=", A, Literal("it's"))),
        ("a = ''", Compare("=", A, Literal(""))),
        ("NOT a NOT IN (1)", Not(In(A, (one(1),), negated=True))),
        ("$a_1.Größe.ß = 1", Compare("=", ref("$a_1", "Größe", "ß"), one(1))),
        ('payload."odd name".x', ref("payload", "odd name", "x")),
        ('"a""b"."c.d"', ref('a"b', "c.d")),
        ("payload.in.like", ref("payload", "in", "like")),
        ('"NOT"', ref("NOT")),
        ("timestamp", ref("timestamp")),
        ("escaped LIKE'%'", Like(ref("escaped"), "%")),
        ("\u0131s", ref("\u0131s")),
    ],
)
def test_the_grammar(text: str, tree: object) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("7.", 7.0),
        (".5", 0.5),
        ("7.5", 7.5),
        ("1E3", 1000.0),
        ("7e-2", 0.07),
        ("7.E+2", 700.0),
        ("9223372036854775808.", 2.0**63),
        ("0E0", 0.0),
    ],
)
def test_numbers_keep_their_digits(text: str, value: float) -> None:
    literal = parse(text)
    assert literal == Literal(value, text)
    assert isinstance(literal, Literal)
    assert type(literal.value) is type(value)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
        ("2024-02-29 01:02:03", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        ("2024-02-29T01:02:03.25Z", datetime(2024, 2, 29, 1, 2, 3, 250_000, tzinfo=UTC)),
        ("2024-02-29 01:02:03.000001+05:30", datetime(2024, 2, 28, 19, 32, 3, 1, tzinfo=UTC)),
        ("2024-02-29 23:02:03-01:00", datetime(2024, 3, 1, 0, 2, 3, tzinfo=UTC)),
    ],
)
def test_timestamps_are_instants(text: str, instant: datetime) -> None:
    assert parse(f"t = TIMESTAMP '{text}'") == Compare("=", ref("t"), Literal(instant))


def test_nodes_know_where_they_start() -> None:
    tree = parse("  (a + 1) > b AND NOT c IS NULL")
    assert isinstance(tree, And)
    compare, negation = tree.operands
    assert (tree.position, compare.position, negation.position) == (2, 2, 18)
    assert isinstance(compare, Compare)
    assert compare.right.position == 12
    assert isinstance(negation, Not)
    assert negation.operand.position == 22


@pytest.mark.parametrize(
    ("text", "position", "advice"),
    [
        ("a != 1", 2, "write `<>`"),
        ("a == 1", 2, "write `=`"),
        ("a => 1", 2, "write `>=`"),
        ("a && b", 2, "write `AND`"),
        ("!a", 0, "write `NOT`"),
        ("a = NULL", 4, "IS NULL"),
        ("a IN (NULL)", 6, "IS NULL"),
        ('a IN ("x")', 6, "single quotes"),
        ('a LIKE "x%"', 7, "single quotes"),
        ('a > TIMESTAMP "2024-01-01"', 14, "single quotes"),
        ("a =", 3, "expected a field or a literal, found the end"),
        ("a = )", 4, "expected a field or a literal, found `)`"),
        ("(a = 1", 6, "or `)`, found the end"),
        ("a = 1)", 5, "the end, found `)`"),
        ("a b", 2, "expected an operator, AND, OR or the end, found `b`"),
        ("a < b < c", 6, "do not chain"),
        ("(a = b = c)", 7, "do not chain"),
        ("NOT a = b = c", 10, "do not chain"),
        ("a IS NULL IS NULL", 10, "do not chain"),
        ("a IS NULL + 1", 10, "found `+`"),
        ("a IS 5", 5, "NULL or NOT NULL"),
        ("a IS NOT 5", 9, "expected NULL"),
        ("1 IS NULL", 0, "asks about a field"),
        ("a NOT = 5", 6, "BETWEEN, IN or LIKE"),
        ("a NOT IS NULL", 6, "BETWEEN, IN or LIKE"),
        ("a = NOT b", 4, "found `NOT`"),
        ("a BETWEEN 1 OR 2", 12, "upper end of BETWEEN"),
        ("a IN 1", 5, "expected `(`"),
        ("a IN ()", 6, "expected a literal"),
        ("a IN (b)", 6, "expected a literal"),
        ("a IN (1 2)", 8, "expected `,` or `)`"),
        ("a IN (-'x')", 7, "expected a number"),
        ("a LIKE b", 7, "pattern in single quotes"),
        ("a LIKE 'x' ESCAPE 5", 18, "character in single quotes"),
        ("a LIKE 'x' ESCAPE ''", 18, "exactly one character"),
        ("a LIKE 'x' ESCAPE '!!'", 18, "exactly one character"),
        ("a LIKE 'x!' ESCAPE '!'", 7, "lone escape"),
        ("a = 'x", 4, "never closed"),
        ('"a = 1', 0, "never closed"),
        ('"" = 1', 0, "empty"),
        ("in.x = 1", 2, "double quotes"),
        ("a. = 1", 1, "between two names"),
        ("a = 5L", 5, "no suffix"),
        ("a = 0x1F", 5, "decimal"),
        ("a = 1e", 5, "runs into `e`"),
        ("a ; b", 2, "';'"),
        ("a\u00a0= 1", 1, "\\xa0"),
        ("+'x' = a", 1, "`+` takes a number"),
        ("+(a = 1)", 2, "`+` takes a number"),
        ("a = X'0'", 4, "even number"),
        ("a = X'0 0'", 4, "even number"),
        ("a = TIMESTAMP '2024-13-01'", 4, "month"),
        ("a = TIMESTAMP '2024-01-01 10:00'", 4, "HH:MM:SS"),
        ("a = TIMESTAMP '2024-01-01 10:00:00+24:00'", 4, "HH:MM:SS"),
        ("a = '\ud800'", 5, "Unicode"),
    ],
)
def test_syntax_errors_say_where_and_what_to_write(text: str, position: int, advice: str) -> None:
    with pytest.raises(SelectorSyntaxError) as caught:
        parse(text)
    assert caught.value.position == position
    assert advice in caught.value.reason


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("9223372036854775808", "64 bits"),
        ("-9223372036854775809", "64 bits"),
        ("1E309", "too large"),
        ("1" * 400 + ".0", "too large"),
        ("1E-400", "too small"),
        ("0E9999999999", "exponent"),
        ("TIMESTAMP '9999-12-31 23:59:59-01:00'", "range"),
    ],
)
def test_numbers_and_instants_without_a_place_in_their_type_are_refused(text: str, advice: str) -> None:
    with pytest.raises(SelectorTypeError, match=advice) as caught:
        parse(f"a = {text}")
    assert caught.value.position == 4


def nested(levels: int) -> str:
    return "(" * levels + "a" + ")" * levels


@pytest.mark.parametrize("opener", ["(", "NOT ", "-", "+"])
def test_nesting_is_bounded_whatever_nests(opener: str) -> None:
    closer = ")" if opener == "(" else ""
    at_most = parser.NESTING_LEVELS_MAX
    parse(opener * at_most + "a" + closer * at_most)
    with pytest.raises(SelectorLimitError) as caught:
        parse(opener * (at_most + 1) + "a" + closer * (at_most + 1))
    assert caught.value.position == at_most * len(opener)


def test_nesting_counts_what_is_open_not_what_was() -> None:
    parse(" AND ".join([nested(5)] * 12))


def test_words_are_bounded() -> None:
    most = "a" + " OR a" * 99
    parse(most + " ")
    parse("NOT " + most)
    with pytest.raises(SelectorLimitError) as caught:
        parse(most + " OR a")
    assert caught.value.position == len(most) + 4


def test_characters_are_bounded() -> None:
    text = "a = '" + "x" * (parser.SELECTOR_CHARACTERS_MAX - 6) + "'"
    parse(text)
    with pytest.raises(SelectorLimitError):
        parse(text + " ")


def test_the_deepest_selector_parses_and_renders_with_little_stack_to_spare() -> None:
    text = "a AND (b OR " * 15 + "NOT " * 2 + "a = (1 + (2 * (3 + 4)))" + ")" * 15
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 300)
    try:
        tree = parse(text)
        assert parse(render(tree)) == tree
    finally:
        sys.setrecursionlimit(limit)


_VALUES = (
    "a",
    "b.c",
    '"q"',
    "'x'",
    "''",
    "1",
    "-2",
    ".5",
    "1E9",
    "TIMESTAMP",
    "'2024-01-01'",
    "X'00'",
    "TRUE",
)
_OPERATORS = ("NOT", "AND", "OR", "BETWEEN", "IN", "LIKE", "IS", "NULL", "ESCAPE", "(", ")", ",")
_SYMBOLS = ("+", "-", "*", "/", "=", "<>", "<", "<=", ">", ">=", ".", "!", '"')
_WORDS = st.one_of(*map(st.sampled_from, (_VALUES, _OPERATORS, _SYMBOLS)))


@given(st.one_of(st.text(max_size=60), st.lists(_WORDS, max_size=40).map(" ".join)))
@settings(derandomize=True, deadline=None, max_examples=1500)
def test_any_text_parses_or_is_refused_inside_its_bounds(text: str) -> None:
    position = 0
    try:
        tree = parse(text)
    except SelectorError as error:
        position = error.position
    else:
        assert parse(render(tree)) == tree
    assert 0 <= position <= len(text)


def test_thousands_of_openers_are_refused_without_exhausting_the_stack() -> None:
    for text in ("(" * 4000, "NOT " * 1000, "-" * 4096, "a=(" * 1300, "'" * 4095, '"' * 4095):
        with pytest.raises(SelectorError):
            parse(text)
