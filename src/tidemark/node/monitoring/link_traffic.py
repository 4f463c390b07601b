"""LinkTraffic: what this broker has sent to each neighbour, by the kind of frame.

What it has received is in the numbers of its neighbours. A frame that travels in a Together counts under its
own kind, and the Together for its header alone, so that all bytes of a link are counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark.message.batches.batch import Buffer
from tidemark.wire.answers import FrameCount
from tidemark.wire.codec import kinds_in
from tidemark.wire.frames import PeerFrame
from tidemark.wire.peer_layouts import singly


class LinkTraffic:
    """The counts of one broker, since it started."""

    def __init__(self) -> None:
        #: neighbour -> kind -> frames and bytes; only `keep` forgets neighbours
        self._sent: dict[str, dict[str, list[int]]] = {}

    def sent(self, peer: str, pieces: Iterable[Buffer]) -> None:
        """These pieces of encoded frames leave for a neighbour."""
        kinds = self._sent.setdefault(peer, {})
        for kind, size in kinds_in(pieces):
            count = kinds.setdefault(kind, [0, 0])
            count[0] += 1
            count[1] += size

    def sent_locally(self, peer: str, frame: PeerFrame, size: int) -> None:
        """A frame leaves for a neighbour of the same process, which counts for so many bytes."""
        kinds = self._sent.setdefault(peer, {})
        for at, each in enumerate(singly(frame)):
            count = kinds.setdefault(type(each).__name__, [0, 0])
            count[0] += 1
            count[1] += size if at == 0 else 0

    def keep(self, peers: Iterable[str]) -> None:
        """Forget all neighbours but these."""
        kept = set(peers)
        self._sent = {peer: kinds for peer, kinds in self._sent.items() if peer in kept}

    def of(self, peer: str) -> Mapping[str, FrameCount]:
        """Return kind -> what was sent to a neighbour."""
        return {kind: FrameCount(*count) for kind, count in sorted(self._sent.get(peer, {}).items())}

    def all(self) -> Iterable[tuple[str, Mapping[str, FrameCount]]]:
        """Return every neighbour with what was sent to it."""
        return [(peer, self.of(peer)) for peer in sorted(self._sent)]
