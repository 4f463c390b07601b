"""Security: fan-out, publishing and latency with TLS and with a rule for each principal, against neither.

Four brokers run at once and are measured in turns, so that they meet the same moments: an open one, an open
one with TLS, one with accounts, and one with both. At each, as many clients subscribe. Those of a broker with
accounts log in, and see what the rule of their role shows each of them; those of an open one write the same
condition into their selectors. Everybody must get exactly the events that are its own, in order.

What rules cost is less than what such runs differ by: `rules.py` measures it in the core alone, in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tidemark.lab.bench.processes.harness import BenchBroker, BenchTestbed, WorkerProcess
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.security import rules
from tidemark.lab.bench.security.principals import document
from tidemark.lab.bench.security.rules import RULES_TIMES
from tidemark.lab.processes.process_numbers import cpu_seconds_exact
from tidemark.node.security.certificates import issue, make_authority
from tidemark.node.security.login import make_verifier

TLS_TIMES = 1.6
PASSWORD = "a password of the benchmark"
BATCH_EVENTS = 100
RATE = 100.0
#: All principals have connected and subscribed after so long at the most.
COMING_SECONDS_MAX = 300.0
NOTES = (
    "broker CPU of a delivery and of a published event, and latency, each as times those of the open broker "
    "in the same round: the median over rounds",
)


@dataclass(frozen=True, slots=True)
class SecurityEffort:
    """How much is measured."""

    principals: int
    rounds: int
    #: events of one round that are delivered, that nobody sees, and whose latency is measured
    delivered: int
    published: int
    timed: int
    in_the_core: rules.RulesEffort


FULL = SecurityEffort(1_000, 10, 1_000, 40_000, 30, rules.FULL)
QUICK = SecurityEffort(100, 3, 10_000, 20_000, 50, rules.QUICK)
TINY = SecurityEffort(10, 1, 100, 100, 5, rules.TINY)


@dataclass(frozen=True, slots=True)
class Way:
    """One of the four brokers."""

    name: str
    has_rules: bool
    has_tls: bool


WAYS = (
    Way("open", False, False),
    Way("rules", True, False),
    Way("TLS", False, True),
    Way("rules and TLS", True, True),
)


@dataclass(slots=True)
class Side:
    """A broker with its clients, and what was measured of it in each round."""

    broker: BenchBroker
    clients: WorkerProcess
    delivering: list[float]
    publishing: list[float]
    latency: list[int]


def sections(effort: SecurityEffort, case: str | None = None) -> Iterator[Section]:
    """Yields the sections of all CASES, or of one; AssertionError when somebody gets anything but its own."""
    for name, found in CASES.items():
        if case in (None, name):
            yield from found(effort)


def _in_the_core(effort: SecurityEffort) -> Iterator[Section]:
    return rules.sections(effort.in_the_core)


def _brokers(effort: SecurityEffort) -> Iterator[Section]:
    with BenchTestbed() as testbed:
        files = make_files(testbed.path, effort.principals)
        sides = {way.name: side_of(testbed, way, files, effort.principals) for way in WAYS}
        for side in sides.values():
            side.clients.wait(COMING_SECONDS_MAX)
        for number in range(effort.rounds + 1):
            # Another one goes first in each round, so that none has the better moments of the machine.
            first = number % len(WAYS)
            for way in (*WAYS[first:], *WAYS[:first]):
                _round(sides[way.name], effort, is_counted=number > 0)
        yield Section(
            f"{effort.principals:,} principals, each with a rule of its own", [*_compared(sides)], notes=NOTES
        )


CASES: Mapping[str, Callable[[SecurityEffort], Iterator[Section]]] = {
    "rules": _in_the_core,
    "brokers": _brokers,
}


def side_of(testbed: BenchTestbed, way: Way, files: dict[str, str], principals: int) -> Side:
    """Start a broker, and begin to connect so many users to it: wait for `clients`."""
    # Clients of a broker that is not measured are told of its silence once in a while only.
    settings: dict[str, str] = {"thresholds.silence": "30s"}
    if way.has_rules:
        settings |= {"security.mode": "accounts", "security.access": files["access"]}
    if way.has_tls:
        settings |= {"security.certificate": files["certificate"], "security.key": files["key"]}
    broker = testbed.broker("os", place=way.name.replace(" ", "-"), **settings)
    url = broker.url.replace("tidemark://", "tidemark+tls://") if way.has_tls else broker.url
    login = {"password": PASSWORD} if way.has_rules else {}
    tls = {"ca": files["ca"]} if way.has_tls else {}
    clients = testbed.worker("principals", url=url, principals=principals, **login, **tls)
    return Side(broker, clients, [], [], [])


def _round(side: Side, effort: SecurityEffort, *, is_counted: bool) -> None:
    process = side.broker.process.pid
    cpu = cpu_seconds_exact(process)
    deliveries = side.clients.ask("burst", events=effort.delivered, batch=BATCH_EVENTS)
    delivered = cpu_seconds_exact(process)
    events = side.clients.ask("flood", events=effort.published, batch=BATCH_EVENTS)
    published = cpu_seconds_exact(process)
    taken = side.clients.ask("latency", events=effort.timed, rate=RATE)
    if is_counted:
        side.delivering.append((delivered - cpu) / deliveries)
        side.publishing.append((published - delivered) / events)
        side.latency += taken


def _compared(sides: dict[str, Side]) -> Iterator[Measurement]:
    base = sides["open"]
    yield Measurement("open", "fan-out, broker CPU", median(base.delivering) * 1e6, "s/million deliveries")
    yield Measurement("open", "publishing, broker CPU", median(base.publishing) * 1e6, "s/million events")
    yield Measurement("open", "latency, p50", median(base.latency) / 1e6, "ms")
    for way in WAYS[1:]:
        side = sides[way.name]
        most = (RULES_TIMES if way.has_rules else 1.0) * (TLS_TIMES if way.has_tls else 1.0)
        goal = Goal("<=", round(most, 3))
        for what, ours, theirs in (
            ("fan-out", side.delivering, base.delivering),
            ("publishing", side.publishing, base.publishing),
        ):
            times = median(mine / max(other, 1e-12) for mine, other in zip(ours, theirs, strict=True))
            yield Measurement(way.name, f"{what}, CPU", times, "times open", goal)
        yield Measurement(way.name, "latency, p50", median(side.latency) / median(base.latency), "times open")


def make_files(path: Path, principals: int) -> dict[str, str]:
    """Write an access document with all users and a certificate; return where they are."""
    authority = make_authority()
    made = issue(authority, "bench", hosts=["127.0.0.1"], broker="bench")
    made.save(path / "cert.pem", path / "key.pem")
    (path / "ca.pem").write_bytes(authority.certificate)
    (path / "access.toml").write_text(document(principals, make_verifier(PASSWORD).text))
    return {
        "access": str(path / "access.toml"),
        "certificate": str(path / "cert.pem"),
        "key": str(path / "key.pem"),
        "ca": str(path / "ca.pem"),
    }
