"""What the jobs of the pipeline report while they run: which engine runs, that they wait, that a round or a
scan has ended.

`to_json` is what `tidemark pipeline archive --json` and `tidemark pipeline serve --json` print, a line each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class EngineStarted:
    """The engine that writes the archive, why it is this one, and where its web interface is."""

    engine: str
    reason: str
    master: str
    #: "" if there is none
    ui: str

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The archive waits for something that passes by itself, say for a broker that is away."""

    #: what it waits for; "" when it does not wait any more
    waiting: str

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round of the archive has ended: at which Unix time, after how long, and what it added."""

    at: float
    seconds: float
    events: int
    bytes: int
    #: pubend -> the tick up to which the archive covers it now
    covered: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ScanEnded:
    """A shared scan of deep catch-up has ended: how many recalls it served, and what it read for them."""

    recalled: int
    waves: int
    events: int
    bytes: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return asdict(self)


PipelineReport = EngineStarted | Waiting | RoundEnded | ScanEnded


class ReportTaker(Protocol):
    """Takes the reports of a job. Scans report from the thread of deep catch-up."""

    def __call__(self, report: PipelineReport, /) -> None:
        """Something has happened."""
