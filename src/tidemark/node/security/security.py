"""Security: everything by which one broker knows who is there, and what may not be forgotten about it.

`Security.load` fails closed: a broker that others can reach and that does not ask who they are does not start
unless it was told to, and neither does one whose files cannot be read.
"""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from pathlib import Path

from tidemark.access.document import AccessDocument
from tidemark.access.rights import check_rights
from tidemark.errors import AccessError, ConfigError
from tidemark.node.config.settings import Config
from tidemark.node.security.access_membership import OF_FILE
from tidemark.node.security.audit_log import AuditLog
from tidemark.node.security.bearer import BearerKeys
from tidemark.node.security.link_proof import LinkKey
from tidemark.node.security.login import UserAccounts
from tidemark.node.security.tls import Transport

AUDIT_FILE = "audit.log"


class Security:
    """What connections are judged by. Belongs to the node; the server and its connections share it."""

    def __init__(
        self,
        transport: Transport,
        link_key: LinkKey | None,
        accounts: UserAccounts | None,
        audit: AuditLog,
        *,
        certificate_name: str = "uri",
        http_token: str = "",
    ) -> None:
        """Use `load`. Without `accounts` the broker is open."""
        self.transport = transport
        self.link_key = link_key
        self.accounts = accounts
        self.audit = audit
        self.certificate_name = certificate_name
        self._http_token = http_token

    @classmethod
    def load(cls, config: Config, saved: AccessDocument | None = None) -> Security:
        """Read all files. `saved` is the document that was applied last. Raises ConfigError."""
        section = config.security
        has_accounts = section.mode == "accounts"
        if not has_accounts:
            _check_open(config)
        transport = Transport(section)
        link_key = LinkKey.load(section.overlay_key) if section.overlay_key else None
        if has_accounts and len(config.topology.brokers) > 1 and link_key is None and not section.authority:
            raise ConfigError(
                "brokers cannot prove to each other who they are: give them certificates and the authority "
                "that signs them (security.certificate, security.authority), or a key that they share",
                key="security.overlay_key",
            )
        accounts = UserAccounts(_document(config, saved), _bearer(config)) if has_accounts else None
        where = section.audit or (str(Path(config.storage.data_dir) / AUDIT_FILE) if has_accounts else "")
        return cls(
            transport,
            link_key,
            accounts,
            AuditLog(Path(where) if where else None, config.broker.name),
            certificate_name=section.certificate_name,
            http_token=_http_token(config),
        )

    @property
    def proves_links(self) -> bool:
        """Whether brokers have to prove who they are."""
        return self.accounts is not None or self.link_key is not None

    def look(self, *, is_asked: bool = False) -> None:
        """Read certificates and keys of tokens again if they have changed, or if somebody asks for it."""
        self.transport.look(is_asked=is_asked)
        if self.accounts is not None and self.accounts.bearer is not None:
            self.accounts.bearer.look(is_asked=is_asked)

    @property
    def shows_subscriptions(self) -> bool:
        """Whether the metrics tell of single subscriptions: to who has the token, or may do everything."""
        return self.accounts is None or bool(self._http_token)

    def may_read_metrics(self, authorization: str) -> bool:
        """Return whether an HTTP request with this header Authorization may see the metrics."""
        wanted = f"Bearer {self._http_token}"
        return not self._http_token or hmac.compare_digest(wanted.encode(), authorization.encode())


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener at `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_open(config: Config) -> None:
    """Raise ConfigError if an open broker could be reached from other machines and nobody allowed that."""
    listeners = {"broker.listen": config.broker.listen, "http.listen": config.http_address()}
    for key, address in listeners.items():
        if address is None or is_loopback(address.host) or config.security.allow_open_network:
            continue
        raise ConfigError(
            f"other machines can reach {address}, and this broker asks nobody who they are: set "
            'security.mode = "accounts" (`tidemark up --secure` shows how), listen at 127.0.0.1, or set '
            "security.allow_open_network = true if everyone who can reach it may do everything",
            key=key,
        )


def _document(config: Config, saved: AccessDocument | None) -> AccessDocument:
    """Return the newest access document that this broker knows."""
    if saved is not None and saved.version > OF_FILE:
        return saved
    path = config.security.access
    if not path:
        raise ConfigError(
            "there are accounts, and no document says who may do what: write one (docs/security.md) and name "
            "it here, or let `tidemark up --secure` make one",
            key="security.access",
        )
    try:
        document = AccessDocument.parse(Path(path).read_text(), OF_FILE)
        check_rights(document)
        document.check_administered(by_tokens=bool(config.security.bearer_roles))
    except (OSError, UnicodeDecodeError, AccessError) as error:
        raise ConfigError(f"{path}: {error}", key="security.access") from None
    return document


def _bearer(config: Config) -> BearerKeys | None:
    section = config.security
    if not section.bearer_keys:
        return None
    return BearerKeys(
        section.bearer_keys,
        issuer=section.bearer_issuer,
        audience=section.bearer_audience,
        roles_claim=section.bearer_roles,
    )


def _http_token(config: Config) -> str:
    """Return the token that metrics ask for; "" for none, which only this machine's own listener may have."""
    section, address = config.security, config.http_address()
    if section.http_token:
        try:
            token = Path(section.http_token).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the token cannot be read: {error}", key="security.http_token") from None
        if not token:
            raise ConfigError(f"{section.http_token} is empty", key="security.http_token")
        return token
    if section.mode == "accounts" and address is not None and not is_loopback(address.host):
        raise ConfigError(
            f"other machines can reach the metrics at {address}: name a file with a token that they need, or "
            "serve them at 127.0.0.1",
            key="security.http_token",
        )
    return ""
