"""Benchmarks: what Tidemark costs, beside other programs where there are any, and whether it is right.

A benchmark yields sections of measurements. Every run checks exactly what it measures: a goal that is missed
is reported, a wrong answer fails the run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tidemark.errors import ConfigError

if TYPE_CHECKING:
    from tidemark.lab.bench.report import Section


@dataclass(frozen=True, slots=True)
class Bench:
    """A benchmark: its name, what it is about in a line, and its module below `tidemark.lab.bench`.

    The module has `sections(effort)`, and the two efforts `FULL` and `QUICK`; if it can last as long as one
    likes, also `lasting(minutes)`, which returns an effort. If it has parts that can be run alone, these are
    its `CASES` by name, and `sections(effort, name)` runs one of them.
    """

    name: str
    about: str
    module: str

    def sections(
        self, *, quick: bool, minutes: float | None = None, case: str | None = None
    ) -> Iterator[Section]:
        """Run the benchmark, in full or quickly; AssertionError when what it measures is wrong.

        ConfigError if it is to last `minutes` and has a length of its own, or has no such `case`.

        The module is imported only now: the command line lists all benchmarks and should not wait for their
        dependencies.
        """
        module = import_module(f"tidemark.lab.bench.{self.module}")
        effort = module.QUICK if quick else module.FULL
        if minutes is not None:
            if not hasattr(module, "lasting"):
                text = f"bench {self.name} has a length of its own: leave out --minutes"
                raise ConfigError(text, key="minutes")
            effort = module.lasting(minutes)
        cases = getattr(module, "CASES", {})
        if case is not None and case not in cases:
            known = f"it has {', '.join(cases)}" if cases else "it has none that can be run alone"
            raise ConfigError(f"bench {self.name} has no case {case!r}: {known}", key="case")
        sections: Iterator[Section] = (
            module.sections(effort) if case is None else module.sections(effort, case)
        )
        return sections


def run(
    name: str,
    json_output: bool = False,
    quick: bool = False,
    out: IO[str] | None = None,
    *,
    check: bool = False,
    minutes: float | None = None,
    before: Path | None = None,
    page: Path | None = None,
    case: str | None = None,
) -> int:
    """Run a benchmark and show what it finds, beside what the run of the file `before` has found.

    Its grids are written into a `page`, between its marks. `minutes` is how long it lasts, if it can.
    `case` is the one part of it that is run, instead of all.

    Returns the exit code: 0 when everything that was measured was right, whether or not goals were missed;
    with `check` a missed goal gives 1 too.
    """
    # Not imported above: the processes that a benchmark starts import this package and report nothing.
    from tidemark.lab.bench.report import JsonReport, TableReport, read_earlier, write_page

    earlier = None if before is None else read_earlier(before)
    report = JsonReport(name, out) if json_output else TableReport(name, out, earlier)
    missed = False
    grids: list[Section] = []
    try:
        for section in BENCHES[name].sections(quick=quick, minutes=minutes, case=case):
            report.show(section)
            missed = missed or any(each.ok is False for each in section.measurements)
            grids += [section] if section.grid else []
        if page is not None:
            write_page(page, name, grids)
    except AssertionError as wrong:
        print(f"bench {name}: WRONG: {wrong}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as missing:
        print(f"bench {name} needs {missing.name}: pip install 'tidemark[dev]'", file=sys.stderr)
        return 1
    return 1 if check and missed else 0


BENCHES: dict[str, Bench] = {
    bench.name: bench
    for bench in (
        Bench(
            "messages",
            "fields out of raw bytes, beside XML, JSON, msgpack and protobuf; columns",
            "messages.benchmark",
        ),
        Bench(
            "matching",
            "events a second by number of selectors, memory, a selector's scan",
            "matching.benchmark",
        ),
        Bench("pfs", "which events matched whom, beside logging them for each subscriber", "pfs.benchmark"),
        Bench("fanout", "100 subscribers at a broker: deliveries a second, and CPU", "system.fanout"),
        Bench(
            "publish",
            "one publisher: events a second, and how long one waits beside a bare sync",
            "system.publish",
        ),
        Bench(
            "catchup", "40 subscribers return together: deliveries a second, bytes on disk", "system.catchup"
        ),
        Bench("latency", "from publisher to subscriber at 200 events a second", "system.latency"),
        Bench(
            "steps",
            "what each hot path of a broker costs in calls, memory and instructions, at any load",
            "steps.benchmark",
        ),
        Bench(
            "idle", "memory and CPU of 10,000 subscribers that only wait, connected and parked", "system.idle"
        ),
        Bench("workers", "the fan-out behind one address with 1, 2 and 4 workers", "system.workers"),
        Bench(
            "history",
            "memory of an event of history with 10,000 durable subscribers away, and the next start",
            "system.history",
        ),
        Bench(
            "hostile",
            "a well-behaved client beside hostile ones: acknowledgements, deliveries, the broker's memory",
            "hostile.benchmark",
        ),
        Bench(
            "peers",
            "the same workloads against Redis, NATS, Mosquitto, RabbitMQ and ActiveMQ, where installed",
            "peers.benchmark",
        ),
        Bench(
            "soak",
            "a fixed rate for --minutes, with kills: latency to p99.99, memory and files over time",
            "soak.benchmark",
        ),
        Bench(
            "security",
            "TLS and 1,000 principals with a rule each against open, as ratios",
            "security.benchmark",
        ),
        Bench("logins", "what connected clients notice beside 100,000 wrong passwords", "security.logins"),
        Bench(
            "console",
            "what an open console and 1,000 browsers cost a loaded broker, and what others notice",
            "console.benchmark",
        ),
        Bench(
            "thinlink",
            "history and live events over a real link of 1 Mbit, in network namespaces (needs root)",
            "thinlink.benchmark",
        ),
        Bench(
            "spark", "the pipeline: source, archive, history beside a Parquet scan, sink", "spark.benchmark"
        ),
        Bench(
            "rows",
            "CPU time of a row between broker and Spark, reading and writing, without Spark",
            "spark.rows",
        ),
        Bench(
            "engines",
            "CPU and memory of the two engines of the archive, idle and at 2,000 events a second",
            "spark.engines",
        ),
    )
}
