"""WorldPlan: what a simulated world is made of. A seed picks a plan at random, within a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from tidemark.broker.hosting.host import HostPolicy
from tidemark.broker.overlay.layout import Layout
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.sim.judging.rulebook import Rulebook
from tidemark.sim.swarm.rulebooks import some_rulebook
from tidemark.sim.world.network import LinkFaults, LinkRate
from tidemark.sim.world.overlays import overlay_of, tree_of
from tidemark.sim.world.publisher import FOR_EVER, LONG_MS, SHORT_MS
from tidemark.ticks import Thresholds
from tidemark.wire.limits import LINK_NEWEST, LINK_OLDEST

SECOND = 1_000_000
#: The version of the protocol between brokers since which publishers move and topics are removed everywhere.
SETTLED_SINCE = 6


@dataclass(frozen=True, slots=True)
class FaultWeights:
    """The weight of each fault, 0 for never; and the longest time between two faults, in microseconds."""

    rest: int = 800_000
    crash: float = 0.0
    cut: float = 0.0
    one_way: float = 0.0
    skew: float = 0.0
    pause: float = 0.0
    stall: float = 0.0
    full: float = 0.0
    sync_error: float = 0.0
    rot: float = 0.0
    tables: float = 0.0
    pipeline: float = 0.0
    reform: float = 0.0
    hostile: float = 0.0
    access: float = 0.0


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """The overlay and its pubends, the settings of brokers and clients, and the weights of faults."""

    layout: Layout
    link_faults: LinkFaults = field(default_factory=LinkFaults)
    fault_weights: FaultWeights = field(default_factory=FaultWeights)
    window_bytes_max: int = 1 << 20
    #: with more than 0 the PFS is imprecise
    pfs_group_bits: int = 0
    #: bytes of the cache on disk of each broker; 0 for none
    cache_bytes_max: int = 0
    #: the durability of all pubends is "os": processes crash, and machines do not
    is_durable_once_written: bool = False
    pubend_policy: PubendPolicy = field(default_factory=PubendPolicy)
    host_policy: HostPolicy = field(default_factory=HostPolicy)
    thresholds: Thresholds = field(default_factory=Thresholds)
    return_delay: int = 200_000
    linger: int = SECOND
    release_period: int = SECOND
    silence_patience: int = SECOND
    damping: int = 15 * SECOND
    topics: tuple[str, ...] = ("t.x", "t.y")
    #: a topic that publishers begin to use during the run
    late_topic: str = "t.z"
    validities: tuple[int, ...] = (FOR_EVER,)
    #: chances, at each commit of a subscriber, that it leaves or returns, changes its selector, unsubscribes
    leaves: float = 0.03
    changes: float = 0.0
    ends: float = 0.0
    #: the share of the subscribers that leave their token to the broker which acknowledge event by event
    auto_share: float = 0.3
    #: the chance that a subscription begins in the past
    reaches_back: float = 0.0
    #: the chance that a subscriber returns to another broker
    moves: float = 0.0
    #: pubend -> its policy, for those that have one of their own
    pubend_policies: Mapping[str, PubendPolicy] = field(default_factory=dict)
    #: what each link carries; None: without bound
    link_rate: LinkRate | None = None
    #: who may see what in the beginning; None: brokers are open
    rulebook: Rulebook | None = None
    #: bytes that pubends may hold for a durable subscription, in a world whose rulebook bounds them
    held_bytes: int | None = None
    #: broker -> the newest version of the protocol between brokers that it speaks at first; all others speak
    #: LINK_NEWEST
    link_versions: Mapping[str, int] = field(default_factory=dict)
    #: what every broker speaks at least when the storm is over
    link_version_in_the_end: int = LINK_NEWEST

    @property
    def has_archive(self) -> bool:
        """Whether there is an archive: pubends release only archived events, and subscribers get no gaps."""
        return self.pubend_policy.archive

    def policy_of(self, pubend: str) -> PubendPolicy:
        """The policy of a pubend."""
        return self.pubend_policies.get(pubend, self.pubend_policy)

    @property
    def pubends(self) -> Mapping[str, str]:
        """pubend -> the broker that hosts it."""
        return self.layout.pubends

    @property
    def is_early(self) -> bool:
        """Whether policy may release history before every durable subscriber has consumed it."""
        return self.pubend_policy.max_retain is not None or self.pubend_policy.max_bytes is not None

    @property
    def may_let_go(self) -> bool:
        """Whether policy, or a quota, may release history before every durable subscriber has consumed it."""
        return self.is_early or self.held_bytes is not None


def _network(chance: Random) -> FaultWeights:
    return FaultWeights(cut=1.0, one_way=0.5, reform=0.3, rest=chance.choice((200_000, 800_000)))


def _crashes(chance: Random) -> FaultWeights:
    return FaultWeights(crash=1.0, pause=0.2, skew=0.3, rest=chance.choice((200_000, 800_000)))


def _disk(chance: Random) -> FaultWeights:
    return FaultWeights(
        crash=0.5,
        stall=0.5,
        full=0.5,
        sync_error=0.5,
        rot=0.7,
        tables=0.5,
        rest=chance.choice((200_000, 800_000)),
    )


def _everything(chance: Random) -> FaultWeights:
    """Each fault is on in half of the worlds: with all of them at once some would hide others."""
    names = ("crash", "cut", "one_way", "skew", "pause", "stall", "full", "sync_error", "rot", "reform")
    weights = {name: chance.choice((0.0, 0.3, 1.0)) for name in names}
    weights["rot"] *= chance.choice((0, 0, 1))
    # Where disks rot, tables do too; they are put back, so it may happen more than once in a world.
    weights["tables"] = weights["rot"]
    return FaultWeights(chance.choice((150_000, 400_000, 2 * SECOND)), **weights)


def _thin(chance: Random) -> FaultWeights:
    """Links go down and come back: what was missed meanwhile is the history that thin links carry."""
    return FaultWeights(cut=1.0, rest=chance.choice((400_000, 1_600_000)))


def _hostile(chance: Random) -> FaultWeights:
    return FaultWeights(hostile=1.0, crash=0.1, cut=0.1, rest=chance.choice((50_000, 200_000)))


def _mixed(chance: Random) -> FaultWeights:
    """As in the swarm, with restarts in every world, by which brokers come to speak newer versions."""
    return replace(_everything(chance), crash=1.0)


#: profile -> the faults of its worlds
PROFILES: dict[str, Callable[[Random], FaultWeights]] = {
    "swarm": _everything,
    "network": _network,
    "crashes": _crashes,
    "disk": _disk,
    "hostile": _hostile,
    "calm": lambda _: FaultWeights(),
    "thin": _thin,
    "narrow": _everything,
    "access": _everything,
    "mixed": _mixed,
}


def plan_of(chance: Random, profile: str) -> WorldPlan:
    """A random overlay, with one to three pubends anywhere in it."""
    layout = tree_of(chance) if chance.random() < 0.4 else overlay_of(chance)
    bad = LinkFaults(
        loss=chance.choice((0.0, 0.02, 0.2)),
        repeat=chance.choice((0.0, 0.05)),
        reorder=chance.choice((0.0, 0.1)),
        delay_max=chance.choice((500, 5_000, 60_000)),
    )
    lossy = profile in ("swarm", "network", "access", "mixed")
    plan = WorldPlan(
        layout,
        bad if lossy else LinkFaults(),
        PROFILES[profile](chance),
        window_bytes_max=chance.choice((8_000, 60_000, 1 << 20)),
        pubend_policy=_policy(chance),
        host_policy=HostPolicy(
            silence=chance.choice((20_000, 200_000)), save=chance.choice((20_000, 200_000))
        ),
        thresholds=Thresholds(
            gct_us=chance.choice((0, 20_000)),
            nrt_us=chance.choice((20_000, 100_000)),
            nrt_us_max=500_000,
            chop_ticks_max=chance.choice((SECOND, 3_600 * SECOND)),
            outstanding_ranges_max=chance.choice((2, 64)),
        ),
        validities=chance.choice(((FOR_EVER,), (FOR_EVER,), (FOR_EVER, LONG_MS, SHORT_MS))),
        leaves=0.0 if profile == "calm" else 0.03,
        changes=chance.choice((0.0, 0.03)),
        ends=chance.choice((0.0, 0.0, 0.01)),
        return_delay=chance.choice((20_000, 200_000, SECOND)),
        linger=chance.choice((50_000, SECOND)),
    )
    return replace(plan, damping=plan.return_delay)


def with_history(plan: WorldPlan, chance: Random) -> WorldPlan:
    """The same plan, perhaps with an archive, with subscribers that move, or that begin in the past."""
    plan = replace(plan, reaches_back=chance.choice((0.0, 0.0, 0.3)), moves=chance.choice((0.0, 0.0, 0.5)))
    if chance.random() < 0.6:
        return plan
    return replace(
        plan,
        pubend_policy=replace(plan.pubend_policy, archive=True, max_bytes=chance.choice((None, 3_000))),
        host_policy=replace(plan.host_policy, recall=True),
        fault_weights=replace(plan.fault_weights, pipeline=chance.choice((0.0, 0.5))),
    )


def with_expiry(plan: WorldPlan, chance: Random) -> WorldPlan:
    """The same plan, with expired events let go soon; perhaps most events are valid for a short time only."""
    plan = replace(plan, pubend_policy=replace(plan.pubend_policy, expiry=chance.choice((20_000, 200_000))))
    if chance.random() < 0.8:
        return plan
    short = (SHORT_MS, SHORT_MS, SHORT_MS)
    return replace(plan, validities=chance.choice((short, (*short, LONG_MS))))


def with_retention(plan: WorldPlan, chance: Random) -> WorldPlan:
    """The same plan, perhaps with pubends that keep what everybody has released for a while."""
    policies = {}
    for pubend in plan.pubends:
        if chance.random() < 0.4:
            policies[pubend] = replace(
                plan.pubend_policy,
                min_retain=chance.choice((100_000, SECOND, 100 * SECOND)),
                min_retain_bytes=chance.choice((1_500, 1 << 30)),
            )
    return replace(plan, pubend_policies=policies)


def with_storage(plan: WorldPlan, chance: Random) -> WorldPlan:
    """The same plan, in three of ten worlds with caches on disk, small windows and maybe an imprecise PFS."""
    if chance.random() >= 0.3:
        return plan
    return replace(
        plan,
        window_bytes_max=min(plan.window_bytes_max, 8_000),
        cache_bytes_max=chance.choice((20_000, 1 << 20)),
        pfs_group_bits=chance.choice((0, 1, 3)),
    )


def with_durability(plan: WorldPlan, chance: Random) -> WorldPlan:
    """The same plan, in a sixth of the worlds with events that are durable once they are written.

    Power does not fail there, and no sync does: either could lose them.
    """
    if chance.random() >= 1 / 6:
        return plan
    weights = replace(plan.fault_weights, sync_error=0.0)
    return replace(plan, is_durable_once_written=True, fault_weights=weights)


def with_rates(plan: WorldPlan, chance: Random, profile: str) -> WorldPlan:
    """The same plan, perhaps with links that have a bandwidth, as links of TCP: what they carry arrives."""
    sometimes = dict.fromkeys(("swarm", "network", "access", "mixed"), 0.3)
    share = {"thin": 1.0, "narrow": 1.0, **sometimes}.get(profile, 0.0)
    if chance.random() >= share:
        return plan
    rate = LinkRate(chance.choice((4_000, 12_000, 40_000, 400_000)), chance.choice((8_000, 1 << 20)))
    delay = chance.choice((500, 5_000, 40_000))
    return replace(
        plan,
        link_rate=rate,
        link_faults=LinkFaults(delay_min=delay // 2, delay_max=delay),
        # With every byte of a link taken, a nack repeated by a threshold of the storm's would be a storm.
        thresholds=replace(plan.thresholds, nrt_us=200_000, nrt_us_max=10 * SECOND),
    )


def with_economy(plan: WorldPlan, chance: Random) -> WorldPlan:
    """The same plan, with brokers that are more or less sparing of what they say."""
    return replace(
        plan,
        release_period=chance.choice((20_000, 200_000, SECOND)),
        silence_patience=chance.choice((0, 20_000, 200_000, SECOND)),
    )


def with_access(plan: WorldPlan, chance: Random, profile: str) -> WorldPlan:
    """The same plan; in the profile `access` brokers have accounts, and who may see what changes.

    Subscribers do not change their selectors there: the rules change them.
    """
    if profile != "access":
        return plan
    weights = replace(plan.fault_weights, access=chance.choice((0.5, 2.0)))
    plan = replace(plan, rulebook=some_rulebook(chance), fault_weights=weights, changes=0.0)
    if chance.random() < 0.5:
        return plan
    # What was matched before a rule changed comes from the archive.
    size = chance.choice((500, 3_000))
    policies = {
        name: replace(policy, archive=True, max_bytes=size) for name, policy in plan.pubend_policies.items()
    }
    return replace(
        plan,
        leaves=0.1,
        pubend_policy=replace(plan.pubend_policy, archive=True, max_bytes=size),
        pubend_policies=policies,
        host_policy=replace(plan.host_policy, recall=True),
    )


def with_held_quota(plan: WorldPlan, chance: Random) -> WorldPlan:
    """The same plan; in some worlds with accounts, pubends hold only so many bytes for a subscription."""
    if plan.rulebook is None or chance.random() >= 0.2:
        return plan
    held = chance.choice((100, 400))
    # Subscribers are away for longer, so that they are owed more.
    return replace(
        plan,
        held_bytes=held,
        rulebook=replace(plan.rulebook, held_bytes=held),
        leaves=chance.choice((0.02, 0.05)),
    )


def with_link_versions(plan: WorldPlan, chance: Random, profile: str) -> WorldPlan:
    """The same plan; in the profile `mixed` some brokers speak older versions of the protocol at first.

    Below SETTLED_SINCE not all that the oracle checks in the end can be so: publishers that move wait behind
    brokers that know nothing of them, and removed topics are kept.
    """
    if profile != "mixed":
        return plan
    versions = {name: chance.randint(LINK_OLDEST, LINK_NEWEST) for name in plan.layout.brokers}
    spared = chance.choice((0.0, 0.5, 0.7))
    older = {name: each for name, each in versions.items() if chance.random() >= spared}
    last = chance.randint(SETTLED_SINCE, LINK_NEWEST)
    return replace(plan, link_versions=older, link_version_in_the_end=last)


def _policy(chance: Random) -> PubendPolicy:
    early = chance.random() < 0.25
    return PubendPolicy(
        lease_ahead=chance.choice((100_000, SECOND)),
        max_retain=chance.choice((None, SECOND)) if early else None,
        max_bytes=chance.choice((None, 3_000)) if early else None,
    )
