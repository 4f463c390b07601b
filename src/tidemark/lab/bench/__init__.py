"""Benches: what Tidemark costs, beside others where there are any, and whether it is right meanwhile.

A bench yields sections of measurements. Every run checks what it measures exactly; a goal that is missed is
reported, a wrong answer fails the run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.lab.bench.report import Section


@dataclass(frozen=True, slots=True)
class Bench:
    """A bench, and what it is about in a line."""

    name: str
    about: str
    #: the sections, in full or (True) with less effort
    sections: Callable[[bool], Iterator[Section]]


def run(name: str, json_output: bool = False, quick: bool = False, out: IO[str] | None = None) -> int:
    """Run a bench and show what it finds; 0 when all it saw was right, missed goals or not."""
    # Not before: the processes that a bench starts import this package and report nothing.
    from tidemark.lab.bench.report import JsonReport, TableReport

    report = JsonReport(name, out) if json_output else TableReport(name, out)
    try:
        for section in BENCHES[name].sections(quick):
            report.show(section)
    except AssertionError as wrong:
        print(f"bench {name}: WRONG: {wrong}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as missing:
        print(f"bench {name} needs {missing.name}: pip install 'tidemark[dev]'", file=sys.stderr)
        return 1
    return 0


# Each bench is imported when it runs: the command line lists them all and should not wait for their peers.


def _messages(quick: bool) -> Iterator[Section]:
    from tidemark.lab.bench.messages import messages

    return messages.bench_messages(messages.QUICK if quick else messages.FULL)


def _matching(quick: bool) -> Iterator[Section]:
    from tidemark.lab.bench.matching import matching

    return matching.bench_matching(matching.QUICK if quick else matching.FULL)


def _pfs(quick: bool) -> Iterator[Section]:
    from tidemark.lab.bench.pfs import pfs

    return pfs.bench_pfs(pfs.QUICK if quick else pfs.FULL)


def _fanout(quick: bool) -> Iterator[Section]:
    from tidemark.lab.bench.system import fanout

    return fanout.bench_fanout(fanout.QUICK if quick else fanout.FULL)


def _publish(quick: bool) -> Iterator[Section]:
    from tidemark.lab.bench.system import publish

    return publish.bench_publish(publish.QUICK if quick else publish.FULL)


def _catchup(quick: bool) -> Iterator[Section]:
    from tidemark.lab.bench.system import catchup

    return catchup.bench_catchup(catchup.QUICK if quick else catchup.FULL)


def _latency(quick: bool) -> Iterator[Section]:
    from tidemark.lab.bench.system import latency

    return latency.bench_latency(latency.QUICK if quick else latency.FULL)


def _idle(quick: bool) -> Iterator[Section]:
    from tidemark.lab.bench.system import idle

    return idle.bench_idle(idle.QUICK if quick else idle.FULL)


def _spark(quick: bool) -> Iterator[Section]:
    from tidemark.lab.bench.spark import spark

    return spark.bench_spark(spark.QUICK if quick else spark.FULL)


BENCHES: dict[str, Bench] = {
    bench.name: bench
    for bench in (
        Bench(
            "messages", "fields out of raw bytes, beside XML, JSON, msgpack and protobuf; columns", _messages
        ),
        Bench("matching", "events a second by number of selectors, memory, a selector's scan", _matching),
        Bench("pfs", "which events matched whom, beside logging them for each subscriber", _pfs),
        Bench("fanout", "100 subscribers at a broker: deliveries a second, and CPU", _fanout),
        Bench(
            "publish", "one publisher: events a second, and how long one waits beside a bare sync", _publish
        ),
        Bench("catchup", "40 subscribers return together: deliveries a second, bytes on disk", _catchup),
        Bench("latency", "from publisher to subscriber at 200 events a second", _latency),
        Bench("idle", "memory and CPU of 10,000 subscribers that only wait, connected and parked", _idle),
        Bench("spark", "the pipeline: source, archive, history beside a Parquet scan, sink", _spark),
    )
}
