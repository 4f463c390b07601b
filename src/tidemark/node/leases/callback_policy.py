"""The callback policy: which addresses a broker calls because a client asked it to.

A broker that connects to any address it is told lets its clients reach machines that they cannot reach
themselves. So a broker calls a client only at the client's own address, as the broker sees it, and only in a
private network or on the same machine; every other address has to be allowed by `subscribers.callbacks`.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from tidemark.errors import ConfigError

Ip = IPv4Address | IPv6Address


def may_call(host: str, caller: str, patterns: Iterable[str]) -> bool:
    """Returns whether a client that is connected from the address `caller` may be called at `host`."""
    ip, own = _ip(host), _ip(caller)
    if ip is None or own is None or not _is_near(ip):
        is_own = False
    else:
        is_own = ip == own or (ip.is_loopback and own.is_loopback)
    return is_own or any(_matches(pattern, host, ip) for pattern in patterns)


def check_patterns(patterns: Iterable[str]) -> None:
    """Raises ConfigError for a pattern that is written like a network and is none."""
    for pattern in patterns:
        try:
            if "/" in pattern:
                ip_network(pattern)
        except ValueError as error:
            raise ConfigError(f'{error}; write a network like "10.0.0.0/8", or a name') from None


def _matches(pattern: str, host: str, ip: Ip | None) -> bool:
    if "/" in pattern:
        return ip is not None and ip in ip_network(pattern)
    return fnmatchcase(host.lower(), pattern.lower())


def _is_near(ip: Ip) -> bool:
    """Returns whether `ip` is private, and not one of the addresses with a special meaning.

    169.254.169.254, for one, gives away secrets in many clouds.
    """
    special = ip.is_link_local or ip.is_unspecified or ip.is_multicast or ip.is_reserved
    return ip.is_loopback or (ip.is_private and not special)


def _ip(host: str) -> Ip | None:
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
