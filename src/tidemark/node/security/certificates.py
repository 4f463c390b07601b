"""Certificates for those who have no authority of their own: an authority, and certificates that it signs.

For development, and for overlays that are an island. An authority that people run elsewhere does as well: a
broker's certificate names its hosts, and the broker itself as the URI `tidemark:broker:NAME`; a client's
names the user as `tidemark:user:NAME`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from tidemark.errors import ConfigError
from tidemark.node.security.tls import BROKER_URI, USER_URI

CA_DAYS = 3_650
DAYS = 825
#: Clocks of other machines may be behind by so much.
BACKDATED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes

    def save(self, certificate: Path, key: Path) -> None:
        """Write both files, the key readable by its owner only. ConfigError if one is there already."""
        for path, data, mode in ((key, self.key, 0o600), (certificate, self.certificate, 0o644)):
            write_new(path, data, mode)


def write_new(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that must not be there yet, with this mode from its first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise ConfigError(f"{path} is there already: remove it, or choose another directory") from None
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def _x509() -> Any:
    try:
        from cryptography import x509
    except ImportError:
        raise ConfigError("certificates need cryptography: pip install 'tidemark[security]'") from None
    return x509


def make_authority(name: str = "Tidemark development authority") -> Issued:
    """Return a new authority, which signs itself."""
    x509 = _x509()
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    built = (
        _builder(subject, subject, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(x509, is_authority=True), critical=True)
    )
    return _signed(built, key, key)


def issue(
    authority: Issued,
    name: str,
    *,
    hosts: Sequence[str] = (),
    broker: str = "",
    user: str = "",
    days: int = DAYS,
) -> Issued:
    """Return a certificate that `authority` signs, for a broker with its hosts, or for a user."""
    x509 = _x509()
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    signer: Any = load_pem_private_key(authority.key, None)
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    names: list[Any] = [_host(x509, host) for host in hosts]
    names += [x509.UniformResourceIdentifier(BROKER_URI + broker)] if broker else []
    names += [x509.UniformResourceIdentifier(USER_URI + user)] if user else []
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])
    uses = [x509.ExtendedKeyUsageOID.CLIENT_AUTH, *([x509.ExtendedKeyUsageOID.SERVER_AUTH] if broker else [])]
    built = (
        _builder(subject, issuer.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(x509, is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False
        )
    )
    if names:
        built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _signed(built, key, signer)


def describe(certificate: bytes) -> dict[str, object]:
    """Return what a certificate says, for `tidemark cert show`. ConfigError if it is none."""
    x509 = _x509()
    try:
        found = x509.load_pem_x509_certificate(certificate)
    except ValueError as error:
        raise ConfigError(f"this is no certificate in PEM: {error}") from None
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        shown = [str(each.value) for each in names]
    except x509.ExtensionNotFound:
        shown = []
    left = found.not_valid_after_utc - datetime.now(UTC)
    return {
        "subject": found.subject.rfc4514_string(),
        "issuer": found.issuer.rfc4514_string(),
        "names": shown,
        "not_before": found.not_valid_before_utc.isoformat(),
        "not_after": found.not_valid_after_utc.isoformat(),
        "days_left": left.days,
        "is_expired": left.total_seconds() < 0,
    }


def _builder(subject: Any, issuer: Any, public_key: Any, days: int) -> Any:
    x509 = _x509()
    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now - BACKDATED, end - timedelta(days=1)))
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _signed(built: Any, key: Any, signer: Any) -> Issued:
    from cryptography.hazmat.primitives import hashes, serialization

    certificate = built.sign(signer, hashes.SHA256())
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return Issued(certificate.public_bytes(pem), private)


def _usage(x509: Any, *, is_authority: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _host(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
