"""Where in a value something is wrong, and what may be a name.

An error is raised without a path where it happens and gathers one on the way out, so that values without
fault pay nothing for it.
"""

from __future__ import annotations

from typing import TypeVar

from tidemark.errors import MessageError
from tidemark.message.types import NAME_BYTES_MAX, path_text

_Error = TypeVar("_Error", bound=MessageError)


def within(part: str | int, error: _Error) -> _Error:
    """The same error, seen from one level further out: a field's name or an item's index goes in front."""
    step = f"[{part}]" if isinstance(part, int) else path_text((part,))
    dot = "." if error.path and not error.path.startswith("[") else ""
    return type(error)(error.reason, path=f"{step}{dot}{error.path}")


def name_problem(name: object) -> str | None:
    """Why `name` cannot be the name of a field, a case or a schema; None when it can."""
    if not isinstance(name, str):
        return f"a name is a string, not {type(name).__name__}"
    if any(ch < " " or "\ud800" <= ch <= "\udfff" for ch in name):
        return "a name has no control characters and no lone surrogates"
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        return f"a name has 1 to {NAME_BYTES_MAX} bytes"
    return None
