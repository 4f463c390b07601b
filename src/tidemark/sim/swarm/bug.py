"""Bug: one mistake in the protocol that can be planted, and how a world that noticed it speaks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: (object, name of its attribute, the value that replaces it)
Patch = tuple[object, str, Any]


@dataclass(frozen=True, slots=True)
class Bug:
    """One mistake in the protocol."""

    about: str
    patches: Callable[[], list[Patch]]
    #: the violation of a world that noticed the bug contains one of these texts
    notices: tuple[str, ...]
    #: the profile in whose worlds the bug shows
    profile: str = "swarm"

    def is_noticed_by(self, violation: str) -> bool:
        """Whether a violation is of the promise that this bug breaks."""
        return any(text in violation for text in self.notices)
