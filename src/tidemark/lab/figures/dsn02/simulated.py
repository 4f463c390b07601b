"""The experiments of DSN'02 on simulated time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemark.lab.figures.dsn02 import figures as dsn02
from tidemark.lab.figures.dsn02.overlay import RELAYS, SimulatedFailures, layout_of
from tidemark.lab.figures.table import Table

METHOD = """
The paper's overlay: p1 hosts four pubends and their publishers, s1 to s5 a subscriber of everything each;
between them is a cell of two relays, b1 and b2, each linked to p1 and to every host. Two of the pubends come
through b1, the others through b2, as in the paper; where a pubend goes is a matter of its name, and these
were named so that they do. Links take 1 ms, a sync up to 20 ms; computing takes no time. What subscribers got
was checked: every event once and in order.
"""
CRASH_OF_RELAY = "b1 stands still for a while before it crashes, so that what it was given is lost."
CRASH_OF_PUBLISHER = """
Just before the crash p1's links are stalled, so that it has logged what it could not send. Publishers stop
while p1 is down, as in the paper.
"""
#: Events a second, besides the rate of figure 7.
RATES, RATES_QUICK = (20, 40, 100, 200, 400), (40, 100)


def link(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Figure 6."""
    effort = replace(dsn02.LINK, before=2) if quick else dsn02.LINK
    say(f"b1-s1 is stalled for {effort.stalled:g} simulated seconds, then down")
    return dsn02.link_fails(_overlay(effort), effort)


def relay(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Figure 7, and the same at other rates, for a shorter time."""
    short = replace(dsn02.RELAY, down=2, after=2)
    effort = short if quick else dsn02.RELAY
    say(f"b1 is stalled for {effort.stalled:g} simulated seconds, then down for {effort.down:g}")
    found, rates = dsn02.relay_crashes(_overlay(effort), effort), dsn02.rates_table()
    for rate in RATES_QUICK if quick else RATES:
        say(f"the same with {rate} events a second")
        other = replace(short, events_a_second=rate)
        dsn02.add_rate(rates, other, dsn02.relay_crashes(_overlay(other), other))
    return [*found, rates]


def publisher(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Figure 8."""
    effort = replace(dsn02.PUBLISHER, down=2, after=3) if quick else dsn02.PUBLISHER
    say(f"p1 is down for {effort.down:g} simulated seconds")
    return dsn02.publisher_crashes(_overlay(effort), effort, RELAYS)


def _overlay(effort: dsn02.PhaseDurations) -> SimulatedFailures:
    return SimulatedFailures(layout_of(), effort.events_a_second)
