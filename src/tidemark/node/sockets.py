"""Sockets: what a connection sets at its socket, and what the kernel knows of it. Linux knows the most."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from tidemark.message.batches.batch import Buffer
from tidemark.node.config.units import HostPort
from tidemark.wire.liveness.tcp_info import SIZE as TCP_INFO_BYTES
from tidemark.wire.liveness.tcp_info import TcpInfo

#: The kernel probes a connection over which nothing came for the first of these seconds, then once a second;
#: after as many probes without an answer as the last number says, the connection ends.
KEEPALIVE = (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3))
#: Bytes that the kernel takes from a link beyond what it can send, which live frames wait for there: what the
#: line carries in the part of a second that NOTSENT_PART says, within these bounds.
NOTSENT_BYTES_MIN, NOTSENT_BYTES_MAX = 16 << 10, 64 << 10
NOTSENT_PART = 8


def keep_alive(transport: asyncio.Transport) -> None:
    """Let the kernel find out by itself, at no cost to this process, that an idle peer has vanished."""
    found: Any = transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def bound_kernel_queue(transport: asyncio.Transport, bytes_per_second: int) -> None:
    """Let what the kernel cannot send yet wait in this process, where live frames go before history.

    `bytes_per_second`: what the line was seen to carry; 0 if nothing was measured.
    """
    found: Any = transport.get_extra_info("socket")
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if found is not None and option is not None:
        with suppress(OSError):  # not a socket of TCP
            size = min(max(NOTSENT_BYTES_MIN, bytes_per_second // NOTSENT_PART), NOTSENT_BYTES_MAX)
            found.setsockopt(socket.IPPROTO_TCP, option, size)


def write_pieces(transport: asyncio.Transport, pieces: list[Buffer]) -> None:
    """Write the pieces of encoded frames.

    TLS makes a record of each piece that it is given, with a call and a cipher's beginning of its own, and
    copies it anyway: so it gets the pieces as one.
    """
    if transport.get_extra_info("ssl_object") is None:
        transport.writelines(pieces)
    else:
        transport.write(b"".join(pieces))


def observed(transport: asyncio.Transport) -> TcpInfo | None:
    """Return what the kernel knows of a connection; None where it does not say."""
    found: Any = transport.get_extra_info("socket")
    if found is None or not hasattr(socket, "TCP_INFO"):
        return None
    with suppress(OSError):  # not a socket of TCP, or closed
        return TcpInfo.parse(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES))
    return None


def is_here(address: str) -> bool:
    """Returns whether `address` is a loopback address, and so one of this machine."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


async def call_back(protocol: asyncio.BaseProtocol, address: HostPort, tls: ssl.SSLContext | None) -> None:
    """Connect `protocol` to a client that listens at `address`. Raises OSError if nobody does.

    With TLS this side is the server although it has called: it shows its certificate, which the client knows
    already, and the client needs none.
    """
    loop = asyncio.get_running_loop()
    if tls is None:
        await loop.create_connection(lambda: protocol, address.host, address.port)
        return
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    family, kind, number, _, where = found[0]
    called = socket.socket(family, kind, number)
    called.setblocking(False)
    try:
        await loop.sock_connect(called, where)
        await loop.connect_accepted_socket(lambda: protocol, called, ssl=tls)
    except BaseException:
        called.close()
        raise
