"""An overlay described: its cells, bundles and trees, with what its brokers report of themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.client.connecting.addresses import SCHEME, TLS_SCHEME, is_tls
from tidemark.wire.answers import BrokerStatus, LinkCondition, LinkStatus, Route
from tidemark.wire.json_objects import JsonObject

if TYPE_CHECKING:
    from tidemark.node.topology.topology import BrokerPlacement, Topology

#: The variable of the environment that names the broker to talk to.
BROKER_VARIABLE = "TIDEMARK_BROKER"
#: counter of a broker -> the name of its rate in a description
RATES = {"events_published": "published", "events_delivered": "delivered"}


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """What one broker of an overlay answered at one moment."""

    #: monotonic seconds
    at: float
    status: BrokerStatus
    metrics: Mapping[str, float]
    links: Sequence[LinkStatus]
    routes: Sequence[Route]


#: broker -> its report; None if the broker did not answer
OverlayReport = Mapping[str, BrokerReport | None]


@dataclass(frozen=True, slots=True)
class BrokerActivity(JsonObject):
    """A broker of an overlay that was asked how it is."""

    #: "not running" if the broker did not answer
    state: str
    #: of the topology that the broker goes by
    version: int | None
    #: name of RATES -> events a second; empty without an earlier report
    rates: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BrokerDescription(JsonObject):
    """A broker and its place in the overlay."""

    name: str
    cell: str
    url: str
    pubends: tuple[str, ...]
    draining: bool
    #: its neighbours
    links: tuple[str, ...]
    #: None where only a file was read
    activity: BrokerActivity | None = None

    def json_items(self) -> dict[str, Any]:
        """The activity is part of the object itself."""
        return _with_part(JsonObject.json_items(self), "activity")


@dataclass(frozen=True, slots=True)
class LinkActivity(JsonObject):
    """A link whose ends were asked how it is."""

    up: bool
    local: bool
    #: those whose stream comes over this link, in either direction
    pubends: tuple[str, ...]
    #: in both directions together; None without an earlier report
    events_per_second: float | None
    bytes_per_second: float | None
    #: how well the link works, as the end that thinks worse of it says; None if both ends are older
    condition: LinkCondition | None = None
    #: why the link is used less than others of its bundle; "" if nothing speaks against it
    why: str = ""


@dataclass(frozen=True, slots=True)
class LinkDescription(JsonObject):
    """A link between two brokers."""

    ends: tuple[str, str]
    #: None where only a file was read
    activity: LinkActivity | None = None

    def json_items(self) -> dict[str, Any]:
        """The ends are called `from` and `to`, and the activity is part of the object itself."""
        return _with_part({"from": self.ends[0], "to": self.ends[1], "activity": self.activity}, "activity")


@dataclass(frozen=True, slots=True)
class BundleDescription(JsonObject):
    """The links between two cells; or, with one cell, the links inside of it."""

    name: str
    cells: tuple[str, ...]
    links: tuple[LinkDescription, ...]


@dataclass(frozen=True, slots=True)
class TreeDescription(JsonObject):
    """A spanning tree of cells, and the pubends whose streams take it."""

    name: str
    #: pairs of neighbouring cells
    cells: tuple[tuple[str, str], ...]
    pubends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OverlayDescription(JsonObject):
    """All of an overlay."""

    #: the file that the topology was read from; empty for a running overlay
    topology: str
    version: int
    brokers: tuple[BrokerDescription, ...]
    bundles: tuple[BundleDescription, ...]
    trees: tuple[TreeDescription, ...]

    @property
    def is_live(self) -> bool:
        """Whether the brokers were asked how they are."""
        return any(each.activity is not None for each in self.brokers)


def describe_overlay(
    topology: Topology,
    report: OverlayReport | None = None,
    before: OverlayReport | None = None,
    *,
    source: str = "",
    like: str = "",
) -> OverlayDescription:
    """Describe an overlay by its topology alone, or also by a report of its brokers.

    Rates are those between the report `before` and the newer `report`. `like` is the URL of one of the
    brokers, which says whether they are reached over TLS; by default that of the environment.
    """
    layout = topology.layout()
    return OverlayDescription(
        topology=source,
        version=topology.version,
        brokers=tuple(
            BrokerDescription(
                name=each.name,
                cell=each.cell,
                url=url_at(each, like),
                pubends=tuple(each.pubends),
                draining=each.is_draining,
                links=tuple(topology.neighbours(each.name)),
                activity=None if report is None else _broker_activity(each.name, report, before or {}),
            )
            for each in topology.brokers.values()
        ),
        bundles=tuple(_bundles(topology, report, before)),
        trees=tuple(
            TreeDescription(
                name=name,
                cells=tuple(sorted(edges)),
                pubends=tuple(sorted(p for p in layout.pubends if layout.tree_of.get(p, "main") == name)),
            )
            for name, edges in sorted(layout.trees.items())
        ),
    )


def url_at(broker: BrokerPlacement, like: str = "") -> str:
    """Return the URL of a broker of an overlay in which another one is reached as `like`."""
    scheme = TLS_SCHEME if is_tls(like or os.environ.get(BROKER_VARIABLE, "")) else SCHEME
    return f"{scheme}{broker.listen}"


def _with_part(items: dict[str, Any], name: str) -> dict[str, Any]:
    """The items of the part `name` in place of the part itself, or nothing where there is no part."""
    part: JsonObject | None = items.pop(name)
    return items if part is None else items | part.json_items()


def _broker_activity(name: str, report: OverlayReport, before: OverlayReport) -> BrokerActivity:
    now, then = report.get(name), before.get(name)
    if now is None:
        return BrokerActivity("not running", None, {})
    rates = {}
    # Counters begin at 0 again when a broker restarts.
    if then is not None and then.status.incarnation == now.status.incarnation and now.at > then.at:
        seconds = now.at - then.at
        rates = {
            title: round((now.metrics.get(key, 0) - then.metrics.get(key, 0)) / seconds, 1)
            for key, title in RATES.items()
        }
    return BrokerActivity(now.status.state, now.status.overlay, rates)


def _bundles(
    topology: Topology, report: OverlayReport | None, before: OverlayReport | None
) -> Iterator[BundleDescription]:
    for cell, brokers in topology.layout().cells.items():
        inside = [(a, b) for a in brokers for b in brokers if a < b]
        if inside:
            yield BundleDescription(cell, (cell,), tuple(_link(a, b, report, before) for a, b in inside))
    for bundle in topology.bundles.values():
        links = tuple(_link(a, b, report, before) for a, b in topology.links(bundle.name))
        yield BundleDescription(bundle.name, tuple(bundle.cells), links)


def _link(a: str, b: str, report: OverlayReport | None, before: OverlayReport | None) -> LinkDescription:
    if report is None:
        return LinkDescription((a, b))
    known = [end for end in (_end(report, a, b), _end(report, b, a)) if end is not None]
    condition = _worse([end.condition for end in known if end.condition is not None])
    activity = LinkActivity(
        up=bool(known) and all(end.is_up for end in known),
        local=any(end.is_local for end in known),
        pubends=tuple(sorted({*_carried(report, a, b), *_carried(report, b, a)})),
        events_per_second=_rate(report, before, "events", a, b),
        bytes_per_second=_rate(report, before, "bytes", a, b),
        condition=condition,
        why=_why(condition),
    )
    return LinkDescription((a, b), activity)


def _worse(conditions: Sequence[LinkCondition]) -> LinkCondition | None:
    """What both ends of a link know of it, taken together."""
    if not conditions:
        return None
    damped = [each.damped_seconds for each in conditions if each.damped_seconds is not None]
    delays = [each.delay_seconds for each in conditions if each.delay_seconds is not None]
    rates = [each.rate for each in conditions if each.rate is not None]
    return LinkCondition(
        grade=max(each.grade for each in conditions),
        deaths=max(each.deaths for each in conditions),
        damped_seconds=max(damped, default=None),
        delay_seconds=min(delays, default=None),
        rate=min(rates, default=None),
    )


def _why(condition: LinkCondition | None) -> str:
    """Why a link is used less than others of its bundle."""
    if condition is None or not condition.grade:
        return ""
    if condition.damped_seconds is not None:
        return f"died {condition.deaths} times: avoided for {condition.damped_seconds:.0f} s more"
    parts = []
    if condition.rate is not None:
        parts.append(f"takes {condition.rate * 8 / 1e6:.2g} Mbit/s")
    if condition.delay_seconds is not None:
        parts.append(f"answers in {condition.delay_seconds * 1e3:.3g} ms")
    return f"slow: {', '.join(parts)}" if parts else "slow, says the other end"


def _end(report: OverlayReport, here: str, there: str) -> LinkStatus | None:
    """The link as the broker `here` reports it."""
    found = report.get(here)
    return None if found is None else next((each for each in found.links if each.peer == there), None)


def _rate(report: OverlayReport, before: OverlayReport | None, what: str, a: str, b: str) -> float | None:
    """How much of `what` a second went over a link, in both directions; None without an earlier report."""
    if not before:
        return None
    return round(_sent_rate(report, before, what, a, b) + _sent_rate(report, before, what, b, a), 1)


def _sent_rate(report: OverlayReport, before: OverlayReport, what: str, here: str, there: str) -> float:
    now, then = _end(report, here, there), _end(before, here, there)
    if now is None or then is None:
        return 0.0
    sent: int = getattr(now, what)
    earlier: int = getattr(then, what)
    # A link that was made anew counts from 0 again.
    grown = sent - (earlier if sent >= earlier else 0)
    late, early = report[here], before[here]
    assert late is not None
    assert early is not None
    return grown / (late.at - early.at) if late.at > early.at else 0.0


def _carried(report: OverlayReport, here: str, there: str) -> list[str]:
    """The pubends whose stream the broker `here` has from the broker `there`."""
    found = report.get(here)
    return [] if found is None else [each.pubend for each in found.routes if each.upstream == there]
