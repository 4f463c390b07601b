"""Random trees of every shape the grammar has, well-typed or not."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidemark.matching.selectors.tree import (
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
    Node,
    Not,
    Or,
)

_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_NAMES = st.sampled_from(
    ("a", "price", "$x", "Größe", "_tick", "TIMESTAMP", "X", "in", "odd name", 'q"q', "7up", ".")
)
_NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda value: Literal(value, str(value))),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: Literal(value, repr(value))),
    st.sampled_from(("7.", ".5", "-.5", "1E3", "-7E-2", "0.10")).map(lambda text: Literal(float(text), text)),
)
_INSTANTS = st.datetimes(timezones=st.just(UTC)) | st.just(datetime(1, 1, 1, tzinfo=UTC))

literals: SearchStrategy[Literal] = st.one_of(
    _NUMBERS,
    st.one_of(_TEXT, st.booleans(), st.binary(max_size=3), _INSTANTS).map(Literal),
)
fields = st.lists(_NAMES, min_size=1, max_size=3).map(lambda parts: FieldRef(tuple(parts)))


def _likes(inner: SearchStrategy[Node]) -> SearchStrategy[Node]:
    escaped = st.builds(
        Like, inner, _TEXT.map(lambda text: text.replace("!", "!!")), st.just("!"), st.booleans()
    )
    return st.one_of(st.builds(Like, inner, _TEXT, st.just(""), st.booleans()), escaped)


def _around(inner: SearchStrategy[Node]) -> SearchStrategy[Node]:
    operands = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Negate, inner),
        st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner),
        st.builds(Compare, st.sampled_from(("=", "<>", "<", "<=", ">", ">=")), inner, inner),
        st.builds(Between, inner, inner, inner, st.booleans()),
        st.builds(In, inner, st.lists(literals, min_size=1, max_size=3).map(tuple), st.booleans()),
        _likes(inner),
        st.builds(IsNull, fields, st.booleans()),
        st.builds(Not, inner),
        st.builds(And, operands),
        st.builds(Or, operands),
    )


trees: SearchStrategy[Node] = st.recursive(st.one_of(literals, fields), _around, max_leaves=10)
