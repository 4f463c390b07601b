"""Planted bugs about publishers that move: a pubend forgets who has left, or says it too early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidemark.broker.publishing.pubend import Pubend
from tidemark.sim.swarm.bug import Bug, Patch
from tidemark.wire.moving.frames import Leave, Left

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


def _let_go_before_sync() -> list[Patch]:
    leave, when_durable = Pubend.leave, Pubend._when_durable

    def at_once(self: Pubend, action: Callable[[], None], failed: Callable[[], None]) -> None:
        del self, failed
        action()

    def hasty(self: Pubend, frame: Leave, answer: Callable[[Left], None]) -> None:
        Pubend._when_durable = at_once  # type: ignore[method-assign]
        try:
            leave(self, frame, answer)
        finally:
            Pubend._when_durable = when_durable  # type: ignore[method-assign]

    return [(Pubend, "leave", hasty)]


FORGOTTEN_MOVES = {
    "left-forgotten": Bug(
        "after a restart a pubend takes events of publishers that have left", _forget_who_left, _TWICE
    ),
    "left-open": Bug(
        "a pubend takes what was on its way when the publisher left", _take_what_was_on_its_way, _TWICE
    ),
    "left-before-sync": Bug(
        "a publisher is told what a pubend has before that is on disk",
        _let_go_before_sync,
        ("acknowledged and not on disk", *_TWICE),
    ),
}
