"""The options of the console, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LISTEN_DEFAULT = "127.0.0.1:7678"
#: Bytes of one request's body.
BODY_BYTES_MAX = 16 << 20
#: Seconds within which a body has come whole.
BODY_SECONDS = 300.0
#: Bytes of the bodies that are in memory at the same time, without those of at most BODY_SMALL_BYTES each.
BODIES_BYTES_MAX = 64 << 20
BODY_SMALL_BYTES = 64 << 10
#: Streams of events that are open at the same time, over all callers.
STREAMS_MAX = 4_096
#: Bytes of events that a broker may send ahead of what one stream's reader has taken.
STREAM_WINDOW_BYTES = 128 << 10
#: Principals whose connections are kept open, and for how many seconds after the last use.
CALLERS_MAX = 256
CALLER_IDLE_SECONDS = 300.0
#: Wrong logins from one address, or for one name, and the seconds after which one more is tried. It is fewer
#: than a broker minds, to which all users of a console come from one address.
WRONG_LOGINS_MAX = 10
WRONG_LOGIN_SECONDS = 10.0
#: Browser sessions that are kept, and their seconds without a request, and in all.
SESSIONS_MAX = 10_000
SESSION_IDLE_SECONDS = 1_800.0
SESSION_SECONDS = 8 * 3_600.0


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """How one console is run."""

    #: the broker, or several that stand in for each other
    url: str
    host: str = "127.0.0.1"
    port: int = 7678
    #: PEM files of the console's own certificate and key; without them it speaks plain HTTP
    certificate: str | None = None
    key: str | None = None
    #: origins of other sites whose pages may use the HTTP door, such as https://shop.example
    origins: tuple[str, ...] = ()
    #: names under which the console is reached besides the host that it listens on
    names: tuple[str, ...] = ()
    #: a directory of the user's own pages, served under /pages/
    pages: Path | None = None
    #: a directory of pages that `tidemark pipeline report` and `audit` have written
    reports: Path | None = None

    @property
    def is_tls(self) -> bool:
        """The console speaks HTTPS."""
        return self.certificate is not None
