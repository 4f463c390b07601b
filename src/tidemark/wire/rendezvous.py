"""Rendezvous hashing: among candidates, the one of the highest weight.

Every process, of every version, has to come to the same choice, so the hash must never change. A candidate
that comes or goes moves only the keys that it wins or held.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def weight(*names: str) -> int:
    """Return the weight of the last names, the candidate, for the first one, the key."""
    text = b"\0".join(name.encode() for name in names)
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def chosen(key: str, candidates: Iterable[str]) -> str:
    """Return the candidate of the highest weight for the key; ValueError if there is none."""
    return max(candidates, key=lambda candidate: weight(key, candidate))
