"""Reports: the pages that `tidemark pipeline report` and `audit` have written into a directory.

Only files of that directory itself whose names end in .html are shown, the newest first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from pathlib import Path

REPORTS_MAX = 20
REPORT_BYTES_MAX = 32 << 20
#: Bytes at the beginning of a page in which its heading is.
_HEAD_BYTES = 64 << 10
_NAME = re.compile(r"[\w][\w. -]{0,200}\.html")
_HEADING = re.compile(r"<h1>(.*?)</h1>", re.S)
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True, slots=True)
class ReportFile:
    """One page."""

    name: str
    #: what its heading says: the archive, or the verdict of an audit
    heading: str
    #: when it was written, in microseconds of the time of day
    at: int


def list_reports(directory: Path) -> list[ReportFile]:
    """Return the newest pages of a directory, at most REPORTS_MAX; none if it cannot be read."""
    try:
        paths = [path for path in directory.iterdir() if _NAME.fullmatch(path.name) and path.is_file()]
        dated = sorted(((path.stat().st_mtime_ns, path) for path in paths), reverse=True)[:REPORTS_MAX]
        return [ReportFile(path.name, _heading(path), at // 1_000) for at, path in dated]
    except OSError:
        return []


def read_report(directory: Path, name: str) -> bytes | None:
    """Return a page of a directory; None if there is none of that name, or if it is too large."""
    path = directory / name
    if not _NAME.fullmatch(name) or path.is_symlink() or not path.is_file():
        return None
    if path.stat().st_size > REPORT_BYTES_MAX:
        return None
    return path.read_bytes()


def _heading(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES).decode(errors="replace")
    found = _HEADING.search(head)
    return unescape(_TAG.sub("", found[1])).strip()[:200] if found is not None else ""
