"""GuessingRole: somebody who tries passwords, from many addresses of this machine and for many names."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode

from tidemark.client.connecting.addresses import parse_url
from tidemark.node.security.login import FAILED
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Connect, Frame, Refused
from tidemark.wire.limits import PROTOCOL_NEWEST, PROTOCOL_OLDEST
from tidemark.wire.security.frames import Login, Proof

AT_ONCE = 8
READ_BYTES = 1 << 16
#: Every address and every name has failed less often than a broker minds.
ADDRESSES = 20_000
#: Frames by which a client proves that it knows a password.
PROOFS = 2
#: An attacker has machines of its own: here the process that guesses gets only idle processor time.
NICENESS = 19


class GuessingRole:
    """Logins that fail, one after the other on several connections at a time."""

    def __init__(self, counters: str, url: str) -> None:  # noqa: ARG002  (every role is given them)
        self._address = parse_url(url)[0]
        #: logins that are to be tried, that were begun, and that have failed
        self._wanted = self._begun = self._failed = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Nothing is prepared; well-behaved clients go first."""
        os.nice(NICENESS)

    async def begin(self, logins: int) -> None:
        """Begin to try so many more; `failed` says how far it is."""
        self._wanted += logins
        self._tasks = [asyncio.create_task(self._guess()) for _ in range(AT_ONCE)]

    async def failed(self) -> int:
        """Return how many logins have failed."""
        for task in self._tasks:
            if task.done():
                task.result()
        return self._failed

    async def _guess(self) -> None:
        while self._begun < self._wanted:
            number, self._begun = self._begun, self._begun + 1
            try:
                await self._try(number)
            except ConnectionError:
                self._begun -= 1  # one more has to be tried

    async def _try(self, number: int) -> None:
        """One login with a wrong password, as far as the broker lets it."""
        place = number % ADDRESSES
        host = f"127.{1 + place // 62_500}.{place // 250 % 250}.{1 + place % 250}"
        reader, writer = await asyncio.open_connection(*self._address, local_addr=(host, 0))
        decoder = FrameDecoder()
        writer.writelines(encode(Connect(f"guess-{number}", PROTOCOL_OLDEST, PROTOCOL_NEWEST)))
        nonce = f"guess{number}"
        said: list[Proof] = []
        try:
            while data := await reader.read(READ_BYTES):
                for frame in decoder.feed(data):
                    if isinstance(frame, Refused):
                        assert len(said) == PROOFS, f"refused before the password was tried: {frame.reason}"
                        assert frame.reason == FAILED, f"not because of the password: {frame.reason}"
                        self._failed += 1
                        return
                    answer = self._answer(frame, nonce, f"user-{number % 1_000}x{number // 1_000}")
                    if answer is not None:
                        said.append(answer)
                        writer.writelines(encode(answer))
        finally:
            writer.transport.abort()

    def _answer(self, frame: Frame, nonce: str, name: str) -> Proof | None:
        if not isinstance(frame, Login):
            return None
        if not frame.payload:
            return Proof("SCRAM-SHA-256", f"n,,n={name},r={nonce}")
        theirs = frame.payload.partition(",")[0].removeprefix("r=")
        return Proof("SCRAM-SHA-256", f"c=biws,r={theirs},p={b64encode(os.urandom(32)).decode()}")
