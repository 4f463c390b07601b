"""The pipeline's long-running jobs, as the command line runs them: archive for ever, and say how it goes.

What passes by itself is waited out and said once: a broker that is away, a disk that is full. Everything else
ends the job with one clear error.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark import sync
from tidemark.errors import DiskFullError, NotConnectedError, TimedOutError
from tidemark.spark.archive import SMALL_ROUND_BYTES_MAX, Archive
from tidemark.spark.archivefiles import Snapshot, snapshot
from tidemark.spark.archivestate import FOLDER
from tidemark.storage.realdisk import LOCK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_SECONDS = 1.0
#: A broker, or space on the disk, is looked for this often.
RETRY_SECONDS = 5.0
_PASSING = (NotConnectedError, TimedOutError, DiskFullError)

#: Says what happened, as something that JSON can hold.
Tell = Callable[[Mapping[str, Any]], None]


def run_archive(
    broker: str,
    path: Path,
    *,
    tell: Tell,
    sleep: Callable[[float], bool],
    interval: float = INTERVAL_SECONDS,
    once: bool = False,
    retain: float | None = None,
    master: str = "local[*]",
) -> None:
    """Archive until `sleep` says to stop; or, with `once`, until all that is there is archived."""
    with Archive(broker, path, session=lambda: _session(master), retain=retain) as archive:
        problem = ""
        while True:
            try:
                done = archive.round()
            except _PASSING as error:
                if once:
                    raise
                archive.disconnect()
                if str(error) != problem:
                    tell({"waiting": str(error)})
                problem = str(error)
                if not sleep(RETRY_SECONDS):
                    return
                continue
            problem = ""
            if done is not None:
                tell({**asdict(done), "covered": dict(archive.state.covered)})
            elif once:
                return
            # A backlog is worked off without a pause.
            is_behind = done is not None and (once or done.bytes > SMALL_ROUND_BYTES_MAX // 2)
            if not sleep(0.0 if is_behind else interval):
                return


def status(path: Path, broker: str | None) -> dict[str, Any]:
    """How the archive at `path` is doing; how far it is behind, if there is a broker to compare with."""
    taken = snapshot(path)
    state = taken.state
    stored = sum(each.bytes for files in taken.files.values() for each in files)
    return {
        "path": str(path),
        "process": running(path),
        "events": state.events,
        "event_bytes": state.bytes,
        "files": sum(map(len, taken.files.values())),
        "bytes": stored,
        "released": state.released,
        "last_round": asdict(state.rounds[-1]) if state.rounds else None,
        "events_per_second": _rate(taken),
        "tables": [_table(taken, root) for root in taken.files],
        "pubends": _pubends(taken, broker),
    }


def running(path: Path) -> int | None:
    """The process that writes the archive, if one does; 0 if it did not say which it is."""
    try:
        with (path / FOLDER / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = (path / FOLDER / LOCK).read_text().strip()
        return int(holder) if holder.isdecimal() else 0
    except OSError:
        return None
    return None


def _rate(taken: Snapshot) -> float | None:
    """Events a second, while it was at work, over the rounds that are remembered."""
    seconds = sum(each.seconds for each in taken.state.rounds)
    return sum(each.events for each in taken.state.rounds) / seconds if seconds else None


def _table(taken: Snapshot, root: str) -> dict[str, Any]:
    files = taken.files[root]
    return {
        "root": root,
        "files": len(files),
        "bytes": sum(each.bytes for each in files),
        "events": sum(each.rows for each in files),
        "columns": len(taken.layouts[root].schema),
    }


def _pubends(taken: Snapshot, broker: str | None) -> list[dict[str, Any]]:
    there = {each["pubend"]: each for each in _asked(broker)}
    found = []
    for name in sorted({*there, *taken.state.covered}):
        covered, at = taken.state.covered.get(name), there.get(name)
        found.append(
            {
                "pubend": name,
                "covered": covered,
                "last_event": None if at is None else at["last_event"],
                "archived": None if at is None else at["archived"],
                "lag_seconds": None if at is None else _lag(covered, at["last_event"], at["lost"]),
                "missing": [list(each) for each in taken.state.missing.get(name, ())],
            }
        )
    return found


def _lag(covered: int | None, last_event: int | None, lost: int | None) -> float | None:
    """Between the last event there is and the last tick that is archived; None if nothing is yet."""
    if last_event is None:
        return 0.0
    known = [tick for tick in (covered, lost) if tick is not None]
    return max(0.0, (last_event - max(known)) / 1e6) if known else None


def _asked(broker: str | None) -> list[dict[str, Any]]:
    if broker is None:
        return []
    with sync.connect(broker, connect_timeout=3.0) as tm:
        pubends: list[dict[str, Any]] = tm.ask("pubends", timeout=10.0)
        return pubends


def _session(master: str) -> SparkSession:
    from tidemark.spark.session import session

    return session("tidemark archive", master)
