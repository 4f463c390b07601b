"""Principal: who is at the other end of a connection, once that is proved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tidemark.errors import AccessError

#: The values that a claim can have; rules compare them with fields.
Claim = str | int | float | bool

NAME_CHARACTERS_MAX = 200
CLAIMS_MAX = 64
CLAIM_CHARACTERS_MAX = 1_000


def _no_claims() -> Mapping[str, Claim]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or program: its name, and what is vouched for beside the name.

    Of two principals of one name, the claims may differ: those of a bearer token hold for its connection.
    """

    name: str
    claims: Mapping[str, Claim] = field(default_factory=_no_claims)
    #: roles that a bearer token gives beside those of the access document
    roles: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Compare claims with their types: to a rule, True is not 1, and 1 is not 1.0."""
        if not isinstance(other, Principal):
            return NotImplemented
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        typed = frozenset((name, type(value), value) for name, value in self.claims.items())
        return self.name, typed, self.roles


#: The broker's own process, which may see how the broker stands. No user can have this name.
BROKER_ITSELF = Principal("*broker")


def check_name(name: str) -> str:
    """Return `name` if a principal can have it.

    Raises AccessError if it is empty, too long, or has characters that show as nothing or as something else.
    """
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise AccessError(f"a user's name has 1 to {NAME_CHARACTERS_MAX} characters")
    if not name.isprintable() or any(character in name for character in "*{}"):
        raise AccessError(f"{name!r} is no user's name: it has control characters, `*`, `{{` or `}}` in it")
    return name


def check_claims(claims: Mapping[str, object]) -> dict[str, Claim]:
    """Return the claims with values that rules can compare. AccessError if they are too many or too long.

    Other values, such as lists, are left out: no rule can name them. So are numbers that are not finite, and
    texts that are not Unicode, which a JSON text can have.
    """
    if len(claims) > CLAIMS_MAX:
        raise AccessError(f"a principal has at most {CLAIMS_MAX} claims, this one has {len(claims)}")
    found: dict[str, Claim] = {}
    for name, value in claims.items():
        if isinstance(value, str) and len(value) > CLAIM_CHARACTERS_MAX:
            raise AccessError(f"the claim {name[:80]!r} has more than {CLAIM_CHARACTERS_MAX} characters")
        if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            raise AccessError(f"the claim {name[:80]!r} has more than 64 bits")
        if isinstance(value, str | int | float | bool) and _can_be_written(value):
            found[name] = value
    return found


def _can_be_written(value: Claim) -> bool:
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    return math.isfinite(value)
