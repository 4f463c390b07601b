"""BearerKeys: whose a bearer token (JWT) is, checked with a key or a set of keys from a file.

The file has one public key (PEM), a shared secret, or a JWKS. Which algorithms are accepted follows from the
kind of key, never from the token: a public key is never used as a shared secret. A token must name its
subject and when it expires, and its issuer and audience where the configuration asks for them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidemark.access.principal import Principal, check_claims, check_name
from tidemark.errors import AccessError, ConfigError
from tidemark.node.logs import Log
from tidemark.node.security.login import LoginError
from tidemark.node.security.tls import changed_at

KEY = "security.bearer_keys"
#: Clocks may differ by so many seconds.
LEEWAY_SECONDS = 30
SECRET_BYTES_MIN = 32
ROLES_MAX = 100
#: Claims that differ from token to token of one principal.
_OF_ONE_TOKEN = frozenset(("auth_time", "exp", "iat", "jti", "nbf"))
log = Log("bearer")
_ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


class BearerKeys:
    """The keys of those who issue tokens."""

    def __init__(self, path: str, *, issuer: str = "", audience: str = "", roles_claim: str = "") -> None:
        """Read the keys. ConfigError if there are none, or if PyJWT is not installed."""
        try:
            import jwt
        except ImportError:
            raise ConfigError("bearer tokens need PyJWT: pip install 'tidemark[security]'", key=KEY) from None
        self._jwt: Any = jwt
        self._issuer = issuer
        self._audience = audience
        self._roles_claim = roles_claim
        self._path = path
        self._seen = changed_at(path)
        #: key id, "" for none -> key and the algorithms that may be used with it; replaced as a whole
        self._keys = self._read(path)

    def look(self, *, is_asked: bool = False) -> None:
        """Read the keys again if their file has changed, or if somebody asks for it."""
        seen = changed_at(self._path)
        if seen == self._seen and not is_asked:
            return
        self._seen = seen
        try:
            self._keys = self._read(self._path)
        except ConfigError as error:
            log.error("the new keys of bearer tokens cannot be used, those before stay", reason=str(error))
        else:
            log.info("the keys of bearer tokens were read again", keys=len(self._keys))

    def _read(self, path: str) -> dict[str, tuple[Any, tuple[str, ...]]]:
        keys: dict[str, tuple[Any, tuple[str, ...]]] = {}
        try:
            data = Path(path).read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"the keys of bearer tokens cannot be read: {error}", key=KEY) from None
        if data.startswith(b"{"):
            try:
                found = self._jwt.PyJWKSet.from_dict(json.loads(data))
            except (ValueError, self._jwt.PyJWTError) as error:
                raise ConfigError(f"{path} is no JWKS: {error}", key=KEY) from None
            for each in found.keys:
                keys[each.key_id or ""] = (each.key, (each.algorithm_name,))
        elif b"-----BEGIN" in data:
            if b"PRIVATE" in data:
                raise ConfigError(f"{path} has a private key: a broker needs the public one only", key=KEY)
            keys[""] = (data, _ASYMMETRIC)
        elif len(data) >= SECRET_BYTES_MIN:
            keys[""] = (data, ("HS256",))
        else:
            raise ConfigError(
                f"{path} has neither a PEM key, nor a JWKS, nor a secret of {SECRET_BYTES_MIN} bytes", key=KEY
            )
        return keys

    def check(self, token: str) -> tuple[Principal, float]:
        """Return whose the token is, and when it expires, in seconds of day. Raises LoginError."""
        jwt = self._jwt
        try:
            key, algorithms = self._key(str(jwt.get_unverified_header(token).get("kid", "")))
            claims = jwt.decode(
                token,
                key,
                algorithms=list(algorithms),
                issuer=self._issuer or None,
                audience=self._audience or None,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "sub"], "verify_aud": bool(self._audience)},
            )
            name = check_name(str(claims["sub"]))
            # What every new token has anew says nothing of whose it is.
            lasting = {key: value for key, value in claims.items() if key not in _OF_ONE_TOKEN}
            return Principal(name, check_claims(lasting), self._roles(claims)), float(claims["exp"])
        except (
            jwt.PyJWTError,
            AccessError,
            ArithmeticError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise LoginError(f"bearer token: {type(error).__name__}: {error}"[:200]) from None

    def _key(self, key_id: str) -> tuple[Any, tuple[str, ...]]:
        found = self._keys.get(key_id) or (next(iter(self._keys.values())) if len(self._keys) == 1 else None)
        if found is None:
            raise KeyError(f"no key {key_id[:40]!r}")
        return found

    def _roles(self, claims: dict[str, Any]) -> tuple[str, ...]:
        found = claims.get(self._roles_claim) if self._roles_claim else None
        if not isinstance(found, list):
            return ()
        return tuple(str(each) for each in found[:ROLES_MAX] if isinstance(each, str))
