"""Where brokers are: `tidemark://host:port[,host:port...]`, any of which will do."""

from __future__ import annotations

import re
from typing import NamedTuple

from tidemark.errors import ConfigError

SCHEME = "tidemark://"
PORT_DEFAULT = 7676
ADDRESSES_MAX = 64

_PART = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/?#@\[\]]+))(?::(?P<port>\d{1,5}))?")


class Address(NamedTuple):
    """One broker's."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_url(url: str) -> tuple[Address, ...]:
    """The brokers that a URL names, in its order; ConfigError if it names none."""
    if not url.startswith(SCHEME):
        raise ConfigError(f"{url!r} is not a broker's URL: write {SCHEME}host:port", key="url")
    parts = url.removeprefix(SCHEME).removesuffix("/").split(",")
    if len(parts) > ADDRESSES_MAX:
        raise ConfigError(f"at most {ADDRESSES_MAX} brokers can be named, not {len(parts)}", key="url")
    return tuple(dict.fromkeys(_address(part, url) for part in parts))


def _address(text: str, url: str) -> Address:
    match = _PART.fullmatch(text)
    port = int(match["port"]) if match and match["port"] else PORT_DEFAULT
    if match is None or not 0 < port < 65_536:
        raise ConfigError(
            f"{text!r} in {url!r} is not host:port: write {SCHEME}127.0.0.1:{PORT_DEFAULT}", key="url"
        )
    return Address(match["six"] or match["host"], port)
