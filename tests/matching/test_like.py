"""LIKE, against a model that tries everything."""

from __future__ import annotations

from itertools import product
from typing import SupportsIndex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import SelectorSyntaxError
from tidemark.matching.selectors.like import Pattern, Segment


def naive(pattern: str, escape: str, value: str) -> bool:
    """Every way to place the pattern."""
    if not pattern:
        return not value
    first, rest = pattern[0], pattern[1:]
    if first == escape:
        return value[:1] == rest[0] and naive(rest[1:], escape, value[1:])
    if first == "%":
        return any(naive(rest, escape, value[skip:]) for skip in range(len(value) + 1))
    return bool(value) and first in ("_", value[0]) and naive(rest, escape, value[1:])


def test_every_short_pattern_agrees_with_the_model_on_every_short_value() -> None:
    values = ["".join(letters) for length in range(5) for letters in product("ab", repeat=length)]
    for length in range(5):
        for letters in product("ab%_", repeat=length):
            pattern = Pattern.compile("".join(letters))
            for value in values:
                assert pattern.matches(value) is naive("".join(letters), "", value), (pattern, value)


@given(
    st.lists(st.sampled_from(("a", "b", "%", "_", "!a", "!%", "!_", "!!")), max_size=9).map("".join),
    st.text("ab%_!", max_size=9),
)
@settings(derandomize=True, deadline=None, max_examples=600)
def test_patterns_with_escapes_agree_with_the_model(pattern: str, value: str) -> None:
    assert Pattern.compile(pattern, "!").matches(value) is naive(pattern, "!", value)


@given(st.text("ab%_é𝄞\n", max_size=7), st.text("abé𝄞\n", max_size=9))
@settings(derandomize=True, deadline=None, max_examples=400)
def test_characters_are_code_points_and_line_ends_are_characters(pattern: str, value: str) -> None:
    assert Pattern.compile(pattern).matches(value) is naive(pattern, "", value)


@pytest.mark.parametrize(
    ("pattern", "escape", "prefix", "is_exact", "is_prefix"),
    [
        ("", "", "", True, False),
        ("abc", "", "abc", True, False),
        ("abc%", "", "abc", False, True),
        ("abc%%", "", "abc", False, True),
        ("%", "", "", False, True),
        ("a_c%", "", "a", False, False),
        ("abc_", "", "abc", False, False),
        ("_", "", "", False, False),
        ("a%c", "", "a", False, False),
        ("%c", "", "", False, False),
        ("a!%c", "!", "a%c", True, False),
        ("a!_c!!%", "!", "a_c!", False, True),
        ("%%a", "%", "%a", True, False),
    ],
)
def test_simple_patterns_say_so(
    pattern: str, escape: str, prefix: str, is_exact: bool, is_prefix: bool
) -> None:
    compiled = Pattern.compile(pattern, escape)
    assert (compiled.prefix, compiled.is_exact, compiled.is_prefix) == (prefix, is_exact, is_prefix)


def test_runs_of_percent_count_once() -> None:
    assert Pattern.compile("a%%b%%%_c%") == Pattern.compile("a%b%_c%")
    assert Pattern.compile("a%b%_c%").segments == (
        Segment("a"),
        Segment("b"),
        Segment("_c", (0,)),
        Segment(""),
    )


class Counted(str):
    """A string that counts how often a character of it is looked at."""

    looks = 0

    def __getitem__(self, index: SupportsIndex | slice) -> str:
        self.looks += 1
        return super().__getitem__(index)


@pytest.mark.parametrize(
    "pattern",
    ["%a_" * 20 + "%b", "%_a_a_a_a_b%" * 3, "%" + "a_" * 200 + "b%", "%" + "_" * 500 + "%b", "%a%_%a%_%b_"],
)
def test_a_pattern_with_holes_looks_at_each_character_once_at_most(pattern: str) -> None:
    value = Counted("a" * 5_000)
    assert not Pattern.compile(pattern).matches(value)
    assert value.looks <= len(value)


def test_a_pathological_pattern_without_holes_finishes() -> None:
    # Backtracking would take 2 ** 50 steps here.
    assert not Pattern.compile("%a" * 50 + "%b%").matches("a" * 5_000)


@pytest.mark.parametrize(("pattern", "escape"), [("abc!", "!"), ("!", "!"), ("!!!", "!")])
def test_a_lone_last_escape_is_refused(pattern: str, escape: str) -> None:
    with pytest.raises(SelectorSyntaxError) as caught:
        Pattern.compile(pattern, escape, position=7)
    assert caught.value.position == 7


def test_an_escape_is_one_character() -> None:
    with pytest.raises(SelectorSyntaxError):
        Pattern.compile("a", "ab")
