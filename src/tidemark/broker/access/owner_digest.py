"""Digests of owners: by what brokers tell each other whose a subscription or a publisher is."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

#: Owners whose digest is remembered.
DIGESTS_MAX = 4_096


@lru_cache(DIGESTS_MAX)
def digest_of(owner: str) -> str:
    """Return the digest by which brokers tell owners apart; "" for nobody."""
    return sha256(owner.encode()).hexdigest()[:32] if owner else ""
