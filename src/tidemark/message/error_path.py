"""The path of an error: which part of a nested value is wrong.

A function that finds a fault raises a MessageError without a path. Each caller on the way out puts the part
that it was working on in front, so that values without fault pay nothing for paths.
"""

from __future__ import annotations

from typing import TypeVar

from tidemark.errors import MessageError
from tidemark.message.types import path_text

_Error = TypeVar("_Error", bound=MessageError)


def prefix_path(part: str | int, error: _Error) -> _Error:
    """A copy of `error` whose path starts with `part`: the name of a field, or the index of an item."""
    step = f"[{part}]" if isinstance(part, int) else path_text((part,))
    dot = "." if error.path and not error.path.startswith("[") else ""
    return type(error)(error.reason, path=f"{step}{dot}{error.path}")
