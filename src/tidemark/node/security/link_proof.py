"""LinkKey: brokers prove to each other that they have the key of the overlay, without saying it.

Each side draws a nonce and sends it as a Challenge; the answer is an HMAC over both names, both nonces, and
which of the two has called. A proof is good for one connection, for one prover and one verifier: it can
neither be played back, nor reflected at the one who asked, nor used towards a third broker. Who has called
proves first, and who was called proves nothing to a stranger. Otherwise somebody without the key could call
two brokers, each in the name of the other, and have each of them prove what the other one asks.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from secrets import token_hex

from tidemark.errors import ConfigError

NONCE_BYTES = 32
KEY_BYTES_MIN = 16
KEY_BYTES_MAX = 4 << 10
_CALLER, _CALLED = "tidemark link, the caller", "tidemark link, the called"


class LinkKey:
    """The key of an overlay."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        """The key never shows."""
        return "LinkKey(...)"

    @classmethod
    def load(cls, path: str) -> LinkKey:
        """Read the key from a file. ConfigError if there is none, or if it is too short to be one."""
        try:
            key = Path(path).read_bytes()[: KEY_BYTES_MAX + 1].strip()
        except OSError as error:
            raise ConfigError(
                f"the overlay's key cannot be read: {error}", key="security.overlay_key"
            ) from None
        if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
            raise ConfigError(
                f"{path} is no key of an overlay: it needs {KEY_BYTES_MIN} random bytes or more, as "
                "`openssl rand -hex 32` makes them",
                key="security.overlay_key",
            )
        return cls(key)

    def proof(
        self, prover: str, verifier: str, verifier_nonce: str, prover_nonce: str, *, is_caller: bool
    ) -> str:
        """Return the proof of `prover`, which has called or was called, for `verifier`, in hexadecimal."""
        parts = (_CALLER if is_caller else _CALLED, prover, verifier, verifier_nonce, prover_nonce)
        return hmac.new(self._key, b"".join(part.encode() + b"\0" for part in parts), "sha256").hexdigest()


def new_nonce() -> str:
    """Return a nonce for one connection."""
    return token_hex(NONCE_BYTES)


class LinkProving:
    """What one connection to another broker has proved, and has to prove."""

    def __init__(self, key: LinkKey | None, *, is_caller: bool) -> None:
        """`is_caller`: this side has opened the connection. Without a key nothing can be proved."""
        self._key = key
        self._is_caller = is_caller
        self.nonce = new_nonce() if key is not None else ""
        #: the nonce of the other side, once it has sent its first Challenge
        self._their_nonce = ""
        self.is_proved = False

    @property
    def has_key(self) -> bool:
        """Whether this broker has a key of the overlay."""
        return self._key is not None

    def challenged(self, nonce: str) -> None:
        """The other side asks for a proof. What it asks first counts."""
        self._their_nonce = self._their_nonce or nonce

    def proof(self, me: str, other: str) -> str:
        """Return what the other side, which has sent its Challenge, is owed."""
        assert self._key is not None
        return self._key.proof(me, other, self._their_nonce, self.nonce, is_caller=self._is_caller)

    def check(self, proof: str, prover: str, me: str) -> bool:
        """Return whether the other side has proved to be `prover`; its Challenge must have come before.

        Every wrong proof takes the same time.
        """
        if self._key is not None and self._their_nonce and self._their_nonce != self.nonce:
            wanted = self._key.proof(prover, me, self.nonce, self._their_nonce, is_caller=not self._is_caller)
            self.is_proved = prover != me and hmac.compare_digest(wanted.encode(), proof.encode())
        return self.is_proved
