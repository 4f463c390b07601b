"""Administration as a library: what a program, or the command line, asks and does about brokers.

    from tidemark import admin

    with admin.connect("tidemark://127.0.0.1:7676") as broker:
        snapshot = admin.take_snapshot(broker)
    for lag in snapshot.lags:
        print(lag.name, lag.owed_events, lag.lag_seconds)
    print(admin.check_health("tidemark://127.0.0.1:7676").plugin_line())

A running overlay is described, and changed without losing anything, by the same functions that the commands
`tidemark topology show` and `tidemark topology apply` use:

    topology = admin.find_topology(["tidemark://127.0.0.1:7676"])
    print(admin.describe_overlay(topology, admin.ask_all_brokers(topology)).to_json())
    admin.apply_plan(admin.plan_change(wanted), wait_seconds=60.0)

Single questions are asked with `ask(url, PUBENDS)`, or with `client.ask(PUBENDS)` on a connection that there
is already; the questions and the dataclasses of their answers are exported here.
"""

from __future__ import annotations

from tidemark.admin.broker_snapshot import (
    BrokerSnapshot,
    SubscriptionLag,
    is_catching_up,
    lags_of,
    rates_between,
    recall_of,
    take_snapshot,
    worst_lag,
)
from tidemark.admin.connection import ANSWER_SECONDS, ask, connect, listen
from tidemark.admin.health_checks import Finding, Health, HealthState, LagLimits, check_health
from tidemark.admin.joining import join_overlay, settings_to_join
from tidemark.admin.overlay_description import (
    BrokerDescription,
    BrokerReport,
    BundleDescription,
    LinkDescription,
    OverlayDescription,
    TreeDescription,
    describe_overlay,
)
from tidemark.admin.overlay_lag import OverlayLag, TopicDemand, overlay_lag, topic_demand
from tidemark.admin.overlay_queries import (
    ask_all_brokers,
    ask_what_keeps_broker,
    find_topology,
    propose_topology,
    urls_of,
    what_keeps_broker,
)
from tidemark.admin.topology_changes import (
    StepProgress,
    TopologyPlan,
    apply_plan,
    apply_step,
    plan_change,
)
from tidemark.wire.answers import (
    ACCESS,
    ARCHIVE,
    CONFIG,
    CONNECTIONS,
    FORGET_HOST,
    HOSTS,
    LINKS,
    METRICS,
    OVERLAY,
    PROPOSE_ACCESS,
    PUBENDS,
    REMOVE,
    ROUTES,
    SEEK,
    SELECT,
    STATUS,
    STREAMS,
    SUBSCRIPTION,
    SUBSCRIPTIONS,
    TOPICS,
    BrokerStatus,
    ConnectionStatus,
    HostForgotten,
    HostStatus,
    LinkStatus,
    OverlayText,
    PubendStatus,
    Route,
    Setting,
    StreamStatus,
    SubscriptionProgress,
    SubscriptionRemoved,
    SubscriptionStatus,
    TopicStatus,
)
from tidemark.wire.json_objects import JsonObject
from tidemark.wire.questions import Question

__all__ = [
    "ACCESS",
    "ANSWER_SECONDS",
    "ARCHIVE",
    "CONFIG",
    "CONNECTIONS",
    "FORGET_HOST",
    "HOSTS",
    "LINKS",
    "METRICS",
    "OVERLAY",
    "PROPOSE_ACCESS",
    "PUBENDS",
    "REMOVE",
    "ROUTES",
    "SEEK",
    "SELECT",
    "STATUS",
    "STREAMS",
    "SUBSCRIPTION",
    "SUBSCRIPTIONS",
    "TOPICS",
    "BrokerDescription",
    "BrokerReport",
    "BrokerSnapshot",
    "BrokerStatus",
    "BundleDescription",
    "ConnectionStatus",
    "Finding",
    "Health",
    "HealthState",
    "HostForgotten",
    "HostStatus",
    "JsonObject",
    "LagLimits",
    "LinkDescription",
    "LinkStatus",
    "OverlayDescription",
    "OverlayLag",
    "OverlayText",
    "PubendStatus",
    "Question",
    "Route",
    "Setting",
    "StepProgress",
    "StreamStatus",
    "SubscriptionLag",
    "SubscriptionProgress",
    "SubscriptionRemoved",
    "SubscriptionStatus",
    "TopicDemand",
    "TopicStatus",
    "TopologyPlan",
    "TreeDescription",
    "apply_plan",
    "apply_step",
    "ask",
    "ask_all_brokers",
    "ask_what_keeps_broker",
    "check_health",
    "connect",
    "describe_overlay",
    "find_topology",
    "is_catching_up",
    "join_overlay",
    "lags_of",
    "listen",
    "overlay_lag",
    "plan_change",
    "propose_topology",
    "rates_between",
    "recall_of",
    "settings_to_join",
    "take_snapshot",
    "topic_demand",
    "urls_of",
    "what_keeps_broker",
    "worst_lag",
]
