"""DSN'03: what caches save when many catch up, its future work, and how far reads of the PFS reach."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from tidemark.broker.outgoing import is_history
from tidemark.broker.overlay.layout import Layout
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.simulated_overlay import SETTLE_S, STEADY, ObservedSubscriber, SimulatedOverlay
from tidemark.lab.figures.table import Numbers, Table
from tidemark.sim.swarm.plan import WorldPlan
from tidemark.wire.frames import Deliver, Fetched, Knowledge, PeerFrame

METHOD = """
A publisher hosting broker, a relay, and two subscriber hosting brokers behind it, whose windows have room for
about two seconds of events; subscribers of a quarter of the events each. All subscribers leave, and return
together. What brokers send in answers until all have caught up is counted, with caches on disk of several
sizes at every broker. Links take 1 ms, a sync up to 20 ms and a read up to 5 ms; computing takes no time.
What subscribers got was checked: every event once and in order.
"""
PARENTS = {"phb": None, "relay": "phb", "shb1": "relay", "shb2": "relay"}
HOSTS = ("shb1", "shb2")
WINDOW_BYTES = 200_000
SIZES = (0, 20_000, 100_000, 1 << 20)
#: In the paper: the share of the reads of the PFS that read all there was.
PAPER_SHARE = 0.87


class ReturnOfMany:
    """One run with one size of the caches."""

    def __init__(self, cache_bytes: int, rate: int, subscribers: int) -> None:
        layout = Layout.of_tree(PARENTS, {"p": "phb"})
        plan = WorldPlan(
            layout, STEADY, topics=("t.x",), window_bytes_max=WINDOW_BYTES, cache_bytes_max=cache_bytes
        )
        self.overlay = SimulatedOverlay(plan)
        self._returned: float | None = None
        #: sender -> bytes of events in its answers since all have returned
        self.answered = dict.fromkeys(PARENTS, 0)
        #: subscriber -> seconds until it had caught up
        self.durations: dict[str, float] = {}
        self.overlay.listen(self._between, lambda *_: None, lambda *_: None)
        for number in range(subscribers):
            kind = "abcd"[number % 4]
            host = HOSTS[number % len(HOSTS)]
            made = self.overlay.subscriber(f"s{number}", host, f"kind = '{kind}'")
            made.on_deliver = self._heard
            made.come()
        self.overlay.publisher("p", "phb", 1 / rate)

    def _between(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        del receiver
        if self._returned is not None and isinstance(frame, Knowledge | Fetched) and is_history(frame):
            self.answered[sender] += len(frame.batch.data) if frame.batch is not None else 0

    def _heard(self, subscriber: ObservedSubscriber, frame: Deliver) -> None:
        since = self._returned
        if since is None or subscriber.name in self.durations:
            return
        if self.overlay.time_of(frame.upto) >= since:
            self.durations[subscriber.name] = self.overlay.now - since

    def play(self, away: float) -> None:
        """Let all subscribers be away for so many seconds, and catch up."""
        overlay = self.overlay
        overlay.run(2 * SETTLE_S)
        for subscriber in overlay.subscribers:
            subscriber.leave()
        overlay.run(overlay.now + away)
        self._returned = overlay.now
        for subscriber in overlay.subscribers:
            subscriber.come()
        until = overlay.now + 60
        while len(self.durations) < len(overlay.subscribers) and overlay.now < until:
            overlay.run(overlay.now + 0.05)
        overlay.finish()


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure each size of the caches."""
    rate, subscribers, away = (50, 4, 4.0) if quick else (100, 16, 15.0)
    sizes = SIZES[::3] if quick else SIZES
    answers = Table("answers", ("cache_bytes", "broker", "bytes"))
    returns = Table("returns", ("cache_bytes", "subscriber", "seconds"))
    reads = Table("reads", ("cache_bytes", "reads", "to_end", "entries"))
    for size in sizes:
        run = ReturnOfMany(size, rate, subscribers)
        run.play(away)
        for broker, count in run.answered.items():
            answers.add(size, broker, count)
        for name, seconds in run.durations.items():
            returns.add(size, name, seconds)
        coverage = run.overlay.world.coverage()
        reads.add(size, coverage["pfs_reads"], coverage["pfs_reads_to_end"], coverage["answers_from_disk"])
        say(f"caches of {size:,} bytes")
    return [
        answers,
        returns,
        reads,
        setting(events_a_second=rate, subscribers=subscribers, away_seconds=away),
    ]


def _asked(tables: Tables, size: float, broker: str) -> float:
    return float(tables["answers"].where(cache_bytes=size, broker=broker).numbers("bytes").sum())


def _sizes(tables: Tables) -> list[float]:
    return sorted({float(each) for each in tables["answers"].numbers("cache_bytes")})


def _draw(tables: Tables) -> Sequence[Panel]:
    sizes = np.array(_sizes(tables))
    lines = [
        PlotSeries(
            broker, sizes / 1e3, np.array([_asked(tables, size, broker) for size in sizes]) / 1e3, "marked"
        )
        for broker in ("phb", "relay")
    ]
    return [Panel("answers while all catch up", "cache of each broker (kB)", "kB of events sent by", lines)]


def _compare(tables: Tables) -> Sequence[Comparison]:
    sizes = _sizes(tables)
    asked = {size: _asked(tables, size, "phb") for size in sizes}
    slow = {
        size: tables["returns"].where(cache_bytes=size).numbers("seconds") for size in (sizes[0], sizes[-1])
    }
    without, largest = (_median(slow[size]) for size in (sizes[0], sizes[-1]))
    reads, ends = (float(tables["reads"].numbers(each).sum()) for each in ("reads", "to_end"))
    entries = float(tables["reads"].where(cache_bytes=sizes[-1]).numbers("entries").sum())
    said = "; ".join(f"{size / 1e3:,.0f} kB: {asked[size] / 1e3:,.1f} kB" for size in sizes)
    return [
        Comparison(
            "the larger the caches, the less the broker of the pubend is asked for",
            said,
            all(asked[a] >= asked[b] for a, b in itertools.pairwise(sizes)),
        ),
        Comparison(
            "caches that have room for the absence leave less than a tenth of it",
            f"{asked[sizes[-1]] / max(1.0, asked[sizes[0]]):.1%}",
            asked[sizes[-1]] <= asked[sizes[0]] / 10,
        ),
        Comparison(
            "with them catching up takes no more than half as long again",
            f"median {without:.3f} s without, {largest:.3f} s with the largest, of whose entries "
            f"{entries:,.0f} were read",
            largest <= 1.5 * without,
            f"{entries:,.0f} entries were read one after the other, each in up to 5 ms. An entry is an 8th "
            f"of a window, and windows have {WINDOW_BYTES / 1e3:.0f} kB here. Caches are for thin links; on "
            "fast ones the log of the pubend is as near.",
        ),
        Comparison(
            f"the paper's {PAPER_SHARE:.0%} of the reads of the PFS read all that there was",
            f"{ends / max(1.0, reads):.0%} of {reads:.0f}",
            ends >= PAPER_SHARE * reads,
        ),
    ]


def _median(values: Numbers) -> float:
    return float(np.median(values))


FIGURE = Figure("caches", "Caches while many catch up", "DSN'03, future work", _draw, _compare, is_ours=True)
