"""NATS JetStream over the text protocol: a stream for each kind, and durable push consumers.

One stream with a subject for each kind and consumers with a filter cost the server several times as much.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tidemark.lab.bench.peers.bare_peer import BarePublisher, BareReader, Handshake
from tidemark.lab.bench.peers.peer_events import EVENT_BYTES, EventRows, Heads
from tidemark.lab.bench.system.load import Load

#: Events that a consumer may have got and not acknowledged.
UNACKNOWLEDGED_EVENTS_MAX = 20_000
_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":false,"protocol":1}\r\n'
_ANSWER = b'"seq":'
_INBOX = b"_INBOX.p"


def stream_of(kind: int) -> str:
    """Returns the stream that has the events of a kind."""
    return f"BENCH-{kind}"


def subject_of(kind: int) -> str:
    """Returns the subject of the events of a kind."""
    return f"bench.{kind}"


def publication(subject: bytes, reply: bytes, payload: bytes) -> bytes:
    """Returns a PUB with a subject for the answer."""
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)


def request(handshake: Handshake, subject: str, content: dict[str, Any]) -> dict[str, Any]:
    """Ask JetStream something; returns the answer, AssertionError if it is an error."""
    handshake.say(b"SUB _INBOX.r 90\r\n")
    handshake.say(publication(subject.encode(), b"_INBOX.r", json.dumps(content).encode()))
    head = handshake.until(b"\r\n").split()
    assert head[0] == b"MSG", head
    answer: dict[str, Any] = json.loads(handshake.exactly(int(head[-1]) + 2))
    handshake.say(b"UNSUB 90\r\n")
    assert "error" not in answer, answer["error"]
    return answer


def connected(handshake: Handshake) -> None:
    """Introduce a client."""
    assert handshake.until(b"\r\n").startswith(b"INFO ")
    handshake.say(_CONNECT + b"PING\r\n")
    assert handshake.until(b"\r\n") == b"PONG\r\n"


def create_streams(port: int, kinds: int) -> None:
    """Create the streams, in files."""
    handshake = Handshake(port)
    connected(handshake)
    for kind in range(kinds):
        name = stream_of(kind)
        wanted = {"name": name, "subjects": [subject_of(kind)], "storage": "file", "retention": "limits"}
        request(handshake, f"$JS.API.STREAM.CREATE.{name}", wanted)
    handshake.socket.close()


class NatsPublisher(BarePublisher):
    """Publishes with an answer for every event."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        whole = publication(subject_of(0).encode(), _INBOX, bytes(EVENT_BYTES))
        self._rows = EventRows(load, whole[: -EVENT_BYTES - 2], b"\r\n")

    def greet(self, handshake: Handshake) -> None:
        connected(handshake)
        handshake.say(b"SUB %b 1\r\n" % _INBOX)

    def batch(self, first: int, count: int, sent: int) -> bytes:
        return self._rows.rows(first, count, sent)

    def answers(self, data: bytes) -> int:
        if b"PING\r\n" in data:
            self.say(b"PONG\r\n")
        assert b'"error"' not in data, data[:200]
        data = self.rest + data
        # An answer that is cut in two is counted with its second half.
        counted = data.rfind(_ANSWER) + len(_ANSWER) if _ANSWER in data else 0
        self.rest = data[max(counted, len(data) - len(_ANSWER) + 1) :]
        return data.count(_ANSWER)


class NatsReader(BareReader):
    """A durable push consumer that acknowledges everything up to the newest event it has."""

    _known = False

    def greet(self, handshake: Handshake) -> None:
        connected(handshake)
        if not self._known:
            name, stream = self.record.name, stream_of(self.kind)
            config = {
                "durable_name": name,
                "deliver_subject": f"deliver.{name}",
                "ack_policy": "all",
                "deliver_policy": "all",
                "max_ack_pending": UNACKNOWLEDGED_EVENTS_MAX,
            }
            wanted = {"stream_name": stream, "config": config}
            request(handshake, f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}", wanted)
            self._known = True

    def subscribe(self) -> None:
        self.say(b"SUB deliver.%b 1\r\n" % self.record.name.encode())

    def heard(self, data: bytes, last: int, heads: Heads) -> None:
        if b"PING\r\n" in data[last + EVENT_BYTES if len(heads) else 0 :]:
            self.say(b"PONG\r\n")
        if len(heads):
            # MSG subject id reply bytes
            reply = data[data.rindex(b"MSG ", 0, last) : last].split()[3]
            self.say(b"PUB %b 4\r\n+ACK\r\n" % reply)

    def unsubscribe(self, transport: asyncio.Transport) -> None:
        transport.write(b"UNSUB 1\r\n")
