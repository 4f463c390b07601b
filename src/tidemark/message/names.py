"""What may be the name of a field, a case of a variant or a named schema."""

from __future__ import annotations

from tidemark.message.types import NAME_BYTES_MAX


def name_problem(name: object) -> str | None:
    """Why `name` cannot be the name of a field, a case or a schema; None when it can."""
    if not isinstance(name, str):
        return f"a name is a string, not {type(name).__name__}"
    if not name.isprintable() and any(ch < " " or "\ud800" <= ch <= "\udfff" for ch in name):
        return "a name has no control characters and no lone surrogates"
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        return f"a name has 1 to {NAME_BYTES_MAX} bytes"
    return None
