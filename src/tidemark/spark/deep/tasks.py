"""What travels to the tasks of a shared scan and back. Imports no pyspark.

A scan serves requests that arrived together. It is cut into slices (`spark.archive_scan.slices`), which are
read in any order, anywhere, and each exactly once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tidemark.message.batches.columns import Bools
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.archive_scan.slices import Slice
from tidemark.spark.stores.folder import Folder
from tidemark.wire.answers import TopicStatus
from tidemark.wire.json_objects import dumps


@dataclass(frozen=True, slots=True)
class WantedLine:
    """A line of a request: what is wanted of `(base, upto]` of a pubend."""

    pubend: str
    wanted: TopicSelector
    base: int
    upto: int


@dataclass(frozen=True, slots=True, eq=False)
class PackedLines:
    """The lines of a scan, as they travel to tasks; a line's number is its place here.

    What is wanted is read only where a matcher is compiled: to unpack a thousand lines takes a task longer
    than to find out which of them want something of a slice.
    """

    #: the pubends of the lines, each once, and for each line the number of its pubend
    pubends: tuple[str, ...]
    pubend_of: NDArray[np.int32]
    bases: NDArray[np.int64]
    uptos: NDArray[np.int64]
    #: pattern and selector of each line, as JSON
    wanted: bytes

    @classmethod
    def of(cls, lines: Sequence[WantedLine]) -> PackedLines:
        """The same lines."""
        numbers: dict[str, int] = {}
        pubend_of = [numbers.setdefault(each.pubend, len(numbers)) for each in lines]
        wanted = [(each.wanted.pattern, each.wanted.selector) for each in lines]
        return cls(
            tuple(numbers),
            np.array(pubend_of, np.int32),
            np.array([each.base for each in lines], np.int64),
            np.array([each.upto for each in lines], np.int64),
            json.dumps(wanted).encode(),
        )

    def wanted_of(self, pubend: str) -> list[tuple[int, TopicSelector]]:
        """The number of each line of a pubend, and what it wants."""
        wanted = json.loads(self.wanted)
        return [(line, TopicSelector(*wanted[line])) for line in np.flatnonzero(self._is_of(pubend)).tolist()]

    def active(self, part: Slice) -> Bools:
        """active[line]: the line wants something of this slice."""
        found: Bools = self._is_of(part.pubend) & (self.bases < part.upto) & (self.uptos > part.base)
        return found

    def _is_of(self, pubend: str) -> Bools:
        number = self.pubends.index(pubend) if pubend in self.pubends else -1
        found: Bools = self.pubend_of == number
        return found


@dataclass(frozen=True)
class ScanWork:
    """What all slices of a scan need; Spark carries it to wherever slices are read."""

    scan: str
    #: the folder of the spool
    spool: Folder
    #: topics as a broker describes them
    topics: tuple[TopicStatus, ...]
    #: root -> the columns of its table, as an Arrow schema in bytes
    layouts: Mapping[str, bytes]
    lines: PackedLines

    @cached_property
    def key(self) -> str:
        """Identifies the matcher: work with the same key has the same lines and topics."""
        return self.scan + hashlib.sha256(dumps(self.topics).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SliceResult:
    """The result of a slice: a file in the spool, unless no request wants anything of the slice."""

    #: of the file in the spool; "" if there is none
    name: str = ""
    bytes: int = 0
    #: events that were read, and how many of them some request wants
    read: int = 0
    kept: int = 0

    def to_json(self) -> str:
        """The result as text, for the way back from a Spark task."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SliceResult:
        """The result that `to_json` made the text of."""
        return cls(**json.loads(text))
