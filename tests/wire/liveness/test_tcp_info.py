"""TcpInfo: what is read of the kernel's bytes, on a real socket and on bytes made by hand."""

from __future__ import annotations

import socket
import sys

import pytest

from tidemark.wire.liveness.tcp_info import SIZE, TcpInfo


def info_of(**fields: int) -> TcpInfo:
    offsets = {"retransmits": (2, 1), "probes": (3, 1), "flags": (7, 1), "last_ack_recv": (56, 4)}
    offsets |= {"bytes_acked": (120, 8), "min_rtt": (148, 4), "delivery_rate": (160, 8)}
    data = bytearray(SIZE)
    for name, value in fields.items():
        at, size = offsets[name]
        data[at : at + size] = value.to_bytes(size, "little")
    info = TcpInfo.parse(bytes(data))
    assert info is not None
    return info


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this layout")
def test_what_a_real_socket_has_acknowledged() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        other, _ = server.accept()
        with other:
            one.sendall(b"x" * 1_000)
            assert other.recv(1_000, socket.MSG_WAITALL) == b"x" * 1_000
            other.sendall(b"y")
            assert one.recv(1) == b"y"
            info = TcpInfo.parse(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SIZE))
    assert info is not None
    assert info.acknowledged in (1_000, 1_001)  # the kernel counts the first packet as a byte
    assert info.round_trip_us is not None
    assert not info.is_unreachable(1.0)


def test_a_machine_that_answers_no_repetition_is_unreachable_and_one_that_is_asked_nothing_is_not() -> None:
    assert info_of(retransmits=3, last_ack_recv=5_500).is_unreachable(5.0)
    assert info_of(probes=3, last_ack_recv=5_500).is_unreachable(5.0)
    assert not info_of(retransmits=3, last_ack_recv=4_500).is_unreachable(5.0)
    assert not info_of(last_ack_recv=60_000).is_unreachable(5.0)


def test_a_rate_that_is_only_what_there_was_to_send_says_so() -> None:
    assert info_of(flags=1, delivery_rate=900).is_rate_a_lower_bound
    assert info_of(delivery_rate=900).bytes_per_second == 900
    assert (info_of().bytes_per_second, info_of(min_rtt=0xFFFF_FFFF).round_trip_us) == (None, None)


def test_an_answer_that_is_too_short_says_nothing() -> None:
    assert TcpInfo.parse(bytes(SIZE - 1)) is None
