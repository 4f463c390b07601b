"""Watching an overlay: what all its brokers say of themselves, asked once however many browsers look.

A caller's browsers share one watch. The brokers are asked at most every REFRESH_SECONDS, and only while
somebody looks; their subscriptions, which may be many, at most every SUBSCRIPTIONS_SECONDS. Rates are kept
for the charts as long as somebody has looked within LOOKED_SECONDS.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark.admin.broker_snapshot import SubscriptionLag, furthest_behind_first, lags_of
from tidemark.admin.overlay_description import BrokerReport, OverlayDescription, describe_overlay
from tidemark.admin.overlay_queries import urls_of
from tidemark.client.client import Client
from tidemark.client.connecting.pending_requests import first_pages
from tidemark.console.callers import Caller, Connections
from tidemark.console.catch_up import CatchUps
from tidemark.console.latency import quantile
from tidemark.console.recent_events import HostedPubend
from tidemark.errors import ClientError, RefusedError, TidemarkError
from tidemark.node.topology.file import parse_topology
from tidemark.node.topology.topology import Topology
from tidemark.wire.answers import (
    ENGINE,
    LINKS,
    METRICS,
    OVERLAY,
    PUBENDS,
    ROUTES,
    STATUS,
    SUBSCRIPTIONS,
    EngineStatus,
    PubendStatus,
    SubscriptionStatus,
)

REFRESH_SECONDS = 2.0
SUBSCRIPTIONS_SECONDS = 10.0
#: While brokers are asked anew, pages show what they said at most so many seconds ago.
OLDER_SECONDS = 10.0
LOOKED_SECONDS = 60.0
#: Samples of the charts: half an hour.
SAMPLES_MAX = 900
#: A broker that does not answer within so many seconds is shown as one that does not.
ANSWER_SECONDS = 3.0
#: Subscriptions of one broker that a page can show; of more, the first by name.
SUBSCRIPTIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class WatchedBroker:
    """One broker, at one moment."""

    name: str
    url: str
    #: None if the broker did not answer, and then `problem` says why
    report: BrokerReport | None
    problem: str = ""
    pubends: Sequence[PubendStatus] = ()
    engines: Sequence[EngineStatus] = ()


@dataclass(frozen=True, slots=True)
class WatchedSubscription:
    """A subscription, and the broker that hosts it."""

    broker: str
    status: SubscriptionStatus
    #: what it is owed; None if it is not durable
    lag: SubscriptionLag | None


@dataclass(frozen=True, slots=True)
class Holder:
    """What keeps a pubend's log from being let go, and how much of it."""

    pubend: str
    broker: str
    bytes: int
    #: the durable subscription whose acknowledgement is furthest back; None if none is behind
    subscription: str | None
    #: how long ago the oldest event was published that it has not acknowledged, or that is not archived
    age_seconds: float
    #: "subscription", "archive", or "retention" if only the settings keep it
    because: str


@dataclass(frozen=True, slots=True)
class Sample:
    """The numbers of the charts at one moment."""

    #: Unix time
    at: float
    published: float
    delivered: float
    lag_seconds: float
    held_bytes: float


@dataclass(frozen=True, slots=True)
class OverlayView:
    """All that a page shows, of one moment."""

    #: Unix time
    at: float
    topology: Topology
    brokers: Mapping[str, WatchedBroker]
    description: OverlayDescription
    subscriptions: Mapping[str, WatchedSubscription] = field(default_factory=dict)
    #: brokers of which not all subscriptions are here
    cut: tuple[str, ...] = ()
    #: events a second in and out, of all brokers; None before there are two reports
    published: float | None = None
    delivered: float | None = None
    #: seconds within which half, and 99 of 100, of the events were delivered last; None before any was
    latency: tuple[float, float] | None = None

    @property
    def alarms(self) -> list[tuple[str, str]]:
        """The broker and the words of each alarm."""
        found = [(each.name, each.problem) for each in self.brokers.values() if each.problem]
        for each in self.brokers.values():
            if each.report is not None:
                found += [(each.name, text) for text in each.report.status.alarms]
                found += [
                    (each.name, f"there is no link to {peer}")
                    for peer, is_up in sorted(each.report.status.links.items())
                    if not is_up
                ]
        return found

    @property
    def lags(self) -> list[SubscriptionLag]:
        """The durable subscriptions, the one that is furthest behind first."""
        return furthest_behind_first(each.lag for each in self.subscriptions.values() if each.lag is not None)

    @property
    def held_bytes(self) -> int:
        """Bytes of events in all logs."""
        return sum(pubend.bytes for each in self.brokers.values() for pubend in each.pubends)

    @property
    def engines(self) -> list[EngineStatus]:
        """The processes that write the archive."""
        return [engine for each in self.brokers.values() for engine in each.engines]

    def holders(self) -> list[Holder]:
        """Return what keeps each pubend's log, the largest log first."""
        found = [
            _holder(broker.name, pubend, self.subscriptions.values(), self.at)
            for broker in self.brokers.values()
            for pubend in broker.pubends
        ]
        return sorted(found, key=lambda each: (-each.bytes, each.pubend))


def _holder(broker: str, pubend: PubendStatus, subscriptions: Any, at: float) -> Holder:
    last = pubend.last_event or 0
    slowest: tuple[int, str, int] | None = None
    for each in subscriptions:
        progress = each.status.pubends.get(pubend.pubend)
        if each.status.durable and progress is not None and progress.owed_events:
            acknowledged = progress.acknowledged or progress.start or 0
            if slowest is None or acknowledged < slowest[0]:
                slowest = (acknowledged, each.status.name, progress.lag_us or 0)
    if slowest is not None and slowest[0] < last:
        return Holder(pubend.pubend, broker, pubend.bytes, slowest[1], slowest[2] / 1e6, "subscription")
    if pubend.archived is not None and pubend.archived < last:
        age = max(0.0, at - pubend.archived / 1e6)
        return Holder(pubend.pubend, broker, pubend.bytes, None, age, "archive")
    return Holder(pubend.pubend, broker, pubend.bytes, None, 0.0, "retention")


class Watch:
    """One caller's view of an overlay."""

    def __init__(self, connections: Connections, caller: Caller, url: str) -> None:
        self._connections = connections
        self._caller = caller
        self._scheme = url.partition("://")[0] if "://" in url else "tidemark"
        #: broker -> the client that asks it
        self._clients: dict[str, Client] = {}
        self._lock = asyncio.Lock()
        self._view: OverlayView | None = None
        self._viewed = -1e9
        #: why the brokers could not be asked last, and when that was known; None if they could
        self._failure: tuple[TidemarkError, float] | None = None
        self._subscriptions: dict[str, WatchedSubscription] = {}
        self._cut: tuple[str, ...] = ()
        self._subscriptions_at = -1e9
        self.looked = 0.0
        #: how subscriptions get on that somebody looks at
        self.catch_ups = CatchUps()
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)

    async def view(self) -> OverlayView:
        """Return what the brokers say, not older than REFRESH_SECONDS.

        RefusedError if the caller may not monitor; NotConnectedError if there is no broker.
        """
        self.looked = time.monotonic()
        return await self._refreshed()

    async def client_of(self, broker: str) -> Client:
        """Return the open client of a broker of the overlay. ClientError if it cannot be reached."""
        view = await self.view()
        found = view.brokers.get(broker)
        if found is None:
            raise RefusedError(f"there is no broker {broker!r}", what="broker", name=broker, code="unknown")
        return await self._client(broker, found.url)

    async def pubends(self) -> list[HostedPubend]:
        """Return all pubends that can be read now, each with the client of its broker."""
        view = await self.view()
        found = []
        for broker in view.brokers.values():
            client = self._clients.get(broker.name)
            if client is not None and broker.report is not None:
                found += [HostedPubend(client, each) for each in broker.pubends]
        return found

    async def pubends_now(self) -> list[HostedPubend]:
        """Return all pubends that can be read, as they are now: with what was just published."""
        clients = {id(each.client): each.client for each in await self.pubends()}
        found = await asyncio.gather(
            *(client.ask(PUBENDS, timeout=ANSWER_SECONDS) for client in clients.values())
        )
        return [
            HostedPubend(client, each)
            for client, pubends in zip(clients.values(), found, strict=True)
            for each in pubends
        ]

    def forget_subscriptions(self) -> None:
        """Something was changed: ask for the subscriptions anew."""
        self._subscriptions_at = self._viewed = -1e9
        self._failure = None

    async def sample(self) -> None:
        """Take a sample for the charts if somebody has looked lately."""
        if time.monotonic() - self.looked < LOOKED_SECONDS:
            try:
                await self._refreshed()
            except TidemarkError:
                return

    async def close(self) -> None:
        """Close the clients."""
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(each.close() for each in clients), return_exceptions=True)

    async def _refreshed(self) -> OverlayView:
        """The view of now; one that is a little older while the brokers are being asked for another.

        A broker that is gone or stands still is waited for by one request, and not by each of a page that
        refreshes itself: those that come meanwhile get what there is, or hear what went wrong.
        """
        is_recent = time.monotonic() - self._viewed < OLDER_SECONDS
        if self._lock.locked() and self._view is not None and is_recent:
            return self._view
        async with self._lock:
            now = time.monotonic()
            if self._failure is not None and now - self._failure[1] < REFRESH_SECONDS:
                raise self._failure[0]
            if self._view is None or now - self._viewed >= REFRESH_SECONDS:
                try:
                    self._view = await self._asked(self._view)
                except TidemarkError as error:
                    self._failure = error, time.monotonic()
                    raise
                self._failure = None
                self._viewed = time.monotonic()
                self._keep(self._view)
            return self._view

    async def _asked(self, before: OverlayView | None) -> OverlayView:
        async with self._connections.use(self._caller) as client:
            found = await client.ask(OVERLAY, timeout=ANSWER_SECONDS)
        topology = parse_topology(found.text, found.version)
        like = f"{self._scheme}://"
        urls = urls_of(topology, like)
        asked = await asyncio.gather(*(self._broker(name, url) for name, url in urls.items()))
        brokers = {each.name: each for each in asked}
        await self._ask_subscriptions(brokers)
        reports = {each.name: each.report for each in asked}
        earlier = None if before is None else {each.name: each.report for each in before.brokers.values()}
        description = describe_overlay(topology, reports, earlier, like=like)
        rates = [each.activity.rates for each in description.brokers if each.activity is not None]
        has_rates = any(rates)
        return OverlayView(
            time.time(),
            topology,
            brokers,
            description,
            dict(self._subscriptions),
            self._cut,
            sum(each.get("published", 0.0) for each in rates) if has_rates else None,
            sum(each.get("delivered", 0.0) for each in rates) if has_rates else None,
            _latency(before, brokers),
        )

    async def _broker(self, name: str, url: str) -> WatchedBroker:
        try:
            client = await self._client(name, url)
            status, metrics, links, routes, pubends = await asyncio.gather(
                client.ask(STATUS, timeout=ANSWER_SECONDS),
                client.ask(METRICS, timeout=ANSWER_SECONDS),
                client.ask(LINKS, timeout=ANSWER_SECONDS),
                client.ask(ROUTES, timeout=ANSWER_SECONDS),
                client.ask(PUBENDS, timeout=ANSWER_SECONDS),
            )
            engines = await client.ask(ENGINE, timeout=ANSWER_SECONDS)
        except RefusedError as error:
            if error.code == "denied":
                raise
            return WatchedBroker(name, url, None, error.reason)
        except ClientError as error:
            return WatchedBroker(name, url, None, f"{name} does not answer: {error}")
        report = BrokerReport(time.monotonic(), status, metrics, links, routes)
        return WatchedBroker(name, url, report, "", pubends, engines)

    async def _client(self, name: str, url: str) -> Client:
        client = self._clients.get(name)
        if client is None:
            client = self._connections.made(self._caller, url=url)
            await client.open()
            self._clients[name] = client
        return client

    async def _ask_subscriptions(self, brokers: Mapping[str, WatchedBroker]) -> None:
        now = time.monotonic()
        if now - self._subscriptions_at < SUBSCRIPTIONS_SECONDS:
            return
        found: dict[str, WatchedSubscription] = {}
        cut = []
        for broker in brokers.values():
            client = self._clients.get(broker.name)
            if client is None or broker.report is None:
                continue
            try:
                statuses, is_whole = await _some_subscriptions(client)
            except ClientError:
                continue
            if not is_whole:
                cut.append(broker.name)
            lags = {each.name: each for each in lags_of(statuses, broker.name)}
            found |= {
                each.name: WatchedSubscription(broker.name, each, lags.get(each.name)) for each in statuses
            }
        self._subscriptions, self._cut, self._subscriptions_at = found, tuple(cut), now

    def _keep(self, view: OverlayView) -> None:
        if view.published is None or view.delivered is None:
            return
        worst = max((each.lag_seconds or 0.0 for each in view.lags), default=0.0)
        self.samples.append(Sample(view.at, view.published, view.delivered, worst, float(view.held_bytes)))


def _latency(before: OverlayView | None, brokers: Mapping[str, WatchedBroker]) -> tuple[float, float] | None:
    """The latency of what was delivered since the view before, or what that said if nothing was."""
    if before is None:
        return None
    reports = [
        (before.brokers[name].report, each.report) for name, each in brokers.items() if name in before.brokers
    ]
    numbers = [(old.metrics, new.metrics) for old, new in reports if old is not None and new is not None]
    median, most = quantile(numbers, 0.5), quantile(numbers, 0.99)
    return before.latency if median is None or most is None else (median, most)


async def _some_subscriptions(client: Client) -> tuple[tuple[SubscriptionStatus, ...], bool]:
    """Return the subscriptions of a broker, and whether these are all."""

    async def ask(arguments: dict[str, Any]) -> Any:
        return await client.ask(SUBSCRIPTIONS.what, timeout=ANSWER_SECONDS, **arguments)

    items, is_whole = await first_pages(ask, {}, SUBSCRIPTIONS_MAX)
    return SUBSCRIPTIONS.read(items), is_whole


class Watches:
    """The watches of all callers."""

    def __init__(self, connections: Connections, url: str) -> None:
        self._connections = connections
        self._url = url
        self._watches: dict[Caller, Watch] = {}

    def of(self, caller: Caller) -> Watch:
        """Return the watch of a caller."""
        watch = self._watches.get(caller)
        if watch is None:
            watch = self._watches[caller] = Watch(self._connections, caller, self._url)
        return watch

    async def run(self) -> None:
        """Take samples while somebody looks, and close the watches that nobody has looked at for long."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            now = time.monotonic()
            for caller, watch in list(self._watches.items()):
                if now - watch.looked > 5 * LOOKED_SECONDS:
                    del self._watches[caller]
                    await watch.close()
            # Together, so that a broker that one user waits for delays the charts of nobody else.
            await asyncio.gather(*(watch.sample() for watch in self._watches.values()))

    async def close(self) -> None:
        """Close all clients."""
        watches, self._watches = list(self._watches.values()), {}
        await asyncio.gather(*(each.close() for each in watches), return_exceptions=True)
