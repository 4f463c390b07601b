"""What a scan of the archive for many at once is to do, and what a slice of it found. Imports no pyspark.

A scan serves requests that came together. It is cut into slices, each a tick range of one pubend with the
files that may have events of it; slices are read in any order, anywhere, and each exactly once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.ticks.tick import Range


@dataclass(frozen=True, slots=True)
class WantedLine:
    """A line of a request: what it wants of `(base, upto]` of a pubend."""

    pubend: str
    pattern: str
    selector: str
    base: int
    upto: int


@dataclass(frozen=True, slots=True)
class Slice:
    """`(base, upto]` of a pubend, and the files that may have events of it, by root, in their order."""

    pubend: str
    base: int
    upto: int
    #: root -> absolute paths
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: of the files, as far as they are read
    bytes: int = 0
    #: what of it the archive does not have
    gone: tuple[Range, ...] = ()
    #: nothing at or below is read: the archive has let it go, whatever its files still have
    released: int | None = None


@dataclass(frozen=True)
class ScanWork:
    """All that a slice needs to know of its scan; Spark carries it to wherever slices are read."""

    scan: str
    #: where what is found goes
    spool: str
    #: as a broker describes them
    topics: list[dict[str, Any]]
    #: root -> its columns, as an Arrow schema in bytes
    layouts: Mapping[str, bytes]
    #: a line is known by its place here
    lines: tuple[WantedLine, ...]

    @cached_property
    def key(self) -> str:
        """What has the same key is matched alike."""
        return self.scan + hashlib.sha256(json.dumps(self.topics).encode()).hexdigest()

    def active(self, part: Slice) -> NDArray[np.bool_]:
        """active[line]: it wants something of this slice."""
        return np.array(
            [
                each.pubend == part.pubend and each.base < part.upto and each.upto > part.base
                for each in self.lines
            ],
            np.bool_,
        )


@dataclass(frozen=True, slots=True)
class SliceResult:
    """What came of a slice: a file in the spool, unless there is nothing for anyone."""

    #: "" for nothing
    name: str = ""
    bytes: int = 0
    #: events that were read, and those of them that somebody wants
    read: int = 0
    kept: int = 0

    def to_json(self) -> str:
        """For the way back from a Spark task."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SliceResult:
        """The reverse."""
        return cls(**json.loads(text))


def within(ranges: Sequence[Range], base: int, upto: int) -> list[Range]:
    """The parts of ranges, which are in order, that lie in `(base, upto]`."""
    cut = ((max(low, base), min(high, upto)) for low, high in ranges)
    return [(low, high) for low, high in cut if low < high]
