"""The lag of all durable subscriptions of an overlay, whichever of its brokers is asked."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.admin.broker_snapshot import SubscriptionLag, furthest_behind_first, lags_of
from tidemark.admin.connection import ANSWER_SECONDS, connect
from tidemark.admin.overlay_queries import ASKED_AT_A_TIME_MAX, urls_of
from tidemark.errors import ClientError
from tidemark.wire.answers import OVERLAY, SUBSCRIPTIONS, SubscriptionStatus

if TYPE_CHECKING:
    from tidemark.sync import Client


@dataclass(frozen=True, slots=True)
class OverlayLag:
    """The durable subscriptions of all brokers, and the brokers that did not answer."""

    #: what is furthest behind comes first
    lags: tuple[SubscriptionLag, ...]
    #: broker -> why it did not answer
    silent: dict[str, str]
    #: how many brokers there are
    brokers: int


def overlay_lag(
    client: Client, own: Sequence[SubscriptionStatus] | None = None, *, like: str = ""
) -> OverlayLag:
    """Ask the broker of `client`, and through the topology that it goes by all others, what is owed to whom.

    `own` are the subscriptions of that broker, if it has been asked for them already. `like` is the URL of
    that broker, which says whether the others are reached over TLS; by default that of the environment.
    Raises ClientError if the broker itself does not answer.
    """
    from tidemark.node.topology.file import parse_topology

    found = client.ask(OVERLAY, timeout=ANSWER_SECONDS)
    if own is None:
        own = client.ask(SUBSCRIPTIONS, timeout=ANSWER_SECONDS)
    lags = lags_of(own, found.broker)
    urls = urls_of(parse_topology(found.text, found.version), like)
    others = [name for name in urls if name != found.broker]
    silent: dict[str, str] = {}
    if others:
        with ThreadPoolExecutor(ASKED_AT_A_TIME_MAX) as asking:
            answers = list(asking.map(lambda name: _lags_at(name, urls[name]), others))
        for name, answer in zip(others, answers, strict=True):
            if isinstance(answer, ClientError):
                silent[name] = str(answer)
            else:
                lags += answer
    return OverlayLag(tuple(furthest_behind_first(lags)), silent, len(urls))


@dataclass(frozen=True, slots=True)
class TopicDemand:
    """The durable subscriptions of all brokers that want a topic, and how much they are owed."""

    #: their names, sorted
    subscriptions: tuple[str, ...]
    #: events of any topic, since what is owed is not counted by topic
    owed_events: int


def topic_demand(client: Client, topic: str, *, like: str = "") -> TopicDemand:
    """Ask all brokers, as `overlay_lag` does, which durable subscriptions want a topic.

    Raises RefusedError if the caller may not monitor, and ClientError if the broker of `client` does not
    answer. The subscriptions of another broker that does not answer are left out.
    """
    from tidemark.matching.topics import TopicPattern

    lags = overlay_lag(client, like=like).lags
    wanting = [each for each in lags if TopicPattern.parse(each.topic or ">").matches(topic)]
    names = tuple(sorted(each.name for each in wanting))
    return TopicDemand(names, sum(each.owed_events for each in wanting))


def _lags_at(broker: str, url: str) -> list[SubscriptionLag] | ClientError:
    try:
        with connect(url) as client:
            return lags_of(client.ask(SUBSCRIPTIONS, timeout=ANSWER_SECONDS), broker)
    except ClientError as error:
        return error
