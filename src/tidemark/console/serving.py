"""Running a console: one process, one port, until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable

import uvicorn

from tidemark.console.application import make_application
from tidemark.console.callers import forget_own_login
from tidemark.console.http_limits import LimitedHttp
from tidemark.console.options import STREAMS_MAX, ConsoleOptions
from tidemark.errors import ConfigError
from tidemark.node.config.settings import SecuritySection
from tidemark.node.process.open_files import allow_connections
from tidemark.node.security.tls import Transport

#: Seconds that requests have to end when the console is stopped; streams never end by themselves.
STOP_SECONDS = 2
#: Connections at the same time, streams and others; who comes beyond them is answered with 503.
CONNECTIONS_MAX = 2 * STREAMS_MAX
#: The files of the certificate are looked at so often.
LOOK_SECONDS = 1.0
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
        transport = _transport(options)
        config = server_config(options)
        config.load()
        config.ssl = transport.server
        shown = f"[{host}]" if ":" in host else host
        ready(f"{'https' if options.is_tls else 'http'}://{shown}:{port}")
        asyncio.run(_serve(uvicorn.Server(config), listening, transport))


def server_config(options: ConsoleOptions) -> uvicorn.Config:
    """Return how the server of a console is set up."""
    return uvicorn.Config(
        make_application(options),
        log_level="warning",
        server_header=False,
        lifespan="on",
        http=LimitedHttp,
        ws_max_size=MESSAGE_BYTES_MAX,
        # Messages that are packed would stand for a thousand times the memory of what was read at once.
        ws_per_message_deflate=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_SECONDS,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )


def _transport(options: ConsoleOptions) -> Transport:
    """Return the TLS of the console, as brokers have it; ConfigError if the certificate cannot be used."""
    try:
        return Transport(SecuritySection(certificate=options.certificate or "", key=options.key or ""))
    except ConfigError as error:
        raise ConfigError(error.reason, key="--certificate") from None


async def _serve(server: uvicorn.Server, listening: socket.socket, transport: Transport) -> None:
    loop = asyncio.get_running_loop()
    # Without a handler the signal would end the console.
    loop.add_signal_handler(signal.SIGHUP, lambda: transport.look(is_asked=True))
    looking = loop.create_task(_look(transport))
    try:
        await server.serve([listening])
    finally:
        looking.cancel()


async def _look(transport: Transport) -> None:
    """Have the certificate read again when its files change."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        transport.look()


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
