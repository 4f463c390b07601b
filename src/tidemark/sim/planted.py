"""Planted bugs: the protocol with one thing done wrong, to see that the simulator would notice.

Each is a patch of the real classes while it lasts; nothing of this is reachable from a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tidemark.broker import constream, host
from tidemark.broker.audience import Audience
from tidemark.broker.constream import Constream
from tidemark.broker.host import Host
from tidemark.broker.interest import Interests
from tidemark.broker.pubend import Pubend
from tidemark.broker.release import Minima
from tidemark.ticks import TICK_MAX, TICK_MIN, Curiosity

Patch = tuple[object, str, Any]


def _acknowledge_before_sync() -> list[Patch]:
    return [(Pubend, "_when_durable", lambda self, action, failed: action())]


def _no_deduplication() -> list[Patch]:
    received = Pubend.received

    def forgetful(self: Pubend, client: int, frame: Any, wall: int) -> None:
        known = self._publishers.get(frame.publisher)
        if known is not None and frame.sequence <= known[0]:
            self._publishers[frame.publisher] = (frame.sequence - 1, known[1])
        received(self, client, frame, wall)

    return [(Pubend, "received", forgetful)]


def _knowledge_before_sync() -> list[Patch]:
    append = Pubend._append

    def hasty(self: Pubend, publisher: str, last: int, batch: Any, wall: int) -> None:
        append(self, publisher, last, batch, wall)
        self._publish(self.position, int(batch.ticks[-1]), batch)

    return [(Pubend, "_append", hasty)]


def _leave_out_in_doubt() -> list[Patch]:
    selection = Interests.selection

    def bold(self: Interests, peer: str) -> Any:
        return selection(self, peer) or Audience(self._registry)

    return [(Interests, "selection", bold)]


def _unknown_has_released() -> list[Patch]:
    total = Minima.total

    def careless(self: Minima) -> Any:
        reports = self._reports
        self._reports = {name: each or (TICK_MAX, TICK_MAX) for name, each in reports.items()}
        try:
            return total(self)
        finally:
            self._reports = reports

    return [(Minima, "total", careless)]


def _start_at_a_moment() -> list[Patch]:
    expected = Constream.expected

    def impatient(self: Constream, tag: int, base: int, versions: dict[int, int]) -> None:
        expected(self, TICK_MAX, base, versions)

    return [(Constream, "expected", impatient)]


def _rewind_who_is_ahead() -> list[Patch]:
    def trusting(self: Host, pubend: str, subscription: Any, upto: int, part: Any) -> None:
        self._tell(subscription, pubend, subscription.told[pubend], upto, part)

    return [(Host, "_feed", trusting)]


def _nack_once() -> list[Patch]:
    due = Curiosity.due

    def once(self: Curiosity, now: int) -> Any:
        ranges = due(self, now)
        for base, upto in ranges:
            self.answered(base, upto)
        return ranges

    return [(Curiosity, "due", once)]


def _deliver_the_expired() -> list[Patch]:
    return [
        (constream, "unexpired", lambda batch, wall: batch),
        (host, "unexpired", lambda batch, wall: batch),
    ]


def _forget_the_lease() -> list[Patch]:
    begin = Pubend.__init__

    def forgetful(self: Pubend, name: str, state: Any, *rest: Any) -> None:
        begin(self, name, replace(state, lease=TICK_MIN), *rest)

    return [(Pubend, "__init__", forgetful)]


def _join_before_the_end() -> list[Patch]:
    catch_up = Host._catch_up

    def early(self: Host, pubend: str, subscription: Any, catchup: Any) -> None:
        catch_up(self, pubend, subscription, catchup)
        stream = self.constreams[pubend]
        if subscription.id in stream.catchups and (stream.delivered or 0) - catchup.position < 50_000:
            del stream.catchups[subscription.id]

    return [(Host, "_catch_up", early)]


def _change_at_a_moment() -> list[Patch]:
    into_force = Host._come_into_force

    def careless(self: Host, pubend: str, stream: Any, subscription: Any, desire: Any, tick: int) -> None:
        into_force(self, pubend, stream, subscription, desire, tick)
        at = subscription.desires.index(desire)
        for other in subscription.desires[:at]:
            subscription.desires.remove(other)
            self._forget(other)
        self.attend()

    return [(Host, "_come_into_force", careless)]


def _pfs_before_the_disk() -> list[Patch]:
    log = Host._log

    def hasty(self: Host, pubend: str, stream: Constream, piece: Any) -> None:
        log(self, pubend, stream, piece)
        stream.synced = piece.upto

    return [(Host, "_log", hasty)]


#: name -> what is done wrong, and the patches that do it
BUGS: dict[str, tuple[str, Callable[[], list[Patch]]]] = {
    "ack-before-sync": ("a publisher is told before its event is on disk", _acknowledge_before_sync),
    "no-dedup": ("a batch that is sent again is logged again", _no_deduplication),
    "knowledge-before-sync": ("events are passed on before they are on disk", _knowledge_before_sync),
    "filter-in-doubt": ("a neighbour that has not said what it wants gets nothing", _leave_out_in_doubt),
    "unknown-released": ("who has not reported counts as having released all", _unknown_has_released),
    "start-at-a-moment": ("a subscriber starts before its interest is known upstream", _start_at_a_moment),
    "rewind": ("a subscriber that is ahead of its host gets events again", _rewind_who_is_ahead),
    "nack-once": ("a nack that is lost is never repeated", _nack_once),
    "deliver-expired": ("events are delivered after their validity", _deliver_the_expired),
    "forget-lease": ("after a crash, silence that was advertised may turn into events", _forget_the_lease),
    "join-early": ("a catchup stream joins the constream before it has reached it", _join_before_the_end),
    "change-at-a-moment": ("what was wanted before a change is forgotten at once", _change_at_a_moment),
    "pfs-before-sync": ("what the PFS does not have on disk counts as delivered", _pfs_before_the_disk),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The world with one bug in it."""
    _, patches = BUGS[name]
    active = [patch.object(where, what, new) for where, what, new in patches()]
    for each in active:
        each.start()
    try:
        yield
    finally:
        for each in reversed(active):
            each.stop()
