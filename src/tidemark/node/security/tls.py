"""Transport: TLS 1.3 for clients, links, callbacks and HTTP, with certificates that are read again.

New certificates are taken for new connections when their files change and on SIGHUP; connections that there
are go on. A certificate that cannot be read is told, and the one before stays in use.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidemark.errors import ConfigError
from tidemark.node.config.settings import LimitsSection, SecuritySection
from tidemark.node.logs import Log
from tidemark.node.security.handshakes import Handshakes

#: How a certificate names a broker of the overlay: a URI among its alternative names.
BROKER_URI = "tidemark:broker:"
USER_URI = "tidemark:user:"
log = Log("tls")


class Transport:
    """The TLS contexts of one broker. Both contexts are None while no certificate is configured."""

    def __init__(self, security: SecuritySection) -> None:
        """Read the certificates. ConfigError if one is named and cannot be used."""
        self._security = security
        self.server: ssl.SSLContext | None = None
        #: for links that this broker opens, and clients that it calls back
        self.client: ssl.SSLContext | None = None
        #: what new connections use: made anew at each load, so that an authority that is gone is gone
        self._newest: ssl.SSLContext | None = None
        self._seen: tuple[object, ...] = ()
        if security.certificate:
            if security.client_certificates == "required" and not security.authority:
                raise ConfigError(
                    "client certificates cannot be checked without the authority that issues them",
                    key="security.authority",
                )
            self._load()
            self._seen = self._changed_at()

    def _load(self) -> None:
        """Make both contexts of the files as they are. The listener keeps the first, which hands over."""
        security = self._security
        server, client = (ssl.SSLContext(side) for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
        # Who is at the other end is judged by the names in the certificate, not by its address.
        client.check_hostname = False
        required = security.client_certificates == "required"
        optional = ssl.CERT_OPTIONAL if security.authority else ssl.CERT_NONE
        server.verify_mode = ssl.CERT_REQUIRED if required else optional
        try:
            for context in (server, client):
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.load_cert_chain(security.certificate, security.key or None, password=_no_password)
                if security.authority:
                    context.load_verify_locations(security.authority)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"the certificate, its key or the authority cannot be used: {error}",
                key="security.certificate",
            ) from None
        # A session of before may have been made under an authority that is gone.
        server.num_tickets = 0
        server.sni_callback = self._hand_over
        self._newest, self.client = server, client
        self.server = self.server or server

    def _hand_over(self, link: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        """A connection begins: it goes by the newest files, whichever context the listener was given."""
        if self._newest is not None:
            link.context = self._newest

    def handshakes(
        self, made: Callable[[], asyncio.BaseProtocol], limits: LimitsSection
    ) -> Handshakes | None:
        """Return what takes the connections of a listener, whose protocols are `made`; None without TLS."""
        if self.server is None:
            return None
        seconds, of_address = limits.handshake / 1e6, limits.address_times * limits.strangers
        return Handshakes(made, self.server, seconds_max=seconds, address_max=of_address)

    def _changed_at(self) -> tuple[object, ...]:
        security = self._security
        return tuple(changed_at(path) for path in (security.certificate, security.key, security.authority))

    def look(self, *, is_asked: bool = False) -> None:
        """Read the certificates again if their files have changed, or if somebody asks for it."""
        if self.server is None:
            return
        seen = self._changed_at()
        if seen == self._seen and not is_asked:
            return
        self._seen = seen
        try:
            self._load()
        except ConfigError as error:
            log.error("the new certificate cannot be used, the one before stays", reason=str(error))
        else:
            log.info("certificates were read again", certificate=self._security.certificate)


def changed_at(path: str) -> object:
    """Return something that differs once a file has changed; None if there is none."""
    try:
        found = Path(path).stat() if path else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def _no_password() -> str:
    """Refuse to ask for the password of an encrypted key: a broker has nobody to ask."""
    raise ValueError("the key is encrypted: give one that is not, in a file of mode 0600")


def name_in(certificate: Mapping[str, Any] | None, rule: str) -> str:
    """Return the user that a verified certificate names by the rule cn, email, dns or uri; "" for none.

    A broker's certificate has a common name and the names of its hosts too, and names a user only as a URI.
    """
    if not certificate:
        return ""
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    if rule != "uri" and any(name.startswith(BROKER_URI) for name in names):
        return ""
    if rule == "cn":
        subject = [pair for part in certificate.get("subject", ()) for pair in part]
        return next((str(value) for key, value in subject if key == "commonName"), "")
    kind = {"email": "email", "dns": "DNS", "uri": "URI"}[rule]
    names = [str(value) for key, value in certificate.get("subjectAltName", ()) if key == kind]
    if rule == "uri":
        return next((name.removeprefix(USER_URI) for name in names if name.startswith(USER_URI)), "")
    return names[0] if names else ""


def is_broker(certificate: Mapping[str, Any] | None, name: str) -> bool:
    """Return whether a verified certificate is that of the broker `name`."""
    names = (certificate or {}).get("subjectAltName", ())
    return any(kind == "URI" and value == BROKER_URI + name for kind, value in names)
