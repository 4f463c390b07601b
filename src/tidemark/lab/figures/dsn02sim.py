"""The experiments of DSN'02 on simulated time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemark.lab.figures import dsn02
from tidemark.lab.figures.overlay import PUBENDS, SimOverlay, parents_of
from tidemark.lab.figures.simstage import STEADY
from tidemark.lab.figures.table import Table
from tidemark.sim.plan import Plan

METHOD = """
p1 hosts four pubends and their publishers, s1 to s5 a subscriber of everything each; between them is one
relay. Links take 1 ms, a sync up to 20 ms; computing takes no time. Just before the crash p1's link is
stalled, so that it has logged what it could not send. Publishers stop while p1 is down, as in the paper. What
subscribers got was checked: every event once and in order.
"""
RELAYS = ("b1",)


def overlay(events_a_second: float) -> SimOverlay:
    """A world to do things to."""
    return SimOverlay(
        Plan(parents_of(RELAYS), dict.fromkeys(PUBENDS, "p1"), STEADY, topics=("t.x",)), events_a_second
    )


def publisher(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Figure 8."""
    effort = replace(dsn02.PUBLISHER, down=2, after=3) if quick else dsn02.PUBLISHER
    say(f"p1 is down for {effort.down:g} simulated seconds")
    return dsn02.publisher_crashes(overlay(effort.events_a_second), effort, RELAYS)
