"""The acceptor: which worker gets a connection, whatever its first bytes are, and when there is no worker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tidemark.node.workers import acceptor as module
from tidemark.node.workers.acceptor import Acceptor
from tidemark.node.workers.handover import channel, write_hint
from tidemark.wire import rendezvous
from tidemark.wire.codec import encode
from tidemark.wire.frames import Connect, Frame, Hello, Resume

NAMES = ("worker-1", "worker-2", "worker-3")
PATIENCE = 5.0
HERE = rendezvous.chosen("127.0.0.1", NAMES)


def bytes_of(frame: Frame) -> bytes:
    return b"".join(bytes(each) for each in encode(frame))


def is_closed(client: socket.socket) -> bool:
    """Whether the other side has closed a connection."""
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


class House:
    """An acceptor with three workers, of which this test is all, on a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        pairs = {name: channel() for name in NAMES}
        self.ends = {name: theirs for name, (_, theirs) in pairs.items()}
        mine = {name: mine for name, (mine, _) in pairs.items()}
        self.acceptor = Acceptor(self.listener, mine, clock=lambda: self.now, patience=PATIENCE)
        self.opened: list[socket.socket] = []

    def close(self) -> None:
        self.acceptor.close()
        for each in (self.listener, *self.ends.values(), *self.opened):
            each.close()

    def client(self, said: bytes) -> socket.socket:
        """A client that has connected, and has said this."""
        made = socket.create_connection(self.listener.getsockname())
        made.sendall(said)
        self.opened.append(made)
        return made

    def turns(self, count: int = 3) -> None:
        for _ in range(count):
            self.acceptor.turn(0.02)

    def taken(self) -> list[tuple[str, bytes]]:
        """The sockets that workers were given since: the worker, and what there is to read."""
        found = []
        for name, end in self.ends.items():
            with suppress(BlockingIOError):
                while end.fileno() >= 0:
                    said, numbers, _, _ = socket.recv_fds(end, 1, 1)
                    if not said:
                        break
                    accepted = socket.socket(fileno=numbers[0])
                    self.opened.append(accepted)
                    accepted.setblocking(False)
                    try:
                        found.append((name, accepted.recv(4_096)))
                    except BlockingIOError:
                        found.append((name, b""))
        return found

    def until_taken(self) -> tuple[str, bytes]:
        """The next socket that a worker was given."""
        for _ in range(1_000):
            self.turns(1)
            found = self.taken()
            if found:
                (one,) = found
                return one
        raise AssertionError("no worker was given a socket")


@pytest.fixture
def house() -> Iterator[House]:
    made = House()
    yield made
    made.close()


def test_a_client_meets_the_worker_of_its_name_each_time_and_nothing_is_taken_from_it(house: House) -> None:
    for number in range(12):
        said = bytes_of(Connect(f"client-{number}"))
        for _ in range(2):
            house.client(said)
            assert house.until_taken() == (rendezvous.chosen(f"client-{number}", NAMES), said)


def test_clients_are_spread_over_all_workers() -> None:
    assert {rendezvous.chosen(f"client-{number}", NAMES) for number in range(50)} == set(NAMES)


def test_a_first_frame_that_comes_in_parts_is_waited_for_without_looking_all_the_time(house: House) -> None:
    said = bytes_of(Connect("slow"))
    client = house.client(said[:1])
    house.turns()
    for byte in said[1:-1]:
        client.sendall(bytes((byte,)))
    house.turns()
    assert house.taken() == []
    # Part of a frame is there, and does not wake the acceptor: it has nothing to do for as long as it may.
    assert house.acceptor._poll.poll(0) == []
    client.sendall(said[-1:])
    assert house.until_taken() == (rendezvous.chosen("slow", NAMES), said)


def test_who_says_nothing_in_time_goes_by_its_address(house: House) -> None:
    house.client(b"")
    house.turns()
    assert house.taken() == []
    house.now = PATIENCE
    assert house.until_taken() == (HERE, b"")


@pytest.mark.parametrize(
    "said",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600), b"GET / HTTP/1.1\r\n\r\n", bytes(64)],
)
def test_what_is_no_introduction_goes_by_its_address_for_a_worker_to_judge(house: House, said: bytes) -> None:
    house.client(said)
    assert house.until_taken() == (HERE, said)


def test_of_too_many_that_say_nothing_the_oldest_go_by_their_address(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNDECIDED_MAX", 3)
    for _ in range(5):
        house.client(b"")
    house.turns(10)
    assert house.taken() == [(HERE, b""), (HERE, b"")]
    house.client(bytes_of(Connect("honest")))
    found = [house.until_taken(), house.until_taken()]
    assert sorted(found) == sorted(
        [(HERE, b""), (rendezvous.chosen("honest", NAMES), bytes_of(Connect("honest")))]
    )


def test_a_client_that_goes_away_before_it_has_said_anything_is_forgotten(house: House) -> None:
    house.client(b"").close()
    house.turns()
    house.now = PATIENCE
    house.turns()
    assert house.taken() == []


def test_a_parked_client_comes_to_the_worker_of_its_ticket(house: House) -> None:
    for name in NAMES:
        said = bytes_of(Resume(f"0123456789abcdef@{name}"))
        house.client(said)
        assert house.until_taken() == (name, said)
    house.client(bytes_of(Resume("0123456789abcdef")))
    assert house.until_taken()[0] == HERE


def test_a_broker_that_calls_meets_the_first_worker(house: House) -> None:
    house.client(bytes_of(Hello("elsewhere", 3)))
    assert house.until_taken()[0] == NAMES[0]


def test_a_client_comes_where_a_worker_has_said_that_it_belongs(house: House) -> None:
    home = rendezvous.chosen("roamer", NAMES)
    other = next(name for name in NAMES if name != home)
    house.ends[home].send(write_hint("roamer", other))
    house.turns()
    house.client(bytes_of(Connect("roamer")))
    assert house.until_taken()[0] == other
    house.ends[other].send(write_hint("roamer", "worker-that-is-not-there"))
    house.turns()
    house.client(bytes_of(Connect("roamer")))
    assert house.until_taken()[0] == home


def test_connections_wait_for_a_worker_that_takes_none_and_no_more_than_are_allowed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    busy = rendezvous.chosen("busy", NAMES)
    # The smallest buffer that the system has: a few sockets fill the channel.
    house.acceptor._workers[busy].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    clients = [house.client(bytes_of(Connect("busy"))) for _ in range(40)]
    house.turns(20)
    # Others are served meanwhile.
    free = next(f"free-{n}" for n in range(99) if rendezvous.chosen(f"free-{n}", NAMES) != busy)
    house.client(bytes_of(Connect(free)))
    house.turns()
    found = house.taken()
    assert (rendezvous.chosen(free, NAMES), bytes_of(Connect(free))) in found
    in_channel = len(found) - 1
    house.turns()
    assert [name for name, _ in house.taken()] == [busy, busy]
    # The others were closed, and come again later.
    assert sum(is_closed(client) for client in clients) == 40 - in_channel - 2 > 0


def test_clients_of_a_worker_that_is_gone_for_good_go_to_the_others(house: House) -> None:
    gone = rendezvous.chosen("left", NAMES)
    house.ends[gone].close()
    house.client(bytes_of(Connect("left")))
    rest = [name for name in NAMES if name != gone]
    assert house.until_taken()[0] == rendezvous.chosen("left", rest)
    for name in rest:
        house.ends[name].close()
    house.turns()
    assert house.acceptor.is_over
