"""The addresses that a link tries when brokers send its client away, and how long it waits in between."""

from __future__ import annotations

import asyncio
from math import inf

from tests.ports import free_ports
from tidemark.client.connecting.addresses import SocketAddress
from tidemark.client.connecting.backoff import Backoff
from tidemark.client.connecting.link import NAMED_MAX, REFUSED_SECONDS_MAX, Link, joined


def at(port: int) -> SocketAddress:
    return SocketAddress("127.0.0.1", port)


def test_the_brokers_that_were_named_come_first_and_the_one_that_is_drained_last() -> None:
    assert joined([at(3), at(1)], [at(2)], at(1), {at(1), at(2)}) == [at(3), at(2), at(1)]


def test_brokers_that_send_a_client_to_and_fro_do_not_make_its_list_grow_without_end() -> None:
    given = {at(1), at(2)}
    known = [at(1), at(2)]
    for turn in range(50):
        named = [at(1_000 + turn * 64 + each) for each in range(64)]
        known = joined(named, known[1:], known[0], given)
    assert given <= set(known)
    assert len(known) <= NAMED_MAX + len(given) + 1  # the present one may be among those that were named
    assert known[0] == at(1_000 + 49 * 64)


class NotedBackoff(Backoff):
    """Does not wait, and notes how long each wait might be at the most."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds: list[float] = []
        self.enough = asyncio.Event()

    def delay(self, upto: float = inf) -> float:
        self.bounds.append(upto)
        if len(self.bounds) == 3:
            self.enough.set()
        return 0.0


async def bounds_of_waits(port: int) -> list[float]:
    """Returns the bounds of the first waits of a link to this port of the loopback address."""
    backoff = NotedBackoff()
    link = Link(
        [at(port)],
        "c",
        on_frame=lambda _: None,
        on_up=lambda _: None,
        on_down=lambda: None,
        on_writable=lambda: None,
        backoff=backoff,
    )
    opening = asyncio.create_task(link.open(timeout=60))
    await backoff.enough.wait()
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    return backoff.bounds[:3]


def test_a_broker_that_is_being_started_again_is_called_soon() -> None:
    (port,) = free_ports(1)
    assert asyncio.run(bounds_of_waits(port)) == [REFUSED_SECONDS_MAX] * 3


def test_a_broker_that_turns_its_clients_away_is_left_alone_for_longer() -> None:
    async def bounds() -> list[float]:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            return await bounds_of_waits(server.sockets[0].getsockname()[1])

    assert asyncio.run(bounds()) == [inf] * 3
