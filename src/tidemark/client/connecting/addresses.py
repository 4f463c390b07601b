"""Addresses: `tidemark://host:port[,host:port...]` names brokers, any of which a client may connect to.

`tidemark+tls://` names brokers that are reached over TLS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple

from tidemark.errors import ConfigError

SCHEME = "tidemark://"
TLS_SCHEME = "tidemark+tls://"
PORT_DEFAULT = 7676
PORT_MAX = 65_535
ADDRESSES_MAX = 64
WITHOUT_USER = (
    "a broker's URL has no user and no password in it: give user= and password= to connect(), or set "
    "TIDEMARK_USER and TIDEMARK_PASSWORD_FILE"
)

_PART = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/?#@\[\]]+))(?::(?P<port>\d{1,5}))?")


class SocketAddress(NamedTuple):
    """Where a broker, or a client that is called by its broker, listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_url(url: str) -> tuple[SocketAddress, ...]:
    """The brokers that `url` names, in its order, each once; ConfigError if it is malformed.

    `host:port` alone is taken as `tidemark://host:port`. A user and a password have no place in a URL, which
    is shown, logged and kept in plans and checkpoints: such a URL is refused and not repeated.
    """
    if "@" in url:
        raise ConfigError(WITHOUT_USER, key="url")
    if "://" not in url and ":" in url:
        url = SCHEME + url
    if not url.startswith((SCHEME, TLS_SCHEME)):
        raise ConfigError(f"{url!r} is not a broker's URL: write {SCHEME}host:port", key="url")
    parts = url.removeprefix(SCHEME).removeprefix(TLS_SCHEME).removesuffix("/").split(",")
    if len(parts) > ADDRESSES_MAX:
        raise ConfigError(f"at most {ADDRESSES_MAX} brokers can be named, not {len(parts)}", key="url")
    return tuple(dict.fromkeys(_address(part, url) for part in parts))


def is_loopback(host: str) -> bool:
    """Whether an address of a socket is one of this machine, which nobody else can read from."""
    with suppress(ValueError):
        return ip_address(host.partition("%")[0]).is_loopback
    return False


def is_tls(url: str) -> bool:
    """Whether the brokers that `url` names are reached over TLS."""
    return url.startswith(TLS_SCHEME)


def parse_addresses(texts: Iterable[str]) -> tuple[SocketAddress, ...]:
    """Return the addresses of brokers that another broker named, without those that are not host:port."""
    found = []
    for text in texts:
        with suppress(ConfigError):
            found.append(_address(text, text))
    return tuple(dict.fromkeys(found))


def parse_listen(text: str) -> SocketAddress:
    """The address `host:port` to listen at; port 0 lets the system choose. ConfigError if it is malformed."""
    match = _PART.fullmatch(text)
    if match is None or match["port"] is None or int(match["port"]) > PORT_MAX:
        raise ConfigError(f"{text!r} is not an address: write host:port, like 127.0.0.1:0", key="listen")
    return SocketAddress(match["six"] or match["host"], int(match["port"]))


def _address(text: str, url: str) -> SocketAddress:
    match = _PART.fullmatch(text)
    port = int(match["port"]) if match and match["port"] else PORT_DEFAULT
    if match is None or not 0 < port <= PORT_MAX:
        raise ConfigError(
            f"{text!r} in {url!r} is not host:port: write {SCHEME}127.0.0.1:{PORT_DEFAULT}", key="url"
        )
    return SocketAddress(match["six"] or match["host"], port)
