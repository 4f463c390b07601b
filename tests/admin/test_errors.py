"""Errors: one tree, and each error has its reason beside a text that begins with the place."""

from __future__ import annotations

import inspect
import re

import pytest

from tidemark import errors
from tidemark.errors import ConfigError, RefusedError, SchemaSyntaxError, TidemarkError, WireError


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn = re.findall(r"^([│├└─ ]*)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE)
    path: list[str] = []
    parents = {}
    for indent, name in drawn:
        path[len(indent) // 4 :] = [name]
        parents[name] = path[-2] if len(path) > 1 else "Exception"
    classes = {
        name: each.__base__.__name__
        for name, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, TidemarkError) and each.__base__ is not None
    }
    assert parents == classes


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SchemaSyntaxError("no", line=2, column=3), "line 2, column 3: no"),
        (ConfigError("no", key="a.b", source="f"), "f: a.b: no"),
        (RefusedError("no", what="publish", name="q", code="full"), "publish q: no"),
        (WireError("no"), "no"),
    ],
)
def test_an_error_has_its_reason_beside_the_whole_text(error: TidemarkError, text: str) -> None:
    assert str(error) == text
    assert error.reason == "no"


def test_a_refusal_can_be_told_with_another_reason() -> None:
    error = RefusedError("no", what="publish", name="q", code="full").with_reason("not now")
    assert (error.reason, error.what, error.name, error.code) == ("not now", "publish", "q", "full")
