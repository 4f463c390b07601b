"""Neighbourhood: what the parts of a broker may ask about other brokers."""

from __future__ import annotations

from typing import Protocol


class Neighbourhood(Protocol):
    """The other brokers as the parts of a broker see them; `OverlayRole` is the one implementation."""

    def present(self) -> list[str]:
        """Return the neighbours that frames can be sent to now, sorted by name."""

    def is_present(self, peer: str) -> bool:
        """Return whether frames can be sent to this neighbour now."""

    def is_member(self, broker: str) -> bool:
        """Return whether a broker of this name is in the layout."""

    def way_to(self, broker: str) -> str | None:
        """Return a neighbour that is there and is nearer to this broker; None if there is none."""
