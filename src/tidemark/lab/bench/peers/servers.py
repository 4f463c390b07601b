"""The servers of the peers: where their programs are, which version, and how each is started on loopback.

A server gets a directory and a free port, runs as a child of the benchmark and ends with it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import sleep

from tidemark import __version__
from tidemark.lab.bench.peers.bare_peer import HOST, Handshake
from tidemark.lab.bench.peers.protocols import amqp, nats, rabbit_stream
from tidemark.lab.bench.processes.harness import (
    BenchBroker,
    BenchProcess,
    BenchTestbed,
    TooSlowError,
    directory_bytes,
    wait_until,
)
from tidemark.lab.bench.system.fanout import KINDS
from tidemark.lab.processes.broker_start import free_port
from tidemark.lab.processes.process_numbers import tree_cpu_seconds

_VERSION = re.compile(r"\d+\.\d+[\w.\-+~]*")
_LAUNCH = "tidemark.lab.bench.peers.launch"
#: The longest that the start of a server takes: those on a virtual machine of their own take their time.
START_SECONDS = 120.0
#: The longest that asking a program for its version takes, and that saving takes.
_ASK_SECONDS = 20.0
_SAVE_SECONDS = 2.0
#: Programs of servers are here too, which is not always on the path.
_SBIN = ("/usr/sbin", "/usr/local/sbin")
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_ACTIVEMQ = Path("/usr/share/activemq/bin/activemq.jar")


class PeerProcess(BenchProcess):
    """A server that is a child of the benchmark, in a session of its own."""

    def __init__(self, command: list[str], directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        said = directory.with_suffix(".log")
        super().__init__(_LAUNCH, command, said, environment=environment, is_silent=True)
        self.url = ""

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the server and of all processes that it has started."""
        return tree_cpu_seconds(self.process.pid)

    @property
    def disk_bytes(self) -> int:
        """Bytes of all files of the server's directory."""
        return directory_bytes(self.directory)

    def kill(self) -> None:
        """Kill the server and all of its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Server(ABC):
    """A way to start a server; `problem` says why it cannot be."""

    #: the package of Debian that has it
    package = ""

    @abstractmethod
    def version(self) -> str | None:
        """Returns the version that is installed, or None if none is."""

    @abstractmethod
    def start(self, testbed: BenchTestbed, options: tuple[str, ...]) -> BenchBroker | PeerProcess:
        """Start it with an empty directory; returns when clients can connect."""

    def save(self, server: BenchBroker | PeerProcess) -> None:  # noqa: B027  (most need not)
        """Have the server write what it holds to its files, for those that only do so now and then."""


class TidemarkServer(Server):
    """The broker of this project."""

    def version(self) -> str | None:
        return __version__

    def start(self, testbed: BenchTestbed, options: tuple[str, ...]) -> BenchBroker:
        return testbed.broker(options[0])


class _Program(Server):
    """A server that is one program."""

    program = ""
    asked = "--version"

    def version(self) -> str | None:
        program = found_program(self.program)
        return None if program is None else version_in(_said([program, self.asked]))

    def start(self, testbed: BenchTestbed, options: tuple[str, ...]) -> PeerProcess:
        directory, port = testbed.path / "data", free_port()
        directory.mkdir()
        program = found_program(self.program)
        assert program is not None, f"{self.program} is not installed: apt-get install {self.package}"
        return started(testbed, [program, *self.arguments(directory, port, options)], directory, port)

    @abstractmethod
    def arguments(self, directory: Path, port: int, options: tuple[str, ...]) -> list[str]:
        """Returns the arguments of the program."""


class RedisServer(_Program):
    """Redis with an append-only file that is not rewritten; its option is when that file is synced."""

    package = program = "redis-server"

    def arguments(self, directory: Path, port: int, options: tuple[str, ...]) -> list[str]:
        settings = {
            "port": str(port),
            "bind": HOST,
            "dir": str(directory.resolve()),
            "appendonly": "yes",
            "appendfsync": options[0],
            "auto-aof-rewrite-percentage": "0",
            "save": "",
        }
        return [word for key, value in settings.items() for word in (f"--{key}", value)]


class NatsServer(_Program):
    """NATS with JetStream in files."""

    package = program = "nats-server"

    def arguments(self, directory: Path, port: int, options: tuple[str, ...]) -> list[str]:  # noqa: ARG002
        config = directory.with_suffix(".conf")
        store = directory.resolve()
        lines = [f'listen: "{HOST}:{port}"', 'ping_interval: "10m"', f'jetstream {{ store_dir: "{store}" }}']
        config.write_text("\n".join(lines) + "\n")
        return ["-c", str(config)]

    def start(self, testbed: BenchTestbed, options: tuple[str, ...]) -> PeerProcess:
        server = super().start(testbed, options)
        nats.create_streams(_port(server), KINDS)
        return server


class MosquittoServer(_Program):
    """Mosquitto, which holds everything in memory and saves it now and then."""

    package = program = "mosquitto"
    asked = "-h"

    def arguments(self, directory: Path, port: int, options: tuple[str, ...]) -> list[str]:  # noqa: ARG002
        config = directory.with_suffix(".conf")
        lines = [
            f"listener {port} {HOST}",
            "allow_anonymous true",
            "user root",
            "persistence true",
            f"persistence_location {directory.resolve()}/",
            "max_queued_messages 0",
            "max_inflight_messages 1000",
            "set_tcp_nodelay true",
        ]
        config.write_text("\n".join(lines) + "\n")
        return ["-c", str(config)]

    def save(self, server: BenchBroker | PeerProcess) -> None:
        server.process.send_signal(signal.SIGUSR1)
        sleep(_SAVE_SECONDS)


class RabbitServer(Server):
    """RabbitMQ with the plugin for streams; its option is which of its protocols clients speak."""

    package = "rabbitmq-server"

    def version(self) -> str | None:
        if not _RABBITMQ.exists():
            return None
        return version_in(_said(["dpkg-query", "-W", "-f", "${Version}", self.package]))

    def start(self, testbed: BenchTestbed, options: tuple[str, ...]) -> PeerProcess:
        directory = testbed.path / "data"
        directory.mkdir()
        plugins, config = testbed.path / "enabled_plugins", testbed.path / "rabbitmq.conf"
        plugins.write_text("[rabbitmq_stream].\n")
        ports = {name: free_port() for name in ("classic", "stream", "names", "nodes")}
        lines = [
            f"listeners.tcp.1 = {HOST}:{ports['classic']}",
            f"stream.listeners.tcp.1 = {HOST}:{ports['stream']}",
            "log.console.level = warning",
        ]
        config.write_text("\n".join(lines) + "\n")
        environment = {
            "HOME": str(testbed.path.resolve()),
            "ERL_EPMD_PORT": str(ports["names"]),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"bench{ports['classic']}@localhost",
            "RABBITMQ_DIST_PORT": str(ports["nodes"]),
            "RABBITMQ_MNESIA_BASE": str(directory.resolve()),
            "RABBITMQ_LOG_BASE": str(testbed.path.resolve()),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(config.resolve()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins.resolve()),
        }
        # Otherwise the server starts the one that outlives it.
        names = PeerProcess(["epmd", "-port", str(ports["names"])], testbed.path / "epmd", environment)
        testbed.add(names)
        port = ports[options[0]]
        server = started(testbed, [str(_RABBITMQ)], directory, port, environment)
        prepare = amqp.declare_exchange if options[0] == "classic" else _create_streams
        if not wait_until(lambda: _succeeds(prepare, port), START_SECONDS):
            raise TooSlowError(str(server.fail("RabbitMQ does not answer:")))
        return server


class ActiveServer(Server):
    """ActiveMQ Classic with KahaDB, as it is by default, and STOMP."""

    package = "activemq"

    def version(self) -> str | None:
        if not _ACTIVEMQ.exists() or found_program("java") is None:
            return None
        return version_in(_said(["dpkg-query", "-W", "-f", "${Version}", self.package]))

    def start(self, testbed: BenchTestbed, options: tuple[str, ...]) -> PeerProcess:  # noqa: ARG002
        directory, port = testbed.path / "data", free_port()
        directory.mkdir()
        home, base = _ACTIVEMQ.parent.parent, directory.resolve()
        persistent = f"persistent=true&useJmx=false&dataDirectory={base}"
        command = [
            "java",
            f"-Dactivemq.home={home}",
            f"-Dactivemq.base={base}",
            f"-Dactivemq.data={base}",
            "-jar",
            str(_ACTIVEMQ),
            "start",
            f"broker:(stomp+nio://{HOST}:{port})/bench?{persistent}",
        ]
        return started(testbed, command, directory, port)


SERVERS: dict[str, Server] = {
    "tidemark": TidemarkServer(),
    "redis": RedisServer(),
    "nats": NatsServer(),
    "mosquitto": MosquittoServer(),
    "rabbitmq": RabbitServer(),
    "activemq": ActiveServer(),
}


def started(
    testbed: BenchTestbed,
    command: list[str],
    directory: Path,
    port: int,
    environment: Mapping[str, str] | None = None,
) -> PeerProcess:
    """Start a server and wait until its port takes connections."""
    server = PeerProcess(command, directory, environment or {})
    testbed.add(server)

    def listens() -> bool:
        if server.process.poll() is not None:
            raise server.fail(f"{command[0]} does not start:")
        return _succeeds(lambda at: Handshake(at).socket.close(), port)

    if not wait_until(listens, START_SECONDS):
        raise TooSlowError(str(server.fail(f"{command[0]} does not listen:")))
    server.url = f"peer://{HOST}:{port}"
    return server


def found_program(name: str) -> str | None:
    """Returns the path of a program, also where only root looks for it."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(_SBIN))


def version_in(said: str) -> str:
    """Returns the first version that a text names."""
    found = _VERSION.search(said)
    return "unknown" if found is None else found[0]


def _said(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    return result.stdout + result.stderr


def _create_streams(port: int) -> None:
    rabbit_stream.create_streams(port, KINDS)


def _port(server: PeerProcess) -> int:
    return int(server.url.rpartition(":")[2])


def _succeeds(attempt: Callable[[int], object], port: int) -> bool:
    try:
        attempt(port)
    except (OSError, AssertionError):
        return False
    return True
