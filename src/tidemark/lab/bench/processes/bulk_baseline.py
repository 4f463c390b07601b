"""The baseline for large numbers: a bare server in Python that moves what a broker moves and does no more.

It speaks so much of the protocol that the same clients on bare sockets publish to it and subscribe from it,
and check what they get. It appends the frames of publishers to a file as they came, syncs the file on a
thread, and acknowledges each frame. It has no selectors: which events a subscriber wants it knows from the
load. It checks nothing, keeps no numbers, remembers nothing, and sends what it holds from memory. What a
broker takes beyond it is the broker's own; what it takes itself is Python, the kernel and the disk.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from pathlib import Path
from queue import SimpleQueue
from struct import Struct
from typing import NamedTuple, cast

import numpy as np

from tidemark.lab.bench.system.load import SCHEMA, TOPIC, Batches, Load
from tidemark.message.batches.batch import MAGIC, Buffer, EventBatch, concatenate
from tidemark.ticks import CheckpointToken
from tidemark.wire.client_layouts import LAYOUTS
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    Connect,
    Deliver,
    Frame,
    Publish,
    Published,
    Subscribe,
    Subscribed,
    Topic,
    Welcome,
)
from tidemark.wire.layouts import HEADER, HEADER_BYTES
from tidemark.wire.limits import FRAME_BYTES_MAX

PUBEND = "baseline"
#: The tick before that of the event number 0.
_FIRST_TICK = 1 << 40
#: Events of all kinds of which those of one kind are sent in one frame: about a MiB, as from a broker.
_PIECE_EVENTS = 3_800
_READ_BYTES = 1 << 20
_PUBLISH = next(layout.key for layout in LAYOUTS if layout.frame is Publish)
_SEQUENCE, _COUNT = Struct("<q"), Struct("<I")

#: Shared by all connections: what is kept of it is copied.
_buffer = memoryview(bytearray(_READ_BYTES))


class _Piece(NamedTuple):
    """The events of one kind up to a tick, beyond those of the piece before it."""

    upto: int
    batch: EventBatch


class _PublishCame(NamedTuple):
    """A Publish among the bytes of a read: the number of its first event, and where its batch lies."""

    sequence: int
    events: int
    start: int
    end: int


class _Came(NamedTuple):
    """What one read has brought of a publisher: the bytes, from the first Publish on, and what they are."""

    publisher: _BulkConnection
    data: bytes
    frames: list[_PublishCame]


class BulkServer:
    """The role of a worker that is the server, with a disk thread."""

    def __init__(self, counters: str, path: str, durability: str, kinds: int = 4) -> None:  # noqa: ARG002  (told to every worker)
        self._descriptor = os.open(Path(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._is_sync = durability == "sync"
        self._load = Load(kinds)
        self._work: SimpleQueue[_Came] = SimpleQueue()
        #: kind -> what a subscriber of it missed, and those who are there
        self._held: list[list[_Piece]] = [[] for _ in range(kinds)]
        self._live: list[list[_BulkConnection]] = [[] for _ in range(kinds)]

    async def open(self) -> None:
        """Listen."""
        self._loop = asyncio.get_running_loop()
        self._server = await self._loop.create_server(lambda: _BulkConnection(self), "127.0.0.1", 0)
        threading.Thread(target=self._run, name="disk", daemon=True).start()

    async def url(self) -> str:
        """Returns the address."""
        return f"tidemark://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def hold(self, events: int) -> None:
        """Hold the events `n < events` for subscribers that come."""
        for first in range(0, events, _PIECE_EVENTS):
            batch = Batches(self._load, min(_PIECE_EVENTS, events - first)).batch(first)
            for kind, piece in self._parts(batch, first):
                self._held[kind].append(piece)

    def came(self, came: _Came) -> None:
        """Queue what came for the disk thread."""
        self._work.put(came)

    def subscribe(self, subscriber: _BulkConnection, kind: int) -> None:
        """Send a subscriber all that it missed; what is published from now on is sent to it too."""
        for piece in self._held[kind]:
            subscriber.deliver(piece)
        self._live[kind].append(subscriber)

    def _run(self) -> None:
        while True:
            group = [self._work.get()]
            while not self._work.empty():
                group.append(self._work.get())
            os.writev(self._descriptor, [came.data for came in group])
            if self._is_sync:
                os.fdatasync(self._descriptor)
            self._loop.call_soon_threadsafe(self._synced, group)

    def _synced(self, group: list[_Came]) -> None:
        for came in group:
            answers: list[Buffer] = []
            for frame in came.frames:
                last = frame.sequence + frame.events - 1
                answers += encode(Published(PUBEND, came.publisher.publisher, last, _FIRST_TICK + last))
            came.publisher.write(answers)
        if any(self._live):
            self._pass_on(group)

    def _pass_on(self, group: list[_Came]) -> None:
        """Send what came to who is there; there is one publisher, so that its events follow one another."""
        frames = [(came.data, each) for came in group for each in came.frames]
        batches = [EventBatch.trusted(bytearray(data[each.start : each.end])) for data, each in frames]
        whole = concatenate(batches)
        for kind, piece in self._parts(whole, group[0].frames[0].sequence - 1):
            for subscriber in self._live[kind]:
                subscriber.deliver(piece)

    def _parts(self, batch: EventBatch, first: int) -> list[tuple[int, _Piece]]:
        """Returns the rows of each kind of a batch of the events from number `first` on."""
        kinds = self._load.kinds_between(first, first + batch.count)
        batch.count_ticks(_FIRST_TICK + first + 1)
        upto = int(batch.ticks[-1])
        rows = [(kind, np.flatnonzero(kinds == kind)) for kind in range(len(self._held))]
        return [(kind, _Piece(upto, batch.take(chosen))) for kind, chosen in rows if len(chosen)]


class _BulkConnection(asyncio.BufferedProtocol):
    """One connection to the server."""

    def __init__(self, server: BulkServer) -> None:
        self._server = server
        #: of other frames than Publish
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        #: bytes of a frame that is not whole
        self._rest = b""
        #: the name of the publisher, and of the subscriber, that has introduced itself
        self.publisher = ""
        self._name = ""
        self._told = _FIRST_TICK

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast(asyncio.Transport, transport).writelines
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the whole frames of what has come: those of a publisher as they are."""
        data = b"".join((self._rest, _buffer[:nbytes]))
        at, frames = 0, list[_PublishCame]()
        while len(data) - at >= HEADER_BYTES:
            size, key, _ = HEADER.unpack_from(data, at)
            end = at + HEADER_BYTES + size
            if end > len(data):
                break
            if key == _PUBLISH:
                start = data.index(MAGIC, at)
                (sequence,) = _SEQUENCE.unpack_from(data, at + HEADER_BYTES)
                (count,) = _COUNT.unpack_from(data, start + len(MAGIC))
                frames.append(_PublishCame(sequence, count, start, end))
            else:
                for frame in self._decoder.feed(data[at:end]):
                    self._hear(frame)
            at = end
        self._rest = data[at:]
        if frames:
            self._server.came(_Came(self, data[:at], frames))

    def deliver(self, piece: _Piece) -> None:
        """Send a piece to a subscriber."""
        self.write(encode(Deliver(self._name, PUBEND, self._told, piece.upto, piece.batch)))
        self._told = piece.upto

    def _hear(self, frame: Frame) -> None:
        match frame:
            case Connect(client):
                self.publisher = client
                self.write(encode(Welcome("baseline", 1, 1, (PUBEND,))))
            case Topic():
                self.write(encode(Topic(TOPIC, False, (SCHEMA.text,))))
            case Subscribe(name, selector=selector):
                self._name = name
                self.write(encode(Subscribed(name, CheckpointToken({PUBEND: _FIRST_TICK}))))
                self._server.subscribe(self, int(selector.rpartition(" ")[2]))
