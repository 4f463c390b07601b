"""Processes of a topology: one that is killed is started again, one that cannot start ends all."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.node.process.test_supervised_process import Clock, python
from tests.waiting import eventually
from tidemark.node.process import topology_runner
from tidemark.node.process.process import NOT_STARTED
from tidemark.node.process.topology_runner import (
    DELAY_SECONDS,
    DELAY_SECONDS_MAX,
    LONG_LIFE_SECONDS,
    BrokerProcess,
    run_topology,
)

FOR_EVER = "import time; time.sleep(600)"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def started(clock: Clock) -> Iterator[Callable[[str], BrokerProcess]]:
    made: list[BrokerProcess] = []

    def start(text: str) -> BrokerProcess:
        made.append(BrokerProcess("test", python(text), clock=clock))
        return made[-1]

    yield start
    for child in made:
        child.process.kill()
        child.process.wait()


def killed(child: BrokerProcess) -> int:
    """Kill the process; return its id."""
    pid = child.process.pid
    child.process.send_signal(signal.SIGKILL)
    child.process.wait()
    return pid


def test_a_process_that_was_killed_is_started_again_later_each_time(
    clock: Clock, started: Callable[[str], BrokerProcess]
) -> None:
    child = started(FOR_EVER)
    delay = DELAY_SECONDS
    for _ in range(3):
        pid = killed(child)
        assert child.look()
        clock.now += delay / 2
        assert child.look()
        assert child.process.pid == pid
        clock.now += delay / 2
        assert child.look()
        assert child.process.pid != pid
        delay = min(2 * delay, DELAY_SECONDS_MAX)
    clock.now += LONG_LIFE_SECONDS
    killed(child)
    assert child.look()
    clock.now += DELAY_SECONDS
    assert child.look()
    assert child.process.poll() is None


def test_a_process_that_cannot_start_the_first_time_is_given_up(
    started: Callable[[str], BrokerProcess],
) -> None:
    child = started(f"import sys; sys.exit({NOT_STARTED})")
    child.process.wait()
    assert not child.look()


def test_a_process_that_cannot_start_after_it_ran_is_tried_again(
    clock: Clock, tmp_path: Path, started: Callable[[str], BrokerProcess]
) -> None:
    ran = tmp_path / "ran"
    child = started(
        f"import sys, time, pathlib; ran = pathlib.Path({str(ran)!r})\n"
        f"if ran.exists(): sys.exit({NOT_STARTED})\n"
        "ran.touch(); time.sleep(600)"
    )
    eventually(ran.exists)
    killed(child)
    for _ in range(3):
        child.process.wait()
        assert child.look()
        clock.now += DELAY_SECONDS_MAX
        assert child.look()


def test_a_process_whose_brokers_were_removed_stays_away(started: Callable[[str], BrokerProcess]) -> None:
    child = started("")
    child.process.wait()
    assert child.look()
    assert child.is_over


def test_a_topology_of_which_one_process_cannot_start_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "two.toml"
    file.write_text(
        '[brokers.a]\nlisten = "127.0.0.1:1"\n[brokers.b]\nlisten = "127.0.0.1:2"\nparent = "a"\n'
    )

    def command(_: object, brokers: tuple[str, ...], __: object) -> list[str]:
        return python(FOR_EVER if brokers == ("a",) else f"import sys; sys.exit({NOT_STARTED})")

    monkeypatch.setattr(topology_runner, "_command", command)
    assert run_topology(file) == NOT_STARTED
