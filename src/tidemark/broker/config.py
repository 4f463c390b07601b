"""What a broker begins with: all that does not change in its life, and what its disk has when it starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark.access.document import AccessDocument
from tidemark.broker.effects import DrainNotice, RecoveredPubend
from tidemark.broker.hosting.host import HostPolicy
from tidemark.broker.hosting.subscription import SavedSubscription
from tidemark.broker.observer import Observer
from tidemark.broker.overlay.layout import Layout
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.broker.topics import TopicLimits
from tidemark.ticks import Thresholds
from tidemark.wire.frames import Topic
from tidemark.wire.limits import LINK_NEWEST

MILLISECOND = 1_000


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What clients may ask a broker to keep for them: one connection, one address, or all together."""

    #: subscriptions that it has at a time
    subscriptions: int = 10_000
    #: those of them that no index can find, so that each event of their topics is held against them
    scans: int = 200
    #: topics that it declares and that nobody had declared before
    topics: int = 10_000
    #: all connections of one address may have so many times what one may have
    address_times: int = 10
    #: durable subscriptions of the broker, those that are away included
    durable: int = 100_000
    #: bytes of their patterns and selectors
    durable_selector_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of one life of a broker; durations are in microseconds."""

    name: str
    #: grows with every life; kept on disk
    incarnation: int
    #: the overlay as it is when this life begins; `RoutesChanged` brings later ones
    layout: Layout
    pubend_policy: PubendPolicy = field(default_factory=PubendPolicy)
    host_policy: HostPolicy = field(default_factory=HostPolicy)
    thresholds: Thresholds = field(default_factory=Thresholds)
    window_bytes_max: int = 64 << 20
    #: bytes of the cache on disk, for pubends that are hosted elsewhere; 0 for none
    cache_bytes_max: int = field(default=0, kw_only=True)
    topic_limits: TopicLimits = field(default_factory=TopicLimits)
    client_limits: ClientLimits = field(default_factory=ClientLimits)
    #: periodic work: silence, releases, saving
    period: int = 50 * MILLISECOND
    pfs_sync: int = 100 * MILLISECOND
    #: what subscriptions with a quota of held bytes are owed is counted this often
    held_quota_period: int = 5_000 * MILLISECOND
    #: the newest version of the protocol that is spoken with neighbours
    link_version: int = LINK_NEWEST
    #: silence that a neighbour is told waits for so long for other frames to it
    silence_patience: int = 1_000 * MILLISECOND
    #: what subscribers have released is reported no more often than this, unless somebody waits for it
    release_period: int = 1_000 * MILLISECOND
    #: a better way to a pubend that has come (back) is taken after half of this to all of it
    return_delay: int = 1_000 * MILLISECOND
    #: what a neighbour wanted whose link is gone is asked for on for so long
    linger: int = 10_000 * MILLISECOND
    #: the penalty of a link for its deaths, by which it is avoided, halves in this time
    damping: int = 15_000 * MILLISECOND
    #: what publishers are told while this broker takes nothing new from them, None while it does; as for the
    #: layout, `RoutesChanged` brings later ones
    drain_notice: DrainNotice | None = None
    #: who may do what, None while everybody may do everything; `AccessChanged` brings later ones
    access: AccessDocument | None = None
    #: pubend -> its policy, for those that have one of their own
    pubend_policies: Mapping[str, PubendPolicy] = field(default_factory=dict)
    #: who is told what the broker does
    observer: Observer = field(default_factory=Observer)

    def policy_of(self, pubend: str) -> PubendPolicy:
        """Return the policy of a pubend that is hosted here."""
        return self.pubend_policies.get(pubend, self.pubend_policy)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a broker's disk has when the broker starts."""

    pubends: Mapping[str, RecoveredPubend] = field(default_factory=dict)
    subscriptions: Iterable[SavedSubscription] = ()
    #: no subscriber ever had this id or a higher one
    next_subscriber: int = 1
    #: pubend -> how far the PFS goes
    delivered: Mapping[str, int] = field(default_factory=dict)
    topics: Iterable[Topic] = ()
    #: pubend hosted here -> broker that may have subscribers of it -> the oldest row of that broker that
    #: counts; a pubend is not there if the tables say nothing of it
    hosts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: Subscribers with greater ids came after the tables had lost rows: they may have been here before. None
    #: if no rows were ever lost.
    doubtful_above: int | None = None
