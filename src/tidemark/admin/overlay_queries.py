"""Questions to all brokers of an overlay: its topology, their state, and whether one of them may go."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tidemark.admin.connection import ANSWER_SECONDS, ask, connect
from tidemark.admin.overlay_description import BrokerReport, url_at
from tidemark.errors import ClientError, NotConnectedError
from tidemark.wire.answers import (
    LINKS,
    METRICS,
    OVERLAY,
    PROPOSE,
    PUBENDS,
    ROUTES,
    STATUS,
    STREAMS,
    SUBSCRIPTIONS,
    PubendStatus,
    StreamStatus,
    SubscriptionStatus,
)

if TYPE_CHECKING:
    from tidemark.node.topology.topology import Topology

#: Brokers that do not answer are waited for at the same time, not one after the other.
ASKED_AT_A_TIME_MAX = 16
#: What `propose_topology` says of a broker that cannot be reached.
NOT_RUNNING = "not running"


def find_topology(urls: Iterable[str]) -> Topology:
    """Return the topology that the first broker that answers goes by; NotConnectedError if none does."""
    from tidemark.node.topology.file import parse_topology

    problem: ClientError = NotConnectedError("there is no broker to ask")
    for url in urls:
        try:
            found = ask(url, OVERLAY)
        except NotConnectedError as error:
            problem = error
        else:
            return parse_topology(found.text, found.version)
    raise problem


def urls_of(topology: Topology, like: str = "") -> dict[str, str]:
    """Return broker -> URL, over TLS if a broker of the overlay is reached so.

    `like` is the URL of such a broker; by default that of the environment (TIDEMARK_BROKER, or a context).
    """
    return {each.name: url_at(each, like) for each in topology.brokers.values()}


def ask_all_brokers(topology: Topology, like: str = "") -> dict[str, BrokerReport | None]:
    """Return what each broker reports of itself; None for those that do not answer. `like`: see `urls_of`."""
    urls = urls_of(topology, like)
    with ThreadPoolExecutor(ASKED_AT_A_TIME_MAX) as asking:
        return dict(zip(urls, asking.map(_report_of, urls.values()), strict=True))


def _report_of(url: str) -> BrokerReport | None:
    try:
        with connect(url) as client:
            status = client.ask(STATUS, timeout=ANSWER_SECONDS)
            metrics = client.ask(METRICS, timeout=ANSWER_SECONDS)
            links = client.ask(LINKS, timeout=ANSWER_SECONDS)
            routes = client.ask(ROUTES, timeout=ANSWER_SECONDS)
    except ClientError:
        return None
    return BrokerReport(time.monotonic(), status, metrics, links, routes)


def propose_topology(topology: Topology, like: str = "", *, is_forced: bool = False) -> dict[str, str]:
    """Tell every broker of a topology to go by it; return the brokers that did not take it -> why.

    A broker that cannot be reached is among them, with NOT_RUNNING. `like`: see `urls_of`.
    """
    from tidemark.node.topology.text import to_text

    text, base = to_text(topology), topology.version - 1

    def tell(url: str) -> str:
        try:
            ask(url, PROPOSE, text=text, base=base, force=is_forced)
        except NotConnectedError:
            return NOT_RUNNING
        except ClientError as error:
            return str(error)
        return ""

    urls = urls_of(topology, like)
    with ThreadPoolExecutor(ASKED_AT_A_TIME_MAX) as telling:
        problems = dict(zip(urls, telling.map(tell, urls.values()), strict=True))
    return {name: problem for name, problem in problems.items() if problem}


def ask_what_keeps_broker(url: str) -> list[str] | None:
    """Return what keeps a draining broker from being removed, as sentences; None if it does not answer."""
    try:
        with connect(url) as client:
            return what_keeps_broker(
                client.ask(PUBENDS, timeout=ANSWER_SECONDS),
                client.ask(SUBSCRIPTIONS, timeout=ANSWER_SECONDS),
                client.ask(STREAMS, timeout=ANSWER_SECONDS),
            )
    except ClientError:
        return None


def what_keeps_broker(
    pubends: Iterable[PubendStatus],
    subscriptions: Iterable[SubscriptionStatus],
    streams: Iterable[StreamStatus],
) -> list[str]:
    """Return what keeps a broker that answered this from being removed, as sentences; none if it is empty."""
    pubends = list(pubends)
    found = [
        f"not everybody has the events of {each.pubend}"
        for each in pubends
        if each.last_event is not None and (each.lost is None or each.lost < each.last_event)
    ]
    found += [f"the subscription {each.name} is there" for each in subscriptions]
    hosted = {each.pubend for each in pubends}
    found += [
        f"{', '.join(each.followers)} has {each.pubend} from it"
        for each in streams
        if each.followers and each.pubend not in hosted
    ]
    return found
