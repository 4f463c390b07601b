"""Attacks over links: what a broker that holds the key of the overlay, and is a neighbour, can do.

What it says has the allowed forms and comes from its place in the topology: the broker does not end the link.
"""

from __future__ import annotations

from itertools import count
from time import time

from tidemark.lab.bench.hostile.attacks import PUBEND, Attack
from tidemark.lab.bench.hostile.bare_link import INCARNATION, BareLink
from tidemark.ticks import TICK_LAST, TICK_MAX
from tidemark.wire.frames import Claim, Fetch, Interest, Nack, PeerFrame, Release, ReleaseRow, Together

#: Sequences and versions of the first life of a broker are higher than this.
LIFE = INCARNATION << 32
#: How far back the ticks lie that are asked for.
BACK_US = 60_000_000


async def _linked(attack: Attack, name: str) -> BareLink:
    link = await BareLink.linked(attack.url, name, attack.key)
    attack.clients.append(link)
    return link


async def _say(attack: Attack, link: BareLink, *frames: PeerFrame) -> None:
    await link.send(*frames)
    attack.done += 1
    if link.is_closed:
        raise ConnectionError(link.reason)


async def nacks(attack: Attack) -> None:
    """Follow the pubend, and ask for the last minute again and again, in as many ranges as fit."""
    link = await _linked(attack, "asking")
    await link.send(Interest(PUBEND, LIFE + 1, None))
    number = attack.sizes.ranges
    step = BACK_US // number
    while True:
        first = int(time() * 1e6) - BACK_US
        ranges = tuple((first + at * step, first + at * step + step // 2) for at in range(number))
        await _say(attack, link, Nack(PUBEND, ranges, LIFE + 1))


async def claims(attack: Attack) -> None:
    """Claim subscriptions that nobody else has, thousands at a time."""
    link = await _linked(attack, "claiming")
    for number in count():
        epoch = int(time() * 1e6)
        names = (f"claimed {number} {at}" for at in range(attack.sizes.claims))
        parts = tuple(Claim(name, epoch, "claiming", settled=False) for name in names)
        await _say(attack, link, Together(parts))


async def rows(attack: Attack) -> None:
    """Tell how far hosts have got: the attacker, and as many others as one frame may name."""
    link = await _linked(attack, "reporting")
    for number in count(1):
        hosts = ("reporting", *(f"host {at}" for at in range(attack.sizes.rows - 1)))
        told = tuple(ReleaseRow(host, LIFE + number, TICK_MAX, TICK_MAX) for host in hosts)
        await _say(attack, link, Release(PUBEND, told))


async def link_fetches(attack: Attack) -> None:
    """Read the log from its beginning over a link, again and again, without waiting for answers."""
    link = await _linked(attack, "fetching")
    for ticket in count(1):
        await _say(attack, link, Fetch(ticket, PUBEND, 0, TICK_LAST, ">", "nobody LIKE '%a%b'", 8 << 20))
