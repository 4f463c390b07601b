"""Planted bugs about publishers that move: a pubend forgets who has left, or does not mind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemark.broker.publishing.pubend import Pubend
from tidemark.sim.swarm.bug import Bug, Patch

_TWICE = ("is logged twice",)


def _forget_who_left() -> list[Patch]:
    begin = Pubend.__init__

    def forgetful(self: Pubend, name: str, state: Any, *rest: Any) -> None:
        begin(self, name, replace(state, moves={}), *rest)

    return [(Pubend, "__init__", forgetful)]


def _take_what_was_on_its_way() -> list[Patch]:
    def nobody(self: Pubend, name: str) -> bool:
        del self, name
        return False

    return [(Pubend, "_has_left", nobody)]


FORGOTTEN_MOVES = {
    "left-forgotten": Bug(
        "after a restart a pubend takes events of publishers that have left", _forget_who_left, _TWICE
    ),
    "left-open": Bug(
        "a pubend takes what was on its way when the publisher left", _take_what_was_on_its_way, _TWICE
    ),
}
