"""The system benches run real processes, find what is wrong with a delivery, and leave nothing behind."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemark.lab.bench import run
from tidemark.lab.bench.console import benchmark as console
from tidemark.lab.bench.hostile import benchmark as hostile
from tidemark.lab.bench.processes import harness
from tidemark.lab.bench.processes.delivery_record import DeliveryRecord
from tidemark.lab.bench.processes.harness import BenchTestbed, filesystem
from tidemark.lab.bench.processes.shared_counters import SharedCounters
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.security import benchmark as security
from tidemark.lab.bench.security import logins
from tidemark.lab.bench.system import catchup, fanout, history, idle, latency, publish, workers
from tidemark.lab.bench.system.load import MESSAGE_BYTES, SCHEMA, Batches, Load, kinds_in, numbers_of
from tidemark.message.batches.batch import EventBatch

KEYS = {"bench", "case", "metric", "value", "unit", "goal", "ok"}
TINY: dict[str, tuple[Any, Any]] = {
    "fanout": (fanout, fanout.FanoutEffort((fanout.FanoutCase("os", "lean", 100),), 8, 0.0, 0.2)),
    "publish": (
        publish,
        publish.PublishEffort(
            (publish.PublishCase("os", "publish_many", 50), publish.PublishCase("os", publish.BARE, 50)),
            0.0,
            0.1,
            2,
        ),
    ),
    "catchup": (
        catchup,
        catchup.CatchupEffort((catchup.CatchupCase("os", "client", quarter=True),), 4, 400, (8,), 400),
    ),
    "latency": (
        latency,
        latency.LatencyEffort(
            (latency.LatencyCase("os"), latency.LatencyCase("os", is_alone=True, latency="low")), 2, 20, 5
        ),
    ),
    "console": (console, console.TINY),
    "hostile": (hostile, hostile.TINY),
    "security": (security, security.TINY),
    "logins": (logins, logins.TINY),
    "idle": (idle, idle.IdleEffort(10, 0.0, 0.1)),
    "workers": (workers, workers.WorkersEffort((2,), (100,), 8, 0.0, 0.2)),
    "history": (history, history.HistoryEffort(20, (2_000, 4_000), 10)),
}

#: Benches whose subscribers speak plain frames, as lean as can be, and log in to nobody.
LEAN = {"fanout", "idle", "history"}
MEASURES_OPEN = pytest.mark.open_broker(
    reason="lean subscribers of a benchmark say Connect and Subscribe at once, to brokers that are open"
)
#: Benches that start more processes than the others do, which `./run long` runs.
LONG = {"publish", "catchup", "console", "hostile", "security", "workers"}


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(harness.DIRECTORY, str(tmp_path))
    for module, effort in TINY.values():
        monkeypatch.setattr(module, "QUICK", effort)
    # What memory is worth when nothing has settled is not asked here.
    monkeypatch.setattr(history, "SETTLE_SECONDS", 0.1)
    yield
    assert not list(tmp_path.iterdir()), "a bench removes its files"


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [*([pytest.mark.long] if name in LONG else []), *([MEASURES_OPEN] if name in LEAN else [])]


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in TINY])
def test_a_system_bench_says_what_it_found_and_every_subscriber_was_right(name: str) -> None:
    out = StringIO()
    assert run(name, json_output=True, quick=True, out=out) == 0
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert all(set(line) == KEYS for line in lines)
    names = [(line["case"], line["metric"]) for line in lines]
    assert len(set(names)) == len(names)


def test_a_missed_goal_fails_a_run_only_if_it_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = [Measurement("c", "m", 2.0, "ms", Goal("<", 1.0))]
    monkeypatch.setattr(hostile, "sections", lambda _: iter([Section("s", measured)]))
    assert run("hostile", quick=True, out=StringIO()) == 0
    assert run("hostile", quick=True, out=StringIO(), check=True) == 1
    monkeypatch.setattr(hostile, "sections", lambda _: iter([Section("s", measured[:0])]))
    assert run("hostile", quick=True, out=StringIO(), check=True) == 0


@pytest.mark.slow
@MEASURES_OPEN
def test_what_a_worker_finds_wrong_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The publisher says that it published more than it did: some subscriber must miss that."""
    answered = harness.WorkerProcess.answer

    def more(worker: harness.WorkerProcess, seconds: float = harness.PATIENCE_SECONDS) -> Any:
        answer = answered(worker, seconds)
        return answer + 1 if type(answer) is int else answer

    monkeypatch.setattr(harness.WorkerProcess, "answer", more)
    monkeypatch.setattr(fanout, "QUICK", replace(TINY["fanout"][1], subscribers=4))
    monkeypatch.setenv("TIDEMARK_BENCH_PATIENCE_SECONDS", "0.5")
    assert run("fanout", quick=True, out=StringIO()) == 1
    assert "bench fanout: WRONG: check: subscriber subscriber-" in capsys.readouterr().err


def test_a_testbed_ends_what_it_started_whatever_happens() -> None:
    def fail() -> int:
        with BenchTestbed() as testbed:
            broker = testbed.broker("os")
            worker = testbed.worker("publish", url=broker.url)
            assert broker.cpu_seconds >= 0
            assert broker.rss_bytes > 1 << 20
            assert broker.disk_bytes > 0
            started.extend((broker.process.pid, worker.process.pid))
            raise KeyboardInterrupt

    started: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        fail()
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_broker_that_cannot_start_says_why() -> None:
    with BenchTestbed() as testbed:
        (testbed.path / "data").mkdir()
        (testbed.path / "data" / "thesis.tex").touch()
        with pytest.raises(AssertionError, match=r"does not start: .*choose a new or an empty one"):
            testbed.broker("os")


def test_the_file_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert filesystem() != "unknown"
    monkeypatch.setenv(harness.DIRECTORY, "/proc")
    assert filesystem() == "proc"


def batch(first: int, count: int, kind: int | None = None) -> EventBatch:
    made = Batches(Load(), count).batch(first)
    made.fill_ticks(np.arange(count) + first + 1)
    return made if kind is None else made.take(kinds_in(made) == kind)


def told(kind: int | None, *pieces: tuple[int, int, EventBatch | None]) -> DeliveryRecord:
    ledger = DeliveryRecord("s", kind)
    for piece in pieces:
        ledger.take(*piece)
    return ledger


def test_events_have_the_size_and_the_fields_that_they_are_said_to_have() -> None:
    load, made = Load(), batch(1_990, 20)
    assert len(made.message(0)) == MESSAGE_BYTES
    assert [SCHEMA.decode(made.message(row)) for row in range(20)] == [
        load.event(number) for number in range(1_990, 2_010)
    ]
    assert numbers_of(made).tolist() == list(range(1_990, 2_010))
    assert sum(load.expected(kind, 0, 1_000).count for kind in range(4)) == 1_000
    assert {load.expected(kind, 0, 1_000).count for kind in range(4)} == {250}


def test_a_delivery_record_accepts_just_what_was_due() -> None:
    load = Load()
    whole = told(None, (0, 10, batch(0, 10)), (10, 30, batch(10, 20)))
    assert whole.check(load.expected(None, 0, 30)) is None
    holed = told(None, (0, 10, batch(0, 10)), (10, 12, None), (12, 30, batch(12, 18)))
    assert holed.check(load.expected(None, 0, 30)) is not None
    assert told(2, (0, 10, None), (10, 50, batch(0, 50, 2))).check(load.expected(2, 0, 50)) is not None
    assert told(2, (0, 50, batch(0, 50, 2))).check(load.expected(2, 0, 50)) is None


@pytest.mark.parametrize(
    ("ledger", "said"),
    [
        (told(None, (0, 10, batch(0, 10)), (0, 10, batch(0, 10))), "told up to 10, then from 0"),
        (told(None, (0, 10, batch(0, 10)), (11, 20, batch(11, 9))), "told up to 10, then from 11"),
        (told(None, (0, 9, batch(0, 10))), "ticks out of order"),
        (told(None, (0, 10, batch(0, 10).take(np.arange(10)[::-1]))), "ticks out of order"),
        (told(2, (0, 10, batch(0, 10))), "another kind"),
        (told(None, (0, 10, batch(0, 9))), "should have got"),
    ],
)
def test_a_delivery_record_notices_what_is_repeated_lost_out_of_order_or_not_wanted(
    ledger: DeliveryRecord, said: str
) -> None:
    problem = ledger.check(Load().expected(ledger.kind, 0, 10))
    assert problem is not None
    assert said in problem


def test_a_gap_is_always_wrong() -> None:
    ledger = told(None, (0, 10, batch(0, 10)))
    ledger.gap(10, 12)
    assert ledger.check(Load().expected(None, 0, 10)) == "subscriber s: a gap in (10, 12]"


def test_everybody_sees_the_same_counters(tmp_path: Path) -> None:
    path = tmp_path / "board"
    one, other = SharedCounters(path), SharedCounters(path)
    one.add_delivered(0, 5)
    one.add_delivered(1, 7)
    one.add_caught_up(1)
    one.published = 3
    one.stop()
    assert (other.delivered, other.delivered_by(2), other.caught_up, other.published) == (12, 10, 1, 3)
    assert other.is_over
    path.unlink()
