"""LinkKey: brokers prove to each other that they have the key of the overlay, without saying it.

Each side draws a nonce and sends it as a Challenge; the answer is an HMAC over both names and both nonces. A
proof is good for one connection, for one prover and one verifier: it can neither be played back, nor
reflected at the one who asked, nor used towards a third broker.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from secrets import token_hex

from tidemark.errors import ConfigError

NONCE_BYTES = 32
KEY_BYTES_MIN = 16
KEY_BYTES_MAX = 4 << 10
_CONTEXT = "tidemark link"


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

    def proof(self, prover: str, verifier: str, verifier_nonce: str, prover_nonce: str) -> str:
        """Return the proof of `prover` for `verifier`, in hexadecimal digits."""
        parts = (_CONTEXT, prover, verifier, verifier_nonce, prover_nonce)
        return hmac.new(self._key, b"".join(part.encode() + b"\0" for part in parts), "sha256").hexdigest()

    def is_proved(
        self, proof: str, prover: str, verifier: str, verifier_nonce: str, prover_nonce: str
    ) -> bool:
        """Return whether `proof` is the one that `prover` owes; takes the same time for every wrong one."""
        wanted = self.proof(prover, verifier, verifier_nonce, prover_nonce)
        return prover != verifier and hmac.compare_digest(wanted.encode(), proof.encode())


def new_nonce() -> str:
    """Return a nonce for one connection."""
    return token_hex(NONCE_BYTES)


class LinkProving:
    """What one connection to another broker has proved, and has to prove."""

    def __init__(self, key: LinkKey | None) -> None:
        """Without a key nothing can be proved."""
        self._key = key
        self.nonce = new_nonce() if key is not None else ""
        #: the nonce of the other side, once it has sent its Challenge
        self._their_nonce = ""
        self.is_proved = False

    @property
    def has_key(self) -> bool:
        """Whether this broker has a key of the overlay."""
        return self._key is not None

    def answer(self, me: str, other: str, nonce: str) -> str:
        """Return the proof that the other side asks for with `nonce`."""
        assert self._key is not None
        self._their_nonce = nonce
        return self._key.proof(me, other, nonce, self.nonce)

    def check(self, proof: str, prover: str, me: str) -> bool:
        """Return whether the other side has proved to be `prover`; its Challenge must have come before."""
        if self._key is not None and self._their_nonce and self._their_nonce != self.nonce:
            self.is_proved = self._key.is_proved(proof, prover, me, self.nonce, self._their_nonce)
        return self.is_proved
