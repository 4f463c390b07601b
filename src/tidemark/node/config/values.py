"""The value of one setting: read from text or TOML, checked, and written back as a file would have it."""

from __future__ import annotations

from typing import Any, get_type_hints
from urllib.parse import urlsplit

from tidemark.errors import ConfigError
from tidemark.node.config.settings import KEYS, SECTIONS
from tidemark.node.config.units import (
    Duration,
    HostPort,
    RetainLimits,
    Size,
    parse_address,
    parse_duration,
    parse_retain,
    parse_size,
    show_duration,
    show_retain,
    show_size,
)


def shown(key: str, value: Any) -> str:
    """Returns the value of `key` as a file would have it."""
    hint = _hint(key)
    if value is None:
        return "none"
    if hint is Duration or hint == Duration | None:
        return f'"{show_duration(value)}"'
    if hint is Size or hint == Size | None:
        return f'"{show_size(value)}"'
    if hint == RetainLimits | None:
        return f'"{show_retain(value)}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple) and not isinstance(value, HostPort):
        return "[" + ", ".join(f'"{each}"' for each in value) + "]"
    return str(value) if isinstance(value, int) else f'"{value}"'


def checked(key: str, value: Any) -> Any:
    """Returns `value` as the type of `key`. Raises ConfigError if it is not one, or out of bounds.

    Text is parsed, since variables and options are always text.
    """
    metadata = KEYS[key].metadata
    found = _of_kind(_hint(key), value)
    if isinstance(found, str) and "://" in found:
        _check_url(found)
    if metadata["choices"] and found not in metadata["choices"]:
        raise ConfigError(f"{found!r} is none of {', '.join(metadata['choices'])}")
    if metadata["least"] is not None and found is not None and found < metadata["least"]:
        raise ConfigError(f"is less than {shown(key, metadata['least'])}, the least that works")
    return found


def _check_url(text: str) -> None:
    """Raise ConfigError, which does not repeat it, if an address has a secret in it: settings are shown."""
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ConfigError(f"is no address: {error}") from None
    if parts.password is not None or parts.query:
        raise ConfigError(
            "has a password or a query in it, and settings are shown and logged: leave credentials to the "
            "environment or a file"
        )


def _of_kind(hint: Any, value: Any) -> Any:
    if hint in (Duration | None, Size | None, RetainLimits | None):
        return None if value in ("none", None) else _of_kind(hint.__args__[0], value)
    if hint is tuple[str, ...] or hint == tuple[str, ...]:
        return names_of(value.split(",") if isinstance(value, str) else value)
    if hint is bool:
        return _truth(value)
    if hint is int:
        return _number(value)
    if isinstance(value, HostPort):
        value = str(value)
    if not isinstance(value, str):
        raise ConfigError(f'{value!r} is not text; write it in quotes, like "10s", "64MiB" or "name"')
    parse = {
        Duration: parse_duration, Size: parse_size, HostPort: parse_address, RetainLimits: parse_retain
    }.get(hint)  # fmt: skip
    return value if parse is None else parse(value)


def _truth(value: Any) -> bool:
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise ConfigError(f"{value!r} is neither true nor false")
    return value


def _number(value: Any) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{value!r} is not a whole number")
    return value


def names_of(value: Any) -> tuple[str, ...]:
    """Returns a list of names without blanks around them. Raises ConfigError if a name is there twice."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f'{value!r} is not a list of names; write ["first", "second"]')
    names = tuple(each.strip() for each in value if each.strip())
    if len(set(names)) < len(names):
        raise ConfigError(f"{value!r} has a name twice")
    return names


def text_of(value: Any, key: str) -> str | None:
    """Returns `value` if it is text or None. Raises ConfigError at `key` otherwise."""
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{value!r} is not text; write it in quotes", key=key)
    return value


def _hint(key: str) -> Any:
    section, name = key.split(".")
    return get_type_hints(SECTIONS[section])[name]
