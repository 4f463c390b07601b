"""The experiments of DSN'03 on real processes; they write the same tables as in the simulator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import time

from tidemark.client.client import connect
from tidemark.errors import ClientError
from tidemark.lab.figures.dsn03.client_rates import ClientRates
from tidemark.lab.figures.dsn03.figures import (
    BEHIND_S,
    PUBENDS,
    Disconnections,
    HostCrash,
    phases_table,
)
from tidemark.lab.figures.dsn03.progress import ProgressSamples
from tidemark.lab.figures.real_overlay import LoadSubscriber, RealOverlay
from tidemark.lab.figures.table import Table
from tidemark.wire import answers
from tidemark.wire.answers import StreamStatus

DISCONNECTIONS = Disconnections(
    events_a_second=800, subscribers=20, seconds=50, every_seconds=30, away_seconds=5
)
DISCONNECTIONS_QUICK = Disconnections(80, 4, 6, every_seconds=3, away_seconds=0.5, sample_seconds=0.5)
CRASH = HostCrash(
    events_a_second=800,
    subscribers=20,
    before_seconds=6,
    down_seconds=25,
    after_seconds=6,
    sample_seconds=0.1,
)
CRASH_QUICK = HostCrash(80, 4, 2, down_seconds=1, after_seconds=2)
POLL_SECONDS = 0.02
WARM_SECONDS = 1.0


class ProgressSampler(ProgressSamples):
    """Samples latest_delivered and released of two broker processes, and the returns of subscribers."""

    def __init__(self, overlay: RealOverlay, sample_seconds: float) -> None:
        self.overlay = overlay
        self._sample_seconds = sample_seconds
        self._start = time()
        self.rates = ClientRates(overlay, self._start)
        super().__init__(lambda tick: tick / 1e3 - self._start * 1e3)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time() - self._start

    async def begin(self) -> None:
        """Begin to sample."""
        for subscriber in self.overlay.subscribers:
            subscriber.caught_up = self._caught_up
        self._tasks = [
            asyncio.create_task(self._watch_delivered()),
            asyncio.create_task(self._watch_released()),
            asyncio.create_task(self.rates.watch()),
        ]

    async def end(self) -> None:
        """Stop sampling and finish; AssertionError if a subscriber did not get its events."""
        for task in self._tasks:
            task.cancel()
        await self.overlay.finish()

    def _caught_up(self, name: str, left: float, returned: float, taken: float) -> None:
        self.returns.add(name, left - self._start, returned - self._start, taken)

    async def _watch_delivered(self) -> None:
        while True:
            at = self.now
            self.sample_delivered(at, await self._streams() or [])
            await asyncio.sleep(max(0.0, at + self._sample_seconds - self.now))

    async def _streams(self) -> Sequence[StreamStatus] | None:
        """Asks the subscriber hosting broker; returns None while it is down."""
        if not self.overlay.shb.is_running:
            return None
        # A new connection for each question: a client that reconnects waits longer each time.
        try:
            async with connect(self.overlay.shb.url, connect_timeout=1.0) as client:
                return await self.overlay.ask(client, answers.STREAMS)
        except ClientError:
            return None

    async def _watch_released(self) -> None:
        client = await self.overlay.client(self.overlay.phb)
        while True:
            at = self.now
            self.sample_released(at, await self.overlay.ask(client, answers.PUBENDS) or [])
            await asyncio.sleep(max(0.0, at + self._sample_seconds - self.now))


def coming_and_going(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Figures 5 and 6."""
    return asyncio.run(_coming_and_going(DISCONNECTIONS_QUICK if quick else DISCONNECTIONS, say))


async def _coming_and_going(effort: Disconnections, say: Callable[[str], None]) -> Sequence[Table]:
    async with RealOverlay(PUBENDS) as overlay:
        await overlay.populate(effort.subscribers, effort.events_a_second)
        await asyncio.sleep(WARM_SECONDS)
        sampler = ProgressSampler(overlay, effort.sample_seconds)
        await sampler.begin()
        absences = [
            asyncio.create_task(_absence(sampler, overlay.subscribers[number], leaves, returns))
            for number, leaves, returns in effort.absences(0.0)
        ]
        while sampler.now < effort.seconds:
            await asyncio.sleep(min(10.0, effort.seconds - sampler.now))
            say(f"{sampler.now:.0f} of {effort.seconds:.0f} s")
        await asyncio.gather(*absences)
        await sampler.end()
    return [sampler.progress, sampler.returns, effort.setting()]


async def _absence(
    sampler: ProgressSampler, subscriber: LoadSubscriber, leaves: float, returns: float
) -> None:
    await asyncio.sleep(leaves - sampler.now)
    await subscriber.leave()
    await asyncio.sleep(returns - sampler.now)
    await subscriber.come()


def crash(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Figure 7."""
    return asyncio.run(_crash(CRASH_QUICK if quick else CRASH, say))


async def _crash(effort: HostCrash, say: Callable[[str], None]) -> Sequence[Table]:
    phases = phases_table()
    async with RealOverlay(PUBENDS) as overlay:
        await overlay.populate(effort.subscribers, effort.events_a_second)
        await asyncio.sleep(WARM_SECONDS)
        sampler = ProgressSampler(overlay, effort.sample_seconds)
        await sampler.begin()
        await asyncio.sleep(effort.before_seconds)
        phases.add("down", sampler.now)
        await asyncio.to_thread(overlay.shb.kill)
        await asyncio.gather(*(each.leave() for each in overlay.subscribers))
        say("the subscriber hosting broker is down")
        await asyncio.sleep(effort.down_seconds)
        await asyncio.to_thread(overlay.shb.start)
        phases.add("up", sampler.now)
        await _until(lambda: sampler.delivered() >= sampler.now - BEHIND_S)
        phases.add("delivered", sampler.now)
        phases.add("returned", sampler.now)
        say("subscribers return")
        await asyncio.gather(*(each.come() for each in overlay.subscribers))
        await _until(lambda: not any(each.is_catching_up for each in overlay.subscribers))
        await asyncio.sleep(effort.after_seconds)
        phases.add("end", sampler.now)
        await sampler.end()
    rates = sampler.rates
    return [sampler.progress, sampler.returns, phases, rates.received, rates.busy, effort.setting()]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(POLL_SECONDS)
