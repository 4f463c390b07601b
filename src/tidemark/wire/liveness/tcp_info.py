"""TcpInfo: what the kernel of Linux knows about one TCP connection (struct tcp_info of linux/tcp.h).

Whoever has the socket reads the bytes with getsockopt(IPPROTO_TCP, TCP_INFO, SIZE). Other systems have no
such option, or another layout: there is no TcpInfo there, and connections are judged by what is said alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

#: Bytes to ask the kernel for. The fields used here have been there since Linux 4.9.
SIZE = 168
#: retransmits, probes; whether delivery_rate is limited by the application; last_ack_recv; bytes_acked,
#: min_rtt, delivery_rate
_FIELDS = Struct("<2xBB3xB48xI60xQ20xI8xQ")
assert _FIELDS.size == SIZE
_RTT_UNKNOWN = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class TcpInfo:
    """One observation of a connection."""

    #: bytes that the other side's kernel has acknowledged
    acknowledged: int
    #: repetitions of what is under way, and probes of an idle or full receiver, that were not answered
    unanswered: int
    #: seconds since the other side's kernel acknowledged anything
    quiet_seconds: float
    #: the shortest round trip, in microseconds; None if none was measured
    round_trip_us: int | None
    #: bytes a second that arrived at the other side; None if nothing was measured
    bytes_per_second: int | None
    #: whether `bytes_per_second` is only what this side had to send, and the line may be faster
    is_rate_a_lower_bound: bool

    @classmethod
    def parse(cls, data: bytes) -> TcpInfo | None:
        """Return what the kernel's bytes say; None if they are shorter than SIZE."""
        if len(data) < SIZE:
            return None
        retransmits, probes, flags, quiet_ms, acknowledged, round_trip, rate = _FIELDS.unpack_from(data)
        return cls(
            acknowledged,
            retransmits + probes,
            quiet_ms / 1_000,
            None if round_trip in (0, _RTT_UNKNOWN) else round_trip,
            rate or None,
            bool(flags & 1),
        )

    def is_unreachable(self, seconds: float) -> bool:
        """Return whether the other machine has answered nothing for `seconds`, although it was tried.

        A process that is stopped or busy is not unreachable: its kernel answers.
        """
        return self.unanswered > 0 and self.quiet_seconds > seconds
