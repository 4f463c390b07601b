"""Times, durations and sizes as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOTHING = "-"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def show_time(tick: int | None) -> str:
    """Return a tick as a time in UTC; "-" for None."""
    return NOTHING if tick is None else (_EPOCH + timedelta(microseconds=tick)).isoformat()


def show_seconds(seconds: float | None) -> str:
    """Return a duration to two or three digits, in the unit that reads best; "-" for None."""
    if seconds is None:
        return NOTHING
    if seconds == 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7_200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3_600:.3g} h" if seconds < 172_800 else f"{seconds / 86_400:,.1f} d"


def show_bytes(count: float) -> str:
    """Return a size in the unit that reads best."""
    at = 0
    while count >= 1024 and at < len(_SIZES) - 1:
        count, at = count / 1024, at + 1
    return f"{count:.0f} {_SIZES[at]}" if at == 0 else f"{count:.1f} {_SIZES[at]}"
