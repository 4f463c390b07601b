"""Values as people write them in files: durations ("10s"), sizes ("64MiB"), addresses ("127.0.0.1:7676").

Everywhere else a duration is an int of microseconds and a size an int of bytes. The `show_*` functions here
are exact: what they return is parsed to the same value again. `tidemark.admin.numbers` has others, which
round for people who read a status; the two are different on purpose.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

from tidemark.errors import ConfigError

#: microseconds
Duration = NewType("Duration", int)
#: bytes
Size = NewType("Size", int)

_DURATIONS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
#: The units in which disks are sold: parsed, and never written.
_DECIMAL_SIZES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
PORT_MAX = 65_535


class HostPort(NamedTuple):
    """A host and a port, to listen at or to connect to. Port 0 lets the system choose when listening."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RetainLimits(NamedTuple):
    """How much history the archive keeps: up to which age, and up to which size; None is no limit."""

    age: Duration | None = None
    size: Size | None = None


def parse_duration(text: str) -> Duration:
    """Returns the duration that a text like "10s" or "1.5h" means. Raises ConfigError for anything else."""
    return Duration(_measured(text, _DURATIONS, 'write a number and a unit, like "250ms", "10s" or "7d"'))


def parse_size(text: str) -> Size:
    """Returns the size that a text like "64MiB" or "4096B" means. Raises ConfigError for anything else."""
    return Size(
        _measured(
            text, _SIZES | _DECIMAL_SIZES, 'write a number and a unit, like "64KiB", "16MiB" or "4096B"'
        )
    )


def parse_retain(text: str) -> RetainLimits:
    """Returns the limits in a text like "90d", "500GB", or "90d, 500GB", where the one that keeps less holds.

    Raises ConfigError for anything else.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        unit = _NUMBER.fullmatch(part.strip())
        is_size = unit is not None and unit[2] in _SIZES | _DECIMAL_SIZES
        kind = "size" if is_size else "age"
        if kind in found or unit is None or not (is_size or unit[2] in _DURATIONS):
            raise ConfigError(f'{text!r} is not understood; write "90d", "500GB", or "90d, 500GB" for both')
        found[kind] = parse_size(part) if is_size else parse_duration(part)
    if 0 in found.values():
        raise ConfigError(f"{text!r} keeps nothing: write more than 0")
    age, size = found.get("age"), found.get("size")
    return RetainLimits(None if age is None else Duration(age), None if size is None else Size(size))


def parse_address(text: str) -> HostPort:
    """Returns the address in a text like "host:port" or "[::1]:port".

    Raises ConfigError for anything else.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise ConfigError(f'{text!r} is not an address; write "host:port", like "127.0.0.1:7676"')
    return HostPort(host, int(port))


def show_duration(value: int) -> str:
    """Returns microseconds as text, in the largest unit that needs no fraction."""
    return _shown(value, _DURATIONS)


def show_size(value: int) -> str:
    """Returns bytes as text, in the largest unit that needs no fraction."""
    return _shown(value, _SIZES)


def show_retain(value: RetainLimits) -> str:
    """Returns the limits as text that `parse_retain` reads."""
    parts = [
        *([] if value.age is None else [show_duration(value.age)]),
        *([] if value.size is None else [show_size(value.size)]),
    ]
    return ", ".join(parts)


def _measured(text: str, units: dict[str, int], advice: str) -> int:
    found = _NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in units:
        raise ConfigError(f"{text!r} is not understood; {advice}")
    whole, _, fraction = found[1].partition(".")
    scaled = int(whole + fraction) * units[found[2]]
    return scaled // int(10 ** len(fraction))


def _shown(value: int, units: dict[str, int]) -> str:
    fits = [unit for unit, factor in units.items() if value % factor == 0 and value >= factor]
    unit = fits[-1] if fits else next(iter(units))
    return f"{value // units[unit]}{unit}"
