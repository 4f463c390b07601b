"""Login: how a client proves who it is, step by step.

The steps of one login are one `LoginAttempt`. Unknown users and wrong passwords take the same steps, the same
work and the same words. Passwords never reach the broker: SCRAM proves that the client knows one
(RFC 5802, RFC 7677), and that the broker knows its verifier.
"""

from __future__ import annotations

import hmac
from bisect import bisect
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from secrets import token_bytes
from typing import Any, Protocol

from tidemark.access.document import AccessDocument
from tidemark.access.principal import Principal
from tidemark.access.verifier import SCHEME, Verifier
from tidemark.errors import AccessError
from tidemark.wire.security.frames import Login, Proof

BEARER = "BEARER"
#: What everybody is told whose login has failed, whatever was wrong.
FAILED = "the login has failed: the user or the proof is wrong"
#: Iterations of the verifiers that are made here.
ITERATIONS = 4_096


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """A login has succeeded: who it is, how that was proved, and the last word of the broker's own proof."""

    principal: Principal
    how: str
    last: Login | None = None
    #: until when the login holds, in seconds of day; None for as long as the connection
    expires_at: float | None = None


class LoginError(AccessError):
    """A login has failed. `cause` is for the audit log, and never for the client."""

    def __init__(self, cause: str, who: str = "") -> None:
        super().__init__(FAILED)
        self.cause = cause
        #: the user that somebody wanted to be, as far as that was said
        self.who = who


@cache
def _mechanism() -> Any:
    """Return the mechanism of SCRAM.

    Only a broker with accounts imports `scramp`: that is a twentieth of the CPU of all that a broker imports.
    """
    from scramp import ScramMechanism

    return ScramMechanism(SCHEME)


class BearerTokens(Protocol):
    """Checks bearer tokens: `node.security.bearer.BearerKeys`."""

    def check(self, token: str) -> tuple[Principal, float]:
        """Return whose the token is, and when it expires. Raises LoginError."""

    def look(self, *, is_asked: bool = False) -> None:
        """Read the keys again if they have changed, or if somebody asks for it."""


class Decoys:
    """The verifiers that unknown users seem to have: like those of the users that there are.

    The salt of a user is told to everybody who asks, so that of an unknown one must be as lasting: the same
    at every broker, after a restart, and while the document changes. It is made of a secret of the document,
    the server key of one of its users, and of that user it has the iterations and the length of the salt too.
    Users and names have places on a ring, and a name goes by the next user: when a user comes, goes or has a
    new password, that changes the salts of few other names, each as if one more user had changed a password.
    """

    def __init__(self, document: AccessDocument) -> None:
        self.document = document
        found = sorted(
            (_place(name), user.password)
            for name, user in document.users.items()
            if user.password is not None
        )
        self._places = [place for place, _ in found]
        self._verifiers = [verifier for _, verifier in found]
        #: for a document without passwords
        self._none = Verifier(ITERATIONS, bytes(16), token_bytes(32), token_bytes(32))

    def verifier(self, name: str) -> Verifier:
        """Return what nothing passes, whatever password is tried."""
        at = bisect(self._places, _place(name)) % max(1, len(self._places))
        like = self._verifiers[at] if self._verifiers else self._none
        salt = hmac.digest(like.server_key, b"salt of " + name.encode(errors="replace"), "sha512")
        return Verifier(like.iterations, salt[: len(like.salt)], token_bytes(32), token_bytes(32))


def _place(name: str) -> bytes:
    return sha256(name.encode(errors="replace")).digest()


class UserAccounts:
    """Everything that logins are checked against. Belongs to the node; connections share it."""

    def __init__(self, document: AccessDocument, bearer: BearerTokens | None = None) -> None:
        #: replaced as a whole by `AccessMembership`; connections only read it
        self.document = document
        self.bearer = bearer
        self._decoys = Decoys(document)
        # Imported when the broker starts, so that the first login does not wait for it.
        _mechanism()

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """How clients can prove who they are."""
        return (SCHEME, BEARER) if self.bearer is not None else (SCHEME,)

    def verifier(self, name: str) -> Verifier:
        """Return what the password of a user is checked against; of an unknown one, what nothing passes."""
        if self._decoys.document is not self.document:
            self._decoys = Decoys(self.document)
        # Made for known users too, so that both take the same time.
        decoy = self._decoys.verifier(name)
        user = self.document.users.get(name)
        return user.password if user is not None and user.password is not None else decoy

    def certified(self, name: str) -> LoggedIn:
        """Return the principal of a certificate that names a user. Raises LoginError if there is none."""
        principal = self.document.principal(name)
        if principal is None:
            raise LoginError("the certificate names a user that the access document does not have", name)
        return LoggedIn(principal, "certificate")


class LoginAttempt:
    """One login of one connection."""

    def __init__(self, accounts: UserAccounts) -> None:
        self._accounts = accounts
        self._scram: Any = None
        #: the user that a SCRAM login is about
        self.who = ""

    def step(self, proof: Proof) -> Login | LoggedIn:
        """Take the client's next proof. Returns what to answer, or that the login has succeeded.

        Raises LoginError if it has failed.
        """
        if proof.mechanism == BEARER and self._accounts.bearer is not None and self._scram is None:
            principal, expires_at = self._accounts.bearer.check(proof.payload)
            return LoggedIn(principal, "bearer", None, expires_at)
        if proof.mechanism != SCHEME:
            raise LoginError(f"there is no mechanism {proof.mechanism[:40]!r}", self.who)
        from scramp import ScramException

        try:
            return self._first(proof.payload) if self._scram is None else self._final(proof.payload)
        except (ScramException, ValueError, KeyError, IndexError) as error:
            raise LoginError(f"SCRAM: {error}"[:200], self.who) from None

    def _first(self, payload: str) -> Login:
        accounts, names = self._accounts, list[str]()

        def verifier(name: str) -> tuple[bytes, bytes, bytes, int]:
            # It does not refer to the attempt, which is freed with its connection.
            names.append(name)
            found = accounts.verifier(name)
            return found.salt, found.stored_key, found.server_key, found.iterations

        self._scram = _mechanism().make_server(verifier)
        try:
            self._scram.set_client_first(payload)
        finally:
            self.who = names[-1] if names else ""
        return Login(self._accounts.mechanisms, self._scram.get_server_first())

    def _final(self, payload: str) -> LoggedIn:
        self._scram.set_client_final(payload)
        last = Login(self._accounts.mechanisms, self._scram.get_server_final())
        principal = self._accounts.document.principal(self.who)
        if principal is None:
            raise LoginError("there is no such user", self.who)
        return LoggedIn(principal, "password", last)


def make_verifier(password: str) -> Verifier:
    """Return a new verifier of a password. AccessError if the password is empty."""
    if not password:
        raise AccessError("a password is not empty")
    salt, stored, server, iterations = _mechanism().make_auth_info(
        password, iteration_count=ITERATIONS, salt=token_bytes(16)
    )
    return Verifier(iterations, salt, stored, server)


def fingerprint(secret: str) -> str:
    """Return a few digits by which two secrets can be told apart in an audit log, without either."""
    return sha256(secret.encode(errors="replace")).hexdigest()[:12]
