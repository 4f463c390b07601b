"""Verifier: what a password is checked against (RFC 5802, RFC 7677), without the password itself.

Written `SCRAM-SHA-256$iterations:salt$stored key:server key`, each in base64, as PostgreSQL writes it.
Whoever reads a verifier cannot log in with it, but can try passwords against it: keep access documents
secret.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, field

from tidemark.errors import AccessError

SCHEME = "SCRAM-SHA-256"
#: Rounds of hashing a password. RFC 7677 asks for 4,096 at the least; many more cost each login that time.
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 1_000_000
_KEY_BYTES = 32
_SALT_BYTES_MAX = 64
_FORM = re.compile(r"SCRAM-SHA-256\$([0-9]{1,7}):([^:$]+)\$([^:$]+):([^:$]+)")


@dataclass(frozen=True, slots=True)
class Verifier:
    """The salted keys of one password."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """Read a verifier. AccessError if it is none; its text is never part of the error."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise AccessError("this is no verifier of a password: make one with `tidemark access password`")
        try:
            salt, stored, server = (b64decode(each, validate=True) for each in found.group(2, 3, 4))
        except (Base64Error, ValueError):
            raise AccessError("a part of the verifier is no base64") from None
        iterations = int(found[1])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise AccessError(f"a verifier has {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations")
        if not 0 < len(salt) <= _SALT_BYTES_MAX or len(stored) != _KEY_BYTES or len(server) != _KEY_BYTES:
            raise AccessError("the verifier was cut or is of another kind")
        return cls(iterations, salt, stored, server)

    @property
    def text(self) -> str:
        """The verifier as the document has it."""
        salt, stored, server = (
            b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)
        )
        return f"{SCHEME}${self.iterations}:{salt}${stored}:{server}"
