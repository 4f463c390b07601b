"""What travels to the tasks of a shared scan and back. Imports no pyspark.

A scan serves requests that arrived together. It is cut into slices (`spark.archive_scan.slices`), which are
read in any order, anywhere, and each exactly once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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
    #: a line's number is its place here
    lines: tuple[WantedLine, ...]

    @cached_property
    def key(self) -> str:
        """Identifies the matcher: work with the same key has the same lines and topics."""
        return self.scan + hashlib.sha256(dumps(self.topics).encode()).hexdigest()

    def active(self, part: Slice) -> NDArray[np.bool_]:
        """active[line]: the line wants something of this slice."""
        return np.array(
            [
                each.pubend == part.pubend and each.base < part.upto and each.upto > part.base
                for each in self.lines
            ],
            np.bool_,
        )


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
