"""Proxy: TCP connections between two processes that can be made to fail.

The proxy runs on a thread of its own, so that plain code can decide what fails next: resets, also in the
middle of a frame, delays, refused connections, and half-open connections, on which nothing passes while each
side believes that the other is there. Bytes that were read from one side and not yet written to the other
when a connection is reset are lost, as on a real network.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

READ_BYTES_MAX = 64 << 10
#: Pieces that may be read from one side and, being delayed, not yet written to the other.
HELD_PIECES_MAX = 64
#: Closing a socket with this set sends a reset.
_LINGER_NOT = struct.pack("ii", 1, 0)

_T = TypeVar("_T")


class Proxy:
    """`with Proxy("127.0.0.1:7676") as proxy:` listens at `proxy.address`."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._connections: set[_Pair] = set()
        self.address = ""
        #: cleared while nothing may pass
        self._open = asyncio.Event()
        self._open.set()
        self._delay_seconds = 0.0
        self._refuses = False
        #: bytes that may still pass before a reset; None if there is no limit
        self._bytes_left: int | None = None
        #: number of connections that were reset
        self.resets = 0
        #: number of connections that were made to the proxy
        self.calls = 0

    def __enter__(self) -> Proxy:
        self._thread.start()
        self.address = self._run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # What goes wrong.

    def reset(self) -> None:
        """Reset every connection; new ones work."""
        self._call(self._reset)

    def reset_after(self, count: int) -> None:
        """Reset every connection after `count` more bytes, counted in both directions together."""

        def limit() -> None:
            self._bytes_left = count

        self._call(limit)

    def delay(self, seconds: float) -> None:
        """Delay all bytes that arrive from now on by this many seconds."""

        def slow() -> None:
            self._delay_seconds = seconds

        self._call(slow)

    def hold(self) -> None:
        """Make connections half-open: nothing passes and nobody is told. New connections are accepted too."""
        self._call(self._open.clear)

    def refuse(self) -> None:
        """Reset every connection, and every new one immediately."""

        def refuse() -> None:
            self._refuses = True
            self._reset()

        self._call(refuse)

    def heal(self) -> None:
        """Let everything pass again; connections that were half-open are reset, as by a real network."""

        def heal() -> None:
            if not self._open.is_set():
                self._reset()
            self._open.set()
            self._delay_seconds, self._refuses, self._bytes_left = 0.0, False, None

        self._call(heal)

    # On the thread.

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _call(self, function: Callable[[], object]) -> None:
        async def called() -> None:
            function()

        self._run(called())

    async def _listen(self) -> str:
        self._server = await asyncio.start_server(self._called, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._reset()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        pair = _Pair(writer)
        self._connections.add(pair)
        try:
            await self._open.wait()
            if not self._refuses and not pair.is_reset:
                await self._connect(pair, reader)
        except asyncio.CancelledError:
            return  # the proxy is closed; asyncio complains of handlers that end with an exception
        finally:
            pair.reset()
            self._connections.discard(pair)

    async def _connect(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        try:
            other, writer = await asyncio.open_connection(*self._target)
        except OSError:
            return  # nothing listens at the target: the caller is reset
        pair.add(writer)
        ways = [self._pass(pair, reader, writer), self._pass(pair, other, pair.writers[0])]
        tasks = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass(self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one direction on until a side ends or the connection is reset."""
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD_PIECES_MAX)
        give = asyncio.ensure_future(self._give(pair, held, writer))
        try:
            while data := await reader.read(READ_BYTES_MAX):
                await held.put((self._loop.time() + self._delay_seconds, data))
            await held.put((0.0, b""))
            await give
        except OSError:
            return
        finally:
            give.cancel()

    async def _give(
        self, pair: _Pair, held: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await held.get()
            if not data:
                return
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._open.wait()
            if pair.is_reset:
                return
            passed = self._counted(data)
            writer.write(passed)
            with suppress(OSError):
                await writer.drain()
            if len(passed) < len(data):
                self._reset()
                return

    def _counted(self, data: bytes) -> bytes:
        """Returns the part of `data` that may pass before the limit."""
        if self._bytes_left is None:
            return data
        passed = data[: self._bytes_left]
        self._bytes_left = None if len(passed) < len(data) else self._bytes_left - len(data)
        return passed

    def _reset(self) -> None:
        for pair in list(self._connections):
            if not pair.is_reset:
                self.resets += 1
                pair.reset()


class _Pair:
    """The two sockets of one proxied connection."""

    def __init__(self, caller: asyncio.StreamWriter) -> None:
        self.writers = [caller]
        self.is_reset = False

    def add(self, called: asyncio.StreamWriter) -> None:
        """Add the socket to the target."""
        self.writers.append(called)
        if self.is_reset:
            self._abort(called)

    def reset(self) -> None:
        """Reset both sockets."""
        self.is_reset = True
        for writer in self.writers:
            self._abort(writer)

    def _abort(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        writer.transport.abort()
