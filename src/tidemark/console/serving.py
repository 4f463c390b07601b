"""Running a console: one process, one port, until it is told to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn

from tidemark.console.application import make_application
from tidemark.console.callers import forget_own_login
from tidemark.console.options import STREAMS_MAX, ConsoleOptions
from tidemark.errors import ConfigError
from tidemark.node.process.open_files import allow_connections

#: Seconds that requests have to end when the console is stopped; streams never end by themselves.
STOP_SECONDS = 2
#: Connections at the same time, streams and others; who comes beyond them is answered with 503.
CONNECTIONS_MAX = 2 * STREAMS_MAX
#: Bytes of one message on a WebSocket.
MESSAGE_BYTES_MAX = 1 << 20


def run_console(options: ConsoleOptions, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is told the address when the console can be called.

    ConfigError if the address is in use, or the certificate cannot be read.
    """
    forget_own_login()
    allow_connections(CONNECTIONS_MAX)
    with _bound(options) as listening:
        host, port = listening.getsockname()[:2]
        try:
            config = uvicorn.Config(
                make_application(options),
                log_level="warning",
                server_header=False,
                lifespan="on",
                ws_max_size=MESSAGE_BYTES_MAX,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_graceful_shutdown=STOP_SECONDS,
                ssl_certfile=options.certificate,
                ssl_keyfile=options.key,
            )
            config.load()
        except OSError as error:
            raise ConfigError(f"the certificate cannot be used: {error}", key="--certificate") from None
        shown = f"[{host}]" if ":" in host else host
        ready(f"{'https' if options.is_tls else 'http'}://{shown}:{port}")
        asyncio.run(uvicorn.Server(config).serve([listening]))


def _bound(options: ConsoleOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.host, options.port))
        listening.listen(1_024)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror}; choose another with --listen",
            key="--listen",
        ) from None
    return listening
