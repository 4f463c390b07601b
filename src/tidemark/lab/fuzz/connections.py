"""Hostile connections: sockets to a broker over which a fuzzer speaks as a client or as a neighbour.

A connection that the broker closes is opened again for the next thing to say. What was said last, over all
connections, is kept for the report of a failure.
"""

from __future__ import annotations

import json
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import Any, get_args

from tidemark.errors import WireError
from tidemark.lab.fuzz.frame_maker import DECLARED, KINDS, FrameMaker
from tidemark.lab.fuzz.secured import Judge, Proving
from tidemark.lab.fuzz.values import PUBLISHERS, SUBSCRIBERS, HostileValues
from tidemark.node.connection import FROM_CLIENT
from tidemark.ticks import TICK_FIRST, CheckpointToken, nearest_position
from tidemark.wire import answers
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    Ack,
    Answer,
    Ask,
    Claim,
    Connect,
    Credit,
    Deliver,
    Fetch,
    Fetched,
    Frame,
    Heard,
    Hello,
    Interest,
    Knowledge,
    Lease,
    Leased,
    Nack,
    Overlay,
    PeerFrame,
    Ping,
    Pong,
    Publish,
    Published,
    Recall,
    Recalled,
    Refused,
    Release,
    Rest,
    Resume,
    Subscribe,
    Topic,
    Unsubscribe,
    Welcome,
)
from tidemark.wire.limits import FRAME_BYTES_MAX, LINK_NEWEST, PROTOCOL_NEWEST
from tidemark.wire.questions import Question
from tidemark.wire.security.frames import Challenge, LinkProof, Login, Proof

#: How many of the frames that were said last are kept.
LAST_MAX = 60
#: A broker that is busy, or does not run because others do, may take this long to take what is said, or to
#: answer a handshake.
PATIENCE_SECONDS = 300.0
#: How often a value that would fit is left to chance after all.
LEFT_TO_CHANCE = 0.04
#: How often a neighbour answers a fetch with something else than was asked for.
WRONG_ANSWERS = 0.2
#: So many steps after it was refused a neighbour comes again.
REFUSED_STEPS = 100
#: Every question of administrators.
QUESTIONS = tuple(each.what for each in vars(answers).values() if isinstance(each, Question))


class Said:
    """What was said over all connections: how much of each kind, and the last of it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: frames of the broker
        self.heard: Counter[str] = Counter()
        self.last: deque[str] = deque(maxlen=LAST_MAX)

    @property
    def frames(self) -> int:
        """The number of frames."""
        return self.counts.total()

    def add(self, who: str, kind: str, shown: str) -> None:
        """Somebody has said a frame."""
        self.counts[kind] += 1
        self.last.append(f"{who}: {shown or kind}")


class HostileConnection:
    """One socket to the broker, opened when there is something to say."""

    #: how often a value is one that the decoder refuses
    nonsense = 0.05

    def __init__(
        self, who: str, address: tuple[str, int], values: HostileValues, maker: FrameMaker, said: Said
    ) -> None:
        self.who = who
        self._address = address
        self._values = values
        self._chance: Random = values.chance
        self._maker = maker
        self._said = said
        self._socket: socket.socket | None = None
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        #: frames of the broker that were not looked at yet
        self._unread: deque[Frame] = deque(maxlen=64)
        #: makes the proofs of a connection, where the broker asks for any
        self.prove: Callable[[], Proving] | None = None
        #: says what is wrong with a frame of the broker
        self.judge: Judge | None = None
        #: the address that it calls from; "" for any
        self.host = ""

    @property
    def is_open(self) -> bool:
        """Whether the broker has not closed the connection, as far as is known."""
        return self._socket is not None

    def close(self) -> None:
        """Close the socket; the next frame opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def step(self) -> None:
        """Hear what has come, and say something hostile."""
        self.hear()
        if not self.is_open and not self._open():
            return
        for raw, kind, shown in self._next():
            if self._chance.random() < self.nonsense / 2 and len(raw) > 8:
                at = self._chance.randrange(8, len(raw))
                raw = raw[:at] + self._chance.randbytes(1) + raw[at + 1 :]
                shown = f"{shown} and a byte changed: {raw.hex()[:400]}"
            self._send(raw, kind, shown)

    def hear(self) -> None:
        """Take what the broker has said."""
        while self._socket is not None:
            try:
                self._socket.settimeout(0)
                data = self._socket.recv(1 << 16)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                return
            self._take(data)

    # The handshake.

    def _open(self) -> bool:
        """Open a connection and introduce oneself. Returns whether the broker has accepted that."""
        raise NotImplementedError

    def _connect(self, *first: Frame, wanted: tuple[type[Frame], ...]) -> Frame | None:
        """Open a socket and say these frames. Returns the first answer that is wanted; None if none comes."""
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self._unread.clear()
        proving = self.prove() if self.prove is not None else None
        source = (self.host, 0) if self.host else None
        try:
            self._socket = socket.create_connection(self._address, PATIENCE_SECONDS, source)
            self._socket.sendall(_bytes(first))
            while True:
                for frame in list(self._unread):
                    if isinstance(frame, (*wanted, Refused)):
                        return frame
                    if proving is not None and isinstance(frame, Login | Challenge):
                        self._unread.remove(frame)
                        self._socket.sendall(_bytes(proving.answer(frame)))
                self._socket.settimeout(PATIENCE_SECONDS)
                data = self._socket.recv(1 << 16)
                if not data:
                    self.close()
                    return None
                self._take(data)
        except OSError:
            self.close()
            return None

    def _take(self, data: bytes) -> None:
        try:
            frames = self._decoder.feed(data)
        except WireError as error:
            raise AssertionError(f"the broker says what cannot be read: {error}") from error
        for frame in frames:
            self._said.heard[type(frame).__name__] += 1
            problem = self.judge(frame) if self.judge is not None else ""
            if problem:
                raise AssertionError(f"{self.who}: {problem}")
            self._values.learn(frame)
            self._unread.append(frame)

    def _send(self, raw: bytes, kind: str, shown: str) -> None:
        if self.is_open and raw:
            self._said.add(self.who, kind, shown)
            self._give(raw)

    def _give(self, raw: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.settimeout(PATIENCE_SECONDS)
            self._socket.sendall(raw)
        except OSError:
            self.close()

    # What is said.

    def _next(self) -> list[tuple[bytes, str, str]]:
        """The next frames to say."""
        raise NotImplementedError

    def _made(self, kind: type[Any], **fixed: Any) -> tuple[bytes, str, str]:
        """A frame of this kind; each of `fixed` is at times left to chance after all."""
        self._values.nonsense = self.nonsense
        kept = {name: value for name, value in fixed.items() if self._chance.random() > LEFT_TO_CHANCE}
        raw, shown = self._maker.make(kind, **kept)
        return raw, kind.__name__, shown


class HostileClient(HostileConnection):
    """A client that subscribes, publishes, asks and fetches, none of it as it should."""

    #: kinds of frames that brokers take from clients, the more interesting ones twice
    KINDS = (
        *sorted(FROM_CLIENT, key=str), Ask, Lease, Ping, Pong,
        Publish, Subscribe, Ack, Fetch, Ask,
    )  # fmt: skip

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: (pubend, publisher) -> the sequence number that the broker expects next
        self._sequences: dict[tuple[str, str], int] = {}
        #: the ticket of this client's lease
        self._lease = ""

    def _open(self) -> bool:
        resumed = self._lease and self._chance.random() < 0.5
        lease, self._lease = self._lease, ""
        # Now and then it speaks as an older client does.
        newest = PROTOCOL_NEWEST if self._chance.random() < 0.9 else 2
        first = Resume(lease, 1, newest) if resumed else Connect(self.who, 1, newest)
        answer = self._connect(first, wanted=(Welcome,))
        if not isinstance(answer, Welcome):
            self.close()
        return self._socket is not None

    def _next(self) -> list[tuple[bytes, str, str]]:
        chance = self._chance
        while self._unread:
            frame = self._unread.popleft()
            if isinstance(frame, Leased):
                self._lease = frame.ticket
                if self.judge is None:
                    # Whoever has a ticket is the client that it was given to. Those who are judged by who
                    # they are therefore do not hear of each other's tickets.
                    self._values.leases.append(frame.ticket)
            elif isinstance(frame, Published):
                self._sequences[frame.pubend, frame.publisher] = frame.sequence + 1
            elif isinstance(frame, Deliver) and chance.random() < 0.3:
                return [self._acked(frame)]
            elif isinstance(frame, Recall):
                return [self._recalled(frame)]
        if chance.random() < 0.01:
            self.close()
            return []
        if chance.random() < self.nonsense:
            return [self._made(chance.choice(KINDS))]
        if chance.random() < 0.7:
            return [self._made(chance.choice(self.KINDS))]
        scripts = (
            self._taken_over, self._published, self._subscribed, self._behind, self._asked, self._leased
        )  # fmt: skip
        return chance.choice(scripts)()

    def _acked(self, frame: Deliver) -> tuple[bytes, str, str]:
        """Acknowledge what came, or what has not come yet."""
        tick = nearest_position(self._values.pick((frame.base, frame.upto, self._values.tick())))
        return self._made(Ack, tokens=((frame.name, CheckpointToken({frame.pubend: tick})),))

    def _recalled(self, frame: Recall) -> tuple[bytes, str, str]:
        return self._made(Recalled, ticket=frame.ticket, base=frame.base, upto=frame.upto)

    def _taken_over(self) -> list[tuple[bytes, str, str]]:
        """The same subscription again and again, each time with something else of it changed."""
        name, stamp = self._values.pick(SUBSCRIBERS), self._values.number("stamp")
        fixed: dict[str, Any] = {"name": name, "stamp": stamp, "durable": True, "selector": ""}
        patterns = ("evil.>", "evil.a", ">", "evil.*")
        return [self._made(Subscribe, pattern=each, **fixed) for each in self._chance.sample(patterns, 3)]

    def _published(self) -> list[tuple[bytes, str, str]]:
        """Events of a declared schema, with the numbers that the broker expects, and then perhaps not."""
        number, publisher = self._chance.randrange(len(DECLARED)), self._values.pick(PUBLISHERS)
        topic, pubend = f"evil.declared.{number}", self._values.text("pubend")
        sequence = self._sequences.get((pubend, publisher), 1)
        said = [self._made(Topic, topic=topic, is_open=False, schemas=(DECLARED[number].text,))]
        for _ in range(self._chance.randrange(1, 4)):
            batch = self._maker.batch_of(topic, number)
            fixed = {"pubend": pubend, "publisher": publisher, "sequence": sequence}
            said.append(self._made(Publish, batch=batch, **fixed))
            sequence += batch.count if self._chance.random() < 0.8 else self._chance.choice((0, 1, 2))
        return said

    def _subscribed(self) -> list[tuple[bytes, str, str]]:
        """A subscription from its beginning to its end."""
        name = self._values.pick(SUBSCRIBERS)
        selector = self._values.text("selector") if self._chance.random() < 0.5 else ""
        return [
            self._made(Subscribe, name=name, pattern="evil.>", selector=selector, durable=True),
            self._made(Credit, name=name),
            self._made(Ack),
            self._made(Fetch, pattern=">", selector=""),
            self._made(Unsubscribe, name=name),
        ]

    def _behind(self) -> list[tuple[bytes, str, str]]:
        """A durable subscriber that has consumed little of some pubend, which has to be fetched for it."""
        name, pubend = self._values.pick(SUBSCRIBERS), self._values.text("pubend") or "nowhere"
        token = CheckpointToken({pubend: self._values.pick((0, 1, 1_000_000, TICK_FIRST))})
        fixed: dict[str, Any] = {"name": name, "durable": True, "credit": 1 << 30, "token": token}
        return [self._made(Subscribe, pattern="evil.>", selector="", **fixed), self._made(Credit, name=name)]

    def _asked(self) -> list[tuple[bytes, str, str]]:
        return [self._made(Ask, what=self._values.pick(QUESTIONS)) for _ in range(2)]

    def _leased(self) -> list[tuple[bytes, str, str]]:
        """A lease, and at times a rest."""
        key = "evil" * 8 + str(self._chance.randrange(10))
        said = [self._made(Lease, seconds=5, address="127.0.0.1:9", key=key)]
        return [*said, self._made(Rest)] if self._chance.random() < 0.4 else said


class HostileStranger(HostileClient):
    """A client that never says who it is, although the broker asks for it."""

    KINDS = (*HostileClient.KINDS, Proof, Proof, Hello, Challenge, LinkProof)

    def _open(self) -> bool:
        answer = self._connect(Connect(self.who, 1, PROTOCOL_NEWEST), wanted=(Login,))
        if not isinstance(answer, Login):
            self.close()
        return self._socket is not None


def pubend_of(neighbour: str) -> str:
    """The pubend that a neighbour hosts."""
    return f"p{neighbour}"


class HostileNeighbour(HostileConnection):
    """A broker of the topology, which says of its pubend and of others whatever it likes.

    It says what cannot be decoded more rarely than a client: a neighbour that was refused is left alone.
    """

    nonsense = 0.004

    KINDS = (
        *sorted(frozenset(get_args(PeerFrame)), key=str), Overlay,
        Interest, Knowledge, Knowledge, Nack, Release, Claim,
    )  # fmt: skip

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pubend = pubend_of(self.who)
        self._incarnation = 0
        #: steps until this neighbour comes again
        self._waits = 0
        #: the interest version that the broker has told this neighbour last, and the tick that it was told
        self._version = 0
        self._at = 1_000_000

    def _open(self) -> bool:
        self._waits -= 1
        if self._waits > 0:
            return False
        self._incarnation += 1
        # Without a proof it goes on when it is asked for one.
        wanted: tuple[type[Frame], ...] = (Hello,) if self.prove is not None else (Hello, Challenge)
        answer = self._connect(Hello(self.who, self._incarnation), wanted=wanted)
        if not isinstance(answer, wanted):
            self._waits = REFUSED_STEPS
            self.close()
        return self._socket is not None

    def _next(self) -> list[tuple[bytes, str, str]]:
        chance = self._chance
        while self._unread:
            answer = self._answered(self._unread.popleft())
            if answer is not None and chance.random() < 0.6:
                return [answer]
        if chance.random() < 0.005:
            self.close()
            return []
        if chance.random() < self.nonsense / 2:
            return [self._made(chance.choice(KINDS))]
        if chance.random() < 0.3:
            return [self._known()]
        kind = chance.choice(self.KINDS)
        if kind is Hello:
            return [self._made(Hello, broker=self.who, oldest=2, newest=LINK_NEWEST)]
        return [self._made(kind)]

    def _known(self) -> tuple[bytes, str, str]:
        """The next part of this neighbour's own stream, as if it were a good one."""
        base, self._at = self._at, self._at + self._chance.choice((10, 1_000, 1_000_000))
        fixed = {"base": base, "upto": self._at, "lost": 0, "version": self._version}
        return self._made(Knowledge, pubend=self._pubend, first=True, damaged=(), **fixed)

    def _answered(self, frame: Frame) -> tuple[bytes, str, str] | None:
        """An answer to a frame of the broker, nearly right; None if there is nothing to answer."""
        match frame:
            case Interest(pubend, version, _):
                self._version = version
                return self._made(Knowledge, pubend=pubend, first=True, version=version)
            case Nack(pubend, ranges, version):
                base, upto = self._values.pick(ranges)
                fixed = {"base": base, "upto": upto, "version": version, "first": False, "lost": 0}
                return self._made(Knowledge, pubend=pubend, damaged=(), **fixed)
            case Fetch(ticket, pubend, base, upto):
                answer: dict[str, Any] = {"pubend": pubend, "base": base, "upto": upto, "lost": 0}
                if self._chance.random() < WRONG_ANSWERS:
                    del answer[self._values.pick(("pubend", "pubend", "base", "upto", "lost"))]
                return self._made(Fetched, ticket=ticket, damaged=(), **answer)
            case Release(pubend, rows) if rows:
                row = self._values.pick(rows)
                return self._made(Heard, pubend=pubend, host=row.host, sequence=row.sequence)
            case Claim(name, epoch, _, _):
                is_answered = name in SUBSCRIBERS and self._chance.random() < 0.1
                return self._made(Claim, name=name, epoch=epoch) if is_answered else None
        return None


def ask(address: tuple[str, int], what: str, proving: Proving | None = None, **arguments: object) -> str:
    """Ask the broker a question, as an administrator does. Returns the JSON of the answer, "" if it refuses.

    `proving` logs in where there are accounts. Raises AssertionError if the broker does not answer in time.
    """
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    try:
        with socket.create_connection(address, timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(_bytes((Connect("watch", 1, PROTOCOL_NEWEST),)))
            while data := connection.recv(1 << 16):
                for found in decoder.feed(data):
                    if isinstance(found, Welcome):
                        connection.sendall(_bytes((Ask(1, what, json.dumps(arguments)),)))
                    elif proving is not None and (proof := proving.answer(found)):
                        connection.sendall(_bytes(proof))
                    if isinstance(found, Answer | Refused):
                        return found.payload if isinstance(found, Answer) else ""
    except OSError as error:
        raise AssertionError(f"the broker does not answer: {error}") from error
    raise AssertionError("the broker closes the connection of an administrator")


def _bytes(frames: Iterable[Frame]) -> bytes:
    return b"".join(bytes(piece) for frame in frames for piece in encode(frame))


def closed(connections: list[HostileConnection]) -> None:
    """Close all of them."""
    for each in connections:
        with suppress(OSError):
            each.close()
