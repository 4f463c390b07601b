"""STOMP 1.2 with ActiveMQ: one topic, durable subscribers with an SQL selector over a header."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from tidemark.lab.bench.peers.bare_peer import BarePublisher, BareReader, Handshake
from tidemark.lab.bench.peers.peer_events import EVENT_BYTES, EventRows, Heads
from tidemark.lab.bench.system.load import Load

DESTINATION = "/topic/bench"
#: Events that a subscriber may have got and not acknowledged.
PREFETCH_EVENTS = 5_000
_RECEIPT = re.compile(rb"receipt-id:(\d+)\n[^\x00]*\x00")
_ACK = re.compile(rb"\nack:([^\n]+)\n")


def frame(command: str, headers: Mapping[str, object], body: bytes = b"") -> bytes:
    """Returns a frame."""
    lines = [command, *(f"{name}:{value}" for name, value in headers.items())]
    return "\n".join(lines).encode() + b"\n\n" + body + b"\x00"


def connected(handshake: Handshake, client: str) -> None:
    """Introduce a client, without heartbeats."""
    wanted = {"accept-version": "1.2", "host": "localhost", "client-id": client, "heart-beat": "0,0"}
    handshake.say(frame("CONNECT", wanted))
    answer = handshake.until(b"\x00")
    assert answer.lstrip().startswith(b"CONNECTED"), answer


class StompPublisher(BarePublisher):
    """Publishes a batch in one transaction with a receipt."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._alone = self._rows_with({"receipt": 1})
        self._together = self._rows_with({"transaction": "t"})

    def _rows_with(self, headers: Mapping[str, object]) -> EventRows:
        kept = {"destination": DESTINATION, "persistent": "true", "kind": 0, "content-length": EVENT_BYTES}
        whole = frame("SEND", {**kept, **headers}, bytes(EVENT_BYTES))
        return EventRows(self.load, whole[: -EVENT_BYTES - 1], b"\x00")

    def greet(self, handshake: Handshake) -> None:
        connected(handshake, "publisher")

    def batch(self, first: int, count: int, sent: int) -> bytes:
        if count == 1:
            return self._alone.rows(first, 1, sent)
        rows = self._together.rows(first, count, sent)
        end = frame("COMMIT", {"transaction": "t", "receipt": count})
        return frame("BEGIN", {"transaction": "t"}) + rows + end

    def answers(self, data: bytes) -> int:
        data = self.rest + data
        assert b"ERROR\n" not in data, data[:400]
        self.rest = data[data.rfind(b"\x00") + 1 :]
        return sum(int(count) for count in _RECEIPT.findall(data))


class StompReader(BareReader):
    """A durable subscriber with a selector, which acknowledges everything up to the newest event it has."""

    _known = False

    def greet(self, handshake: Handshake) -> None:
        connected(handshake, self.record.name)
        wanted = {
            "id": 0,
            "destination": DESTINATION,
            "ack": "client",
            "selector": f"kind = '{self.kind}'",
            "activemq.subscriptionName": self.record.name,
            "activemq.prefetchSize": PREFETCH_EVENTS,
            "receipt": 1,
        }
        handshake.say(frame("SUBSCRIBE", wanted))
        if not self._known:
            assert b"RECEIPT" in handshake.until(b"\x00")
            self._known = True

    def subscribe(self) -> None:
        """The server sends as soon as the client is introduced."""

    def heard(self, data: bytes, last: int, heads: Heads) -> None:
        if len(heads):
            found = _ACK.search(data, data.rindex(b"MESSAGE\n", 0, last), last)
            assert found is not None, "a message has no header `ack`"
            self.say(frame("ACK", {"id": found[1].decode()}))

    def unsubscribe(self, transport: asyncio.Transport) -> None:
        transport.write(frame("DISCONNECT", {}))
