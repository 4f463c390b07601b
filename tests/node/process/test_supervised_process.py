"""A process beside a broker: started again when it ends, later each time, and stopped with the broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark.node.process import supervised_process as module
from tidemark.node.process.supervised_process import DELAY_SECONDS_MAX, LONG_LIFE_SECONDS, SupervisedProcess


class Clock:
    """Time that the test moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def started(clock: Clock) -> Iterator[Callable[[str], SupervisedProcess]]:
    made: list[SupervisedProcess] = []

    def start(text: str) -> SupervisedProcess:
        made.append(SupervisedProcess("test", python(text), clock=clock))
        made[-1].look()
        return made[-1]

    yield start
    for each in made:
        each.stop()


def looked(supervised: SupervisedProcess) -> bool:
    """Look; returns whether the process was seen to have ended."""
    supervised.look()
    return supervised.pid is None


def test_one_that_ends_is_started_again_later_each_time(
    started: Callable[[str], SupervisedProcess], clock: Clock
) -> None:
    supervised = started("raise SystemExit(7)")
    for delay in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, DELAY_SECONDS_MAX, DELAY_SECONDS_MAX):
        eventually(lambda: looked(supervised))
        clock.now += delay - 0.1
        supervised.look()
        assert supervised.pid is None
        clock.now += 0.1
        supervised.look()
        assert supervised.pid is not None
    clock.now += LONG_LIFE_SECONDS
    eventually(lambda: looked(supervised))
    clock.now += 1.0
    supervised.look()
    assert supervised.pid is not None


def test_it_is_stopped_in_order_and_not_started_again(
    started: Callable[[str], SupervisedProcess], clock: Clock, tmp_path: Path
) -> None:
    file = tmp_path / "said"
    supervised = started(
        "import pathlib, signal, sys, time\n"
        f"file = pathlib.Path({str(file)!r})\n"
        "def told(*_): file.write_text('told'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, told); file.write_text('ready'); time.sleep(60)"
    )
    eventually(lambda: file.exists() and file.read_text() == "ready")
    supervised.stop()
    assert file.read_text() == "told"
    clock.now += 1_000
    supervised.look()
    assert supervised.pid is None


def test_one_that_does_not_stop_is_killed(
    started: Callable[[str], SupervisedProcess], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS_MAX", 0.1)
    file = tmp_path / "ready"
    supervised = started(
        "import pathlib, signal, time\n"
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN); pathlib.Path({str(file)!r}).touch(); time.sleep(60)"
    )
    eventually(file.exists)
    supervised.stop()
    assert supervised.pid is None


def test_a_command_that_is_not_there_is_tried_again(clock: Clock) -> None:
    supervised = SupervisedProcess("test", ["/nowhere/at/all"], clock=clock)
    supervised.look()
    assert supervised.pid is None
    clock.now += 1.0
    supervised.look()
    supervised.stop()


def test_its_input_closes_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "ended"
    inner = f"import sys, pathlib; sys.stdin.read(); pathlib.Path({str(file)!r}).touch()"
    outer = (
        "import os, sys, time; from tidemark.node.process.supervised_process import SupervisedProcess\n"
        f"each = SupervisedProcess('test', [sys.executable, '-c', {inner!r}]); each.look(); os._exit(9)"
    )
    assert subprocess.run(python(outer), check=False, timeout=PATIENCE_SECONDS).returncode == 9
    eventually(file.exists)
