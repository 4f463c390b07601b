"""AsOf: when the archive is to be read as of, by a version of a table or by a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.errors import ConfigError
from tidemark.message.codec.scalars import microseconds

#: Versions of a Delta table are 64-bit integers.
VERSION_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AsOf:
    """A version of the one table that a topic is in, or a time in microseconds; one of them is given."""

    version: int | None = None
    time: int | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"version {self.version}"
        assert self.time is not None
        return datetime.fromtimestamp(self.time / 1e6, UTC).isoformat()


def as_of(version: int | None, time: int | None) -> AsOf | None:
    """The point that arguments name; None if neither is given. Raises ConfigError."""
    if version is not None and time is not None:
        raise ConfigError("the archive is read as of a version or as of a time, not both: leave one out")
    if version is not None and not 0 <= version <= VERSION_MAX:
        raise ConfigError(f"{version} is not a version of a table: 0, 1, 2 ...")
    return None if version is None and time is None else AsOf(version, time)


def parse_version(text: str) -> int:
    """The version that a text names. Raises ConfigError."""
    if not text.isascii() or not text.isdigit() or int(text) > VERSION_MAX:
        raise ConfigError(f"{text!r} is not a version of a table: 0, 1, 2 ...")
    return int(text)


def parse_time(text: str) -> int:
    """The microseconds of a time in ISO 8601, which is UTC if it has no zone. Raises ConfigError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no time: write 2026-01-31T12:00:00Z") from None
    return microseconds(found if found.tzinfo else found.replace(tzinfo=UTC))
