"""Callers: who a request comes from, and the connections to the broker that requests of one caller share.

A broker decides what a caller may do. The console brings the caller's own credentials to it, and has none of
its own: without a login an open broker is all that a request can reach. A console that other machines reach
goes to no open broker at all, since an open broker checks no credentials.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from math import ceil
from secrets import token_hex
from typing import TYPE_CHECKING

from tidemark.client.client import Client
from tidemark.console.options import (
    CALLER_IDLE_SECONDS,
    CALLERS_MAX,
    WRONG_LOGIN_SECONDS,
    WRONG_LOGINS_MAX,
)
from tidemark.console.problems import ProblemError
from tidemark.errors import RefusedError
from tidemark.node.security.login_limits import LoginLimits

if TYPE_CHECKING:
    from tidemark.client.subscribing.subscription import Subscription

#: A broker has so long to let a caller in.
CONNECT_SECONDS = 5.0
#: Variables by which a client logs in without being told as whom; a console must not lend its own login.
OWN_LOGIN = (
    "TIDEMARK_USER",
    "TIDEMARK_PASSWORD_FILE",
    "TIDEMARK_TOKEN_FILE",
    "TIDEMARK_CERTIFICATE",
    "TIDEMARK_KEY",
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request comes from: a user with a password, the bearer of a token, or nobody in particular."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    @property
    def is_anonymous(self) -> bool:
        """The request did not say who it comes from."""
        return not self.user and not self.token

    @property
    def identity(self) -> str:
        """The text that stands for this caller alone, also with its next token; "" for nobody in particular.

        What a token says of its bearer is not checked here: the broker has let the caller in with it.
        """
        if not self.token:
            return self.user
        try:
            payload = self.token.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            return json.dumps([claims["sub"], claims.get("iss")])
        except (ValueError, KeyError, IndexError, TypeError, RecursionError):
            return hashlib.sha256(self.token.encode()).hexdigest()


ANYBODY = Caller()
#: Where the request comes from that is being answered; `Guard` says it.
ADDRESS: ContextVar[str] = ContextVar("address", default="")


def caller_of_header(text: str) -> Caller:
    """Return the caller that an Authorization header names; ProblemError 400 if it cannot be understood."""
    scheme, _, rest = text.strip().partition(" ")
    if scheme.lower() == "bearer" and rest.strip():
        return Caller(token=rest.strip())
    if scheme.lower() == "basic":
        try:
            user, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            user, colon, password = "", "", ""
        if colon and user:
            return Caller(user, password)
    raise ProblemError(400, "login", "the header Authorization is neither Basic with a user nor Bearer")


def forget_own_login() -> None:
    """Take the variables that log clients in out of this process's environment."""
    for name in OWN_LOGIN:
        os.environ.pop(name, None)


class _OpenDurable:
    """A durable subscription that a stream has open."""

    def __init__(self, subscription: Subscription[object]) -> None:
        self.subscription = subscription
        self.is_closed = asyncio.Event()


class _Kept:
    """One caller's connection, and what uses it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.uses = 0
        self.idle_since = 0.0
        self.opening = asyncio.Lock()
        self.opening_durable = asyncio.Lock()
        #: durable name -> the stream that has it open
        self.durables: dict[str, _OpenDurable] = {}


class Connections:
    """The connections of all callers to one broker, or to several that stand in for each other."""

    def __init__(self, url: str, *, wants_login: bool) -> None:
        """`wants_login`: brokers that ask no caller for a login are left alone (RefusedError, "denied")."""
        self._url = url
        self._wants_login = wants_login
        self._kept: dict[Caller, _Kept] = {}
        #: by the addresses of those who ask; the broker only sees that of the console
        self.login_limits = LoginLimits(time.monotonic, WRONG_LOGINS_MAX, WRONG_LOGIN_SECONDS)

    def made(self, caller: Caller, *, url: str | None = None, publisher: str | None = None) -> Client:
        """Return a client that logs in as the caller; it is not open yet.

        Also when it connects again later, it goes on with no broker that does not ask for the login that the
        console wants.
        """
        client = Client(
            url or self._url,
            # Names of streams are made of it: no two clients have the same, at whichever console.
            client=f"console-{os.getpid()}-{token_hex(4)}",
            publisher=publisher,
            connect_timeout=CONNECT_SECONDS,
            user=caller.user or None,
            password=caller.password or None,
            token=caller.token or None,
        )
        client._credentials = replace(client._credentials, is_login_required=self._wants_login)
        return client

    @asynccontextmanager
    async def use(self, caller: Caller) -> AsyncIterator[Client]:
        """Give the caller's open client for the time of the block.

        RefusedError with the code "login" if the broker does not let the caller in, and with "denied" if the
        console wants a login that the broker does not check; NotConnectedError if there is no broker;
        ProblemError 503 if too many callers are there already, and 429 if too many logins from the same
        address were wrong.
        """
        if caller not in self._kept:
            self._check_limits(caller)
        kept = self._of(caller)
        kept.uses += 1
        try:
            async with kept.opening:
                try:
                    await kept.client.open()
                except BaseException as error:
                    self._drop(caller, kept)
                    is_refused = isinstance(error, RefusedError) and error.code in ("denied", "login")
                    if is_refused and not caller.is_anonymous:
                        self.login_limits.failed(ADDRESS.get(), caller.user)
                    raise
            self.login_limits.succeeded(ADDRESS.get(), caller.user)
            yield kept.client
        finally:
            kept.uses -= 1
            kept.idle_since = asyncio.get_running_loop().time()

    def _check_limits(self, caller: Caller) -> None:
        """Raise ProblemError 429 if a login is not tried now, whether it is right or wrong."""
        address = ADDRESS.get()
        if caller.is_anonymous or not address or not self.login_limits.refuses(address, caller.user):
            return
        seconds = max(1, ceil(self.login_limits.seconds_to_wait(address, caller.user)))
        raise ProblemError(429, "limit", f"too many logins were wrong: wait {seconds} s and try again")

    async def open_durable(
        self, caller: Caller, name: str, subscription: Subscription[object]
    ) -> Callable[[], None]:
        """Open a durable subscription of the caller, after the stream that has it open now was ended.

        Returns what gives the name back, to be called when the subscription is closed.
        """
        kept = self._kept[caller]
        async with kept.opening_durable:
            before = kept.durables.get(name)
            if before is not None:
                await before.subscription.close()
                await before.is_closed.wait()
            await subscription.open()
            mine = kept.durables[name] = _OpenDurable(subscription)

        def give_back() -> None:
            mine.is_closed.set()
            if kept.durables.get(name) is mine:
                del kept.durables[name]

        return give_back

    def durable(self, caller: Caller, name: str) -> Subscription[object] | None:
        """Return the caller's open stream of a durable subscription; None if there is none."""
        kept = self._kept.get(caller)
        found = None if kept is None else kept.durables.get(name)
        return None if found is None else found.subscription

    async def close_idle(self, now: float) -> None:
        """Close connections that nobody has used for a while."""
        for caller, kept in list(self._kept.items()):
            if not kept.uses and now - kept.idle_since > CALLER_IDLE_SECONDS:
                self._drop(caller, kept)
                await kept.client.close()

    async def close(self) -> None:
        """Close all connections."""
        kept, self._kept = list(self._kept.values()), {}
        await asyncio.gather(*(each.client.close() for each in kept), return_exceptions=True)

    def _of(self, caller: Caller) -> _Kept:
        kept = self._kept.get(caller)
        if kept is None:
            if len(self._kept) >= CALLERS_MAX:
                self._make_room()
            kept = self._kept[caller] = _Kept(self.made(caller))
        return kept

    def _make_room(self) -> None:
        idle = [(kept.idle_since, caller) for caller, kept in self._kept.items() if not kept.uses]
        if not idle:
            raise ProblemError(
                503, "limit", f"{CALLERS_MAX} users are at this console at once: try again later"
            )
        _, oldest = min(idle, key=lambda each: each[0])
        closing = asyncio.ensure_future(self._kept.pop(oldest).client.close())
        _CLOSING.add(closing)
        closing.add_done_callback(_CLOSING.discard)

    def _drop(self, caller: Caller, kept: _Kept) -> None:
        if self._kept.get(caller) is kept:
            del self._kept[caller]


#: Tasks that close connections; the event loop itself would forget them.
_CLOSING: set[asyncio.Future[None]] = set()
