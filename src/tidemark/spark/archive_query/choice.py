"""Which engine writes the archive: Spark, as a streaming query, or the light one, in a plain process."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from tidemark.errors import ConfigError, TidemarkError

Engine = Literal["spark", "light"]
#: What `archive.engine` may be.
ENGINES = ("auto", "spark", "light")
#: With less memory than this to spare, `auto` is the light engine: the query takes about 1.2 GiB under load,
#: and the machine is there for the broker.
MEMORY_BYTES_MIN = 2 << 30
_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine that runs, and why it is this one."""

    engine: Engine
    reason: str


def chosen_engine(wanted: str, master: str) -> EngineChoice:
    """The engine for what `archive.engine` says. Raises ConfigError if Spark is wanted and cannot run."""
    if wanted == "light":
        return EngineChoice("light", "as configured")
    lacking = what_spark_lacks(master)
    if wanted == "spark":
        if lacking is not None:
            raise ConfigError(f"Spark cannot archive here: {lacking}", key="archive.engine")
        return EngineChoice("spark", "as configured")
    if lacking is not None:
        return EngineChoice("light", lacking)
    spare = spare_memory()
    if spare is not None and spare < MEMORY_BYTES_MIN:
        return EngineChoice("light", f"{spare >> 20} MiB of memory are free, Spark is to have 2 GiB")
    return EngineChoice("spark", "it is installed, and there is memory")


def what_spark_lacks(master: str) -> str | None:
    """Why the query cannot run here; None if it can."""
    if master.startswith("sc://"):
        return "a streaming query that writes the archive does not run by Spark Connect: name another master"
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'tidemark[spark]'"
    from tidemark.spark.engine.java import java_home

    try:
        java_home()
    except TidemarkError as error:
        return str(error)
    return None


def spare_memory(memory: Path = _MEMORY, group: Path = _GROUP) -> int | None:
    """Bytes of memory that are free for this process; None if the system does not say."""
    found: list[int] = []
    try:
        lines = dict(line.split(":", 1) for line in memory.read_text().splitlines() if ":" in line)
        found.append(int(lines["MemAvailable"].split()[0]) << 10)
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit.isdecimal():
            found.append(max(0, int(limit) - int((group / "memory.current").read_text())))
    except (OSError, ValueError):
        pass
    return min(found, default=None)
