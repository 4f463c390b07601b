"""Control characters are spelt out, and nothing else is changed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.message.visible import control_problem, visible, visible_json, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain äöü 漢字 🙂", "plain äöü 漢字 🙂"),
        ("no-break\u00a0space", "no-break\u00a0space"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\r\nb\tc\0", "a\\r\\nb\\tc\\x00"),
        ("\x7f\x9b31m", "\\x7f\\x9b31m"),
        ("abc\u202edef\u2066", "abc\\u202edef\\u2066"),
        ("line\u2028and\u2029paragraph", "line\\u2028and\\u2029paragraph"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_acts_on_a_terminal_is_spelt_out(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert (control_problem(text) is None) == (text == shown)


def test_json_is_printable_and_says_the_same() -> None:
    value = {"a\x9b2J": ["\x1b[2J\n", "\u202e", "\ud800", "äöü 🙂"], "n": 1.5}
    text = visible_json(value)
    assert text.isprintable()
    assert "äöü 🙂" in text
    assert json.loads(text) == value
    assert json.loads(visible_json(value, indent=2)) == value


@given(st.text())
@settings(derandomize=True, deadline=None, max_examples=300)
def test_what_is_shown_is_one_line_that_shows_itself(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert control_problem(shown) is None
    assert len(shown.splitlines()) <= 1
    shown.encode()  # raises nothing


def test_lines_that_may_stay_are_seen_to_belong_to_the_first() -> None:
    shown = visible_lines("wrong\n  x >\n  ^\nERROR\x1b[2J all is well")
    assert shown == "wrong\n  x >\n  ^\n  ERROR\\x1b[2J all is well"
