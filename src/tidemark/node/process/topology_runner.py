"""The topology runner: all processes of a topology on one machine, started and stopped together.

It is for trying a topology out; in earnest each machine runs its own brokers.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from tidemark.node.config.loading import processes_of
from tidemark.node.logs import Log, configure
from tidemark.node.process.supervised_process import SupervisedProcess

#: How often the processes are checked, and how long they may take to stop before they are killed.
LOOK_SECONDS = 0.1
STOP_SECONDS_MAX = 30.0
log = Log("topology")


def run_topology(
    path: str | Path,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    beside: SupervisedProcess | None = None,
) -> int:
    """Start every process of a topology file and wait. Returns the first exit code that is not 0, or 0.

    When a process fails, all are told to end; a process whose brokers were removed from the overlay just
    ends. SIGTERM and SIGINT are passed on. `settings` are additional settings: broker -> key -> value.
    The process `beside`, if there is one, is started with the brokers and stopped before them.
    """
    processes = processes_of(path)
    configure("info", "auto")
    told: list[int] = []

    def tell(number: int, _: FrameType | None) -> None:
        told.append(number)

    before = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    children = {name: _start(path, brokers, settings or {}) for name, brokers in processes.items()}
    try:
        while not told and _are_well(list(children.values())):
            if beside is not None:
                beside.look()
            time.sleep(LOOK_SECONDS)
        for name, child in children.items():
            if child.poll() and not told:
                log.error("a process has ended: stopping the others", process=name, code=child.returncode)
        if beside is not None:
            beside.stop()
        return _stop(list(children.values()))
    finally:
        for child in children.values():
            child.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(
    path: str | Path, brokers: tuple[str, ...], settings: Mapping[str, Mapping[str, str]]
) -> subprocess.Popen[bytes]:
    # In a group of its own: Ctrl-C at the terminal reaches this process alone, which passes it on once.
    command = [sys.executable, "-m", "tidemark.node", "--config", str(path)]
    command += [part for name in brokers for part in ("--broker", name)]
    # A setting of a process holds for all of its brokers, so only settings that all of them get are passed.
    shared = set.intersection(*({*settings.get(name, {}).items()} for name in brokers))
    command += [part for key, value in sorted(shared) for part in ("--set", f"{key}={value}")]
    return subprocess.Popen(command, process_group=0)


def _are_well(children: list[subprocess.Popen[bytes]]) -> bool:
    """Returns whether no process has failed and at least one still runs."""
    codes = [child.poll() for child in children]
    return None in codes and not any(codes)


def _stop(children: list[subprocess.Popen[bytes]]) -> int:
    """Tell all processes to end and wait; kill those that do not. Returns the exit code for all."""
    for child in children:
        if child.poll() is None:
            child.terminate()
    until = time.monotonic() + STOP_SECONDS_MAX
    for child in children:
        try:
            child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("a broker does not stop: killed", pid=child.pid)
            child.kill()
            child.wait()
    return next((child.returncode for child in children if child.returncode), 0)
