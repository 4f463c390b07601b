"""All brokers of a topology on this machine, for trying out: a process each, started and stopped together."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from tidemark.errors import ConfigError
from tidemark.node.companion import Companion
from tidemark.node.configload import brokers_of
from tidemark.node.logs import Log, configure

#: How often the processes are looked at, and how long they have to stop.
LOOK_SECONDS = 0.1
STOP_SECONDS_MAX = 30.0
log = Log("topology")


def run_topology(
    path: str | Path,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    companion: Companion | None = None,
) -> int:
    """Start every broker of a topology file and wait; the exit code is the first that is not 0.

    When one of them ends, all are told to; SIGTERM and SIGINT are passed on. `settings` are those of single
    brokers beyond the file; a companion is started beside them, and stopped before them.
    """
    names = brokers_of(path)
    if not names:
        raise ConfigError("has no [brokers.NAME] tables", source=str(path))
    configure("info", "auto")
    told: list[int] = []

    def tell(number: int, _: FrameType | None) -> None:
        told.append(number)

    before = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    children = {name: _start(path, name, (settings or {}).get(name, {})) for name in names}
    try:
        while not told and all(child.poll() is None for child in children.values()):
            if companion is not None:
                companion.look()
            time.sleep(LOOK_SECONDS)
        for name, child in children.items():
            if child.poll() is not None and not told:
                log.error("a broker has ended: stopping the others", broker=name, code=child.returncode)
        if companion is not None:
            companion.stop()
        return _stop(list(children.values()))
    finally:
        for child in children.values():
            child.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(path: str | Path, name: str, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # In a group of its own: the terminal's Ctrl-C comes to us alone, and we pass it on once.
    command = [sys.executable, "-m", "tidemark.node", "--config", str(path), "--broker", name]
    command += [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
    return subprocess.Popen(command, process_group=0)


def _stop(children: list[subprocess.Popen[bytes]]) -> int:
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
