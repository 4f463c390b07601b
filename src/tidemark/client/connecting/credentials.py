"""Credentials: how a client proves to a broker who it is, and how it knows that it talks to that broker.

What the application does not give comes from the environment, so that every tool of Tidemark logs in the same
way: TIDEMARK_USER, TIDEMARK_PASSWORD_FILE, TIDEMARK_TOKEN_FILE, TIDEMARK_CA, TIDEMARK_CERTIFICATE and
TIDEMARK_KEY. No password or token is ever part of a repr, an error or a log.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import environ
from pathlib import Path
from typing import Any, TypedDict

from tidemark.errors import ConfigError, RefusedError, TidemarkError
from tidemark.wire.security.frames import Login, Proof

SCRAM = "SCRAM-SHA-256"
BEARER = "BEARER"
#: A bearer token is brought anew when this part of its remaining time has passed.
RENEW_PART = 0.8
SECRET_BYTES_MAX = 64 << 10
#: What a client says that requires a login, of a broker that has asked for none.
NOT_ASKED = (
    "this broker is open and checks no login, and a login is required here: give the broker accounts, as "
    "`tidemark up --secure` does"
)
#: A secret, or what returns it when it is needed.
Secret = str | Callable[[], str]


class LoginOptions(TypedDict, total=False):
    """How a client logs in, as keywords of `connect` and `listen`."""

    #: the user, with a password
    user: str | None
    #: the password of the user, or what returns it each time the client logs in
    password: Secret | None
    #: a bearer token (JWT), or what returns a newer one each time it is called
    token: Secret | None
    #: PEM file with the authority that signs the broker's certificate; by default those that the system has
    ca: str | None
    #: PEM files with this client's own certificate and its key
    certificate: str | None
    key: str | None


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client proves itself with; empty for an open broker."""

    user: str = ""
    password: Secret | None = field(default=None, repr=False)
    token: Secret | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    #: The application has given a password for this broker, and no certificate will prove who the broker is.
    is_login_due: bool = False
    #: The client goes on with no broker that lets it in without asking who it is.
    is_login_required: bool = False

    @classmethod
    def of(cls, options: LoginOptions, *, is_tls: bool) -> Credentials:
        """Return the credentials of an application, filled up from the environment.

        ConfigError if a file cannot be read.
        """
        found = {name: value for name, value in options.items() if value is not None}
        unknown = sorted(set(found) - set(LoginOptions.__annotations__))
        if unknown:
            raise TypeError(f"connect() got an unexpected keyword argument {unknown[0]!r}")
        user = str(found.get("user") or environ.get("TIDEMARK_USER", ""))
        password: Any = found.get("password") or _from_file("TIDEMARK_PASSWORD_FILE")
        token: Any = found.get("token") or _from_file("TIDEMARK_TOKEN_FILE")
        is_login_due = not is_tls and bool(found.get("user") and found.get("password"))
        return cls(user, password, token, _context(found) if is_tls else None, is_login_due)

    def dialog(self) -> LoginDialog:
        """Return the client's part of one login."""
        return LoginDialog(self)


class LoginDialog:
    """The client's part of the login of one connection."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._scram: Any = None
        self._is_server_proved = False
        #: a bearer token was sent because the broker asked for one
        self._is_token_sent = False

    def answer(self, frame: Login, *, is_overheard: bool = False) -> Proof | None:
        """Return what to answer to the broker; None if Welcome is due next.

        `is_overheard`: others may read what is sent, so a bearer token is not. RefusedError with the code
        "login" if there is nothing to prove oneself with, or if the broker could not prove that it knows the
        password's verifier.
        """
        try:
            return self._next(frame, is_overheard=is_overheard)
        except TidemarkError:
            raise
        except Exception as error:
            raise _refused(f"the broker's part of the login is wrong: {error}") from None

    def check_welcome(self) -> None:
        """The broker has welcomed this client. RefusedError if it should have proved itself and has not.

        RefusedError with the code "denied" if a login is required and the broker has asked for none.
        """
        if self._credentials.is_login_required and self._scram is None and not self._is_token_sent:
            raise RefusedError(NOT_ASKED, what="connect", name="", code="denied")
        is_proof_due = self._scram is not None or self._credentials.is_login_due
        if is_proof_due and not self._is_server_proved:
            raise _refused("the broker has not proved that it knows this user: it may be another one")

    def _next(self, frame: Login, *, is_overheard: bool) -> Proof | None:
        credentials = self._credentials
        if self._scram is not None:
            if not frame.payload.startswith("v="):
                self._scram.set_server_first(frame.payload)
                return Proof(SCRAM, self._scram.get_client_final())
            self._scram.set_server_final(frame.payload)
            self._is_server_proved = True
            return None
        if credentials.token is not None and BEARER in frame.mechanisms:
            if is_overheard:
                raise _refused("whoever reads a bearer token has it: call the broker as tidemark+tls://")
            self._is_token_sent = True
            return Proof(BEARER, _secret(credentials.token))
        if credentials.user and credentials.password is not None and SCRAM in frame.mechanisms:
            from scramp import ScramClient

            self._scram = ScramClient([SCRAM], credentials.user, _secret(credentials.password))
            return Proof(SCRAM, self._scram.get_client_first())
        ways = " or ".join(frame.mechanisms)
        raise _refused(
            f"the broker has accounts and takes {ways}: connect with user and password, or with token "
            "(TIDEMARK_USER and TIDEMARK_PASSWORD_FILE, or TIDEMARK_TOKEN_FILE)"
        )


def renewal(credentials: Credentials, now: float) -> float | None:
    """Return in how many seconds a newer bearer token should be brought; None if none is due.

    What the token says is not checked here: the broker does that.
    """
    if credentials.token is None or isinstance(credentials.token, str):
        return None
    try:
        payload = _secret(credentials.token).split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        left = float(claims["exp"]) - now
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return max(1.0, RENEW_PART * left)


def fresh_token(credentials: Credentials) -> Proof:
    """Return the proof that brings a newer bearer token."""
    assert credentials.token is not None
    return Proof(BEARER, _secret(credentials.token))


def _secret(secret: Secret) -> str:
    return secret if isinstance(secret, str) else secret()


def _from_file(variable: str) -> Callable[[], str] | None:
    """Return what reads a secret from the file that a variable names, at each login; None without one."""
    path = environ.get(variable)
    if not path:
        return None

    def read() -> str:
        try:
            return Path(path).read_bytes()[:SECRET_BYTES_MAX].decode().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the secret cannot be read: {error}", key=variable) from None

    return read


def _context(found: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the TLS context of a client: a broker's certificate must be good for the host that is called."""
    ca = found.get("ca") or environ.get("TIDEMARK_CA") or None
    certificate = found.get("certificate") or environ.get("TIDEMARK_CERTIFICATE") or None
    key = found.get("key") or environ.get("TIDEMARK_KEY") or None
    try:
        context = ssl.create_default_context(cafile=ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if certificate:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the certificates cannot be used: {error}", key="ca") from None
    return context


def _refused(reason: str) -> RefusedError:
    return RefusedError(reason, what="connect", name="", code="login")
