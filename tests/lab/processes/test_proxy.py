"""The faulty proxy does what it is told, and nothing else, to the bytes between two processes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.waiting import PATIENCE_SECONDS
from tidemark.lab.processes.proxy import Proxy


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads: list[threading.Thread] = []

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listening.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=answer, args=(accepted,), daemon=True))
                threads[-1].start()

        acceptor = threading.Thread(target=serve, daemon=True)
        acceptor.start()
        host, port = listening.getsockname()
        yield f"{host}:{port}"
        listening.shutdown(socket.SHUT_RDWR)
        for thread in (acceptor, *threads):
            thread.join(PATIENCE_SECONDS)


def answer(accepted: socket.socket) -> None:
    with accepted:
        try:
            while data := accepted.recv(1 << 16):
                accepted.sendall(data)
        except OSError:
            return


def call(proxy: Proxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_SECONDS)


def heard(caller: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = caller.recv(count - len(data))
        assert piece, "closed, not reset"
        data += piece
    return data


def test_bytes_pass_both_ways_also_when_delayed(echo: str) -> None:
    sent = bytes(range(256)) * 1_000
    with Proxy(echo) as proxy, call(proxy) as caller:
        for seconds in (0.0, 0.01):
            proxy.delay(seconds)
            sender = threading.Thread(target=caller.sendall, args=(sent,))
            sender.start()
            assert heard(caller, len(sent)) == sent
            sender.join(PATIENCE_SECONDS)
        assert (proxy.calls, proxy.resets) == (1, 0)


def test_a_reset_comes_after_just_so_many_bytes(echo: str) -> None:
    with Proxy(echo) as proxy, call(proxy) as caller:
        caller.sendall(b"whole")
        assert heard(caller, 5) == b"whole"
        proxy.reset_after(3)
        caller.sendall(b"torn")
        with pytest.raises(ConnectionResetError):
            heard(caller, 4)
        assert proxy.resets == 1
        with call(proxy) as again:
            again.sendall(b"well")
            assert heard(again, 4) == b"well"


def test_a_half_open_connection_is_silent_until_it_is_healed(echo: str) -> None:
    with Proxy(echo) as proxy, call(proxy) as caller:
        caller.sendall(b"a")
        assert heard(caller, 1) == b"a"
        proxy.hold()
        caller.sendall(b"b")
        caller.settimeout(0.1)
        with pytest.raises(TimeoutError):
            caller.recv(1)
        caller.settimeout(PATIENCE_SECONDS)
        proxy.heal()
        with pytest.raises(ConnectionResetError):
            heard(caller, 1)
        with call(proxy) as again:
            again.sendall(b"c")
            assert heard(again, 1) == b"c"


def test_a_call_is_refused_while_nobody_shall_be_there(echo: str) -> None:
    with Proxy(echo) as proxy:
        proxy.refuse()
        with pytest.raises(ConnectionResetError), call(proxy) as caller:
            heard(caller, 1)
        proxy.heal()
        with call(proxy) as again:
            again.sendall(b"d")
            assert heard(again, 1) == b"d"
