"""MQTT 3.1.1 with QoS 1 and sessions that stay: a topic for each kind."""

from __future__ import annotations

import asyncio
import re
from struct import pack

from tidemark.lab.bench.peers.bare_peer import BarePublisher, BareReader, Handshake
from tidemark.lab.bench.peers.peer_events import EVENT_BYTES, WHOLE_EVENT, EventRows, Heads
from tidemark.lab.bench.system.load import Load

_CONNECT, _PUBLISH_QOS1, _PUBACK, _SUBSCRIBE, _DISCONNECT = 0x10, 0x32, 0x40, 0x82, 0xE0
#: The identifier of a packet stands between the topic and the event.
_PACKET = re.compile(rb"bench/\d(..)" + WHOLE_EVENT, re.DOTALL)
_PUBACK_BYTES = 4


def topic_of(kind: int) -> bytes:
    """Returns the topic of the events of a kind."""
    return b"bench/%d" % kind


def packet(kind: int, content: bytes) -> bytes:
    """Returns a control packet: its first byte, the length of what follows in groups of 7 bits, and that."""
    length, rest = bytearray(), len(content)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((kind, *length, rest)) + content


def text(content: bytes) -> bytes:
    """Returns a string with its length before it."""
    return pack(">H", len(content)) + content


def connect_packet(client: bytes, *, is_clean: bool) -> bytes:
    """Returns CONNECT without a keep-alive."""
    return packet(_CONNECT, text(b"MQTT") + bytes((4, 2 if is_clean else 0, 0, 0)) + text(client))


def publish_packet(topic: bytes, identifier: int, payload: bytes) -> bytes:
    """Returns PUBLISH with QoS 1."""
    return packet(_PUBLISH_QOS1, text(topic) + pack(">H", identifier) + payload)


def subscribe_packet(topic: bytes) -> bytes:
    """Returns SUBSCRIBE with QoS 1."""
    return packet(_SUBSCRIBE, pack(">H", 1) + text(topic) + b"\x01")


def _connected(handshake: Handshake, client: str, *, is_clean: bool) -> None:
    handshake.say(connect_packet(client.encode(), is_clean=is_clean))
    answer = handshake.exactly(4)
    assert answer[0] == 0x20, answer
    assert answer[3] == 0, f"refused with {answer[3]}"


class MqttPublisher(BarePublisher):
    """Publishes with QoS 1."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        before = publish_packet(topic_of(0), 1, bytes(EVENT_BYTES))[:-EVENT_BYTES]
        self._rows = EventRows(load, before, packet_at=len(before) - 2)

    def greet(self, handshake: Handshake) -> None:
        _connected(handshake, "publisher", is_clean=True)

    def batch(self, first: int, count: int, sent: int) -> bytes:
        return self._rows.rows(first, count, sent)

    def answers(self, data: bytes) -> int:
        data = self.rest + data
        whole = len(data) // _PUBACK_BYTES
        self.rest = data[whole * _PUBACK_BYTES :]
        return whole


class MqttReader(BareReader):
    """A session that stays, with one subscription."""

    _known = False

    def greet(self, handshake: Handshake) -> None:
        _connected(handshake, self.record.name, is_clean=False)
        if not self._known:
            handshake.say(subscribe_packet(topic_of(self.kind)))
            assert handshake.exactly(5)[-1] == 1, "QoS 1 is not granted"
            self._known = True

    def subscribe(self) -> None:
        """The session has its subscription, and the server sends as soon as the client is there."""

    def heard(self, data: bytes, last: int, heads: Heads) -> None:  # noqa: ARG002  (what others need)
        if len(heads):
            identifiers = [found[0] for found in _PACKET.findall(data)]
            assert len(identifiers) == len(heads)
            self.say(b"".join(bytes((_PUBACK, 2)) + each for each in identifiers))

    def unsubscribe(self, transport: asyncio.Transport) -> None:
        transport.write(bytes((_DISCONNECT, 0)))
