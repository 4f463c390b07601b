"""How fast a worker publishes: what it has counted, and what it has cost, in a time after it is warm."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from dataclasses import dataclass
from time import monotonic

from tidemark.lab.bench.processes.shared_counters import SharedCounters


@dataclass(frozen=True, slots=True)
class PublishingRate:
    """What a worker has published while it was measured."""

    seconds: float
    #: events a second
    rate: float
    #: CPU time of this process in each second
    cpu: float


async def measure_flow(
    flow: Awaitable[None], counters: SharedCounters, warm: float, seconds: float
) -> PublishingRate:
    """Await `flow`, which publishes until the counters say stop; measure it for `seconds` after `warm`."""
    counters.stop(is_over=False)
    publishing = asyncio.ensure_future(flow)
    await asyncio.sleep(warm)
    began, before, cpu = monotonic(), counters.published, os.times()
    await asyncio.sleep(seconds)
    taken, events, end = monotonic() - began, counters.published - before, os.times()
    counters.stop()
    await publishing
    used = end.user + end.system - cpu.user - cpu.system
    return PublishingRate(taken, events / taken, used / taken)
