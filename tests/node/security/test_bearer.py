"""Bearer tokens: which keys sign them, who issues them and for whom."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

from tidemark.errors import ConfigError
from tidemark.node.security.bearer import BearerKeys
from tidemark.node.security.login import LoginError

jwt = pytest.importorskip("jwt")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")


def jwks(path: Path, **keys: Any) -> Path:
    """A file with the public keys of these private ones, each under its id."""
    found = [
        {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": name, "alg": "ES256"}
        for name, key in keys.items()
    ]
    path.write_text(json.dumps({"keys": found}))
    return path


def token(key: Any, kid: str = "", algorithm: str = "ES256", **claims: object) -> str:
    claims = {"sub": "zoe", "exp": time.time() + 600, **claims}
    return str(jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid else None))


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def test_keys_of_a_jwks_are_told_apart_by_their_ids_and_rotated(tmp_path: Path) -> None:
    older, newer, stranger = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    file = jwks(tmp_path / "jwks.json", older=older, newer=newer)
    keys = BearerKeys(str(file))
    for key, kid in ((older, "older"), (newer, "newer")):
        assert keys.check(token(key, kid))[0].name == "zoe"
    for wrong in (
        token(older, "newer"),
        token(stranger, "older"),
        token(older, "unknown"),
        token(older),
    ):
        with pytest.raises(LoginError):
            keys.check(wrong)
    jwks(file, newer=newer)
    keys.look()
    assert keys.check(token(newer, "newer"))[0].name == "zoe"
    with pytest.raises(LoginError):
        keys.check(token(older, "older"))
    file.write_text('{"keys": [{"kty": "nothing"}]}')
    keys.look()
    assert keys.check(token(newer, "newer"))[0].name == "zoe"
    with pytest.raises(ConfigError, match="is no JWKS"):
        BearerKeys(str(file))


def test_a_token_of_another_issuer_or_of_none_is_not_believed(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    keys = BearerKeys(str(jwks(tmp_path / "jwks.json", one=key)), issuer="https://id.example", audience="tm")
    good = {"iss": "https://id.example", "aud": "tm"}
    assert keys.check(token(key, "one", **good))[0].name == "zoe"
    for wrong in ({"iss": "https://evil.example"}, {"iss": None}, {"aud": "other"}, {"aud": None}):
        claims = {name: value for name, value in {**good, **wrong}.items() if value is not None}
        with pytest.raises(LoginError):
            keys.check(token(key, "one", **claims))


def test_a_public_key_signs_nothing_as_a_shared_secret(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (tmp_path / "key.pem").write_bytes(public)
    keys = BearerKeys(str(tmp_path / "key.pem"))
    assert keys.check(token(key))[0].name == "zoe"
    claims = json.dumps({"sub": "zoe", "exp": time.time() + 600})
    signed = ".".join(encoded(text.encode()) for text in ('{"alg":"HS256"}', claims))
    forged = f"{signed}.{encoded(hmac.digest(public.strip(), signed.encode(), 'sha256'))}"
    with pytest.raises(LoginError) as caught:
        keys.check(forged)
    assert "InvalidAlgorithmError" in caught.value.cause
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "private.pem").write_bytes(private)
    with pytest.raises(ConfigError, match="the public one only"):
        BearerKeys(str(tmp_path / "private.pem"))
