"""The addresses that a link tries when brokers send its client away."""

from __future__ import annotations

from tidemark.client.connecting.addresses import SocketAddress
from tidemark.client.connecting.link import NAMED_MAX, joined


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
