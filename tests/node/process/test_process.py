"""The broker as a process: signals, exit codes, kill -9, and a whole topology with one command."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live_node import config_at
from tests.node.speech import Speaker, Stage, play
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS
from tidemark.broker.effects import CommitTables, Effect, Stimulus
from tidemark.errors import DamagedError, DiskFailedError
from tidemark.node.config.units import HostPort
from tidemark.node.node import Node
from tidemark.node.process import process as process_module
from tidemark.node.process.process import DAMAGED, DISK_FAILED, DONE, NOT_STARTED
from tidemark.node.runtime import OWN_TICKET
from tidemark.persistence.event_logs import Report
from tidemark.persistence.store import Store
from tidemark.wire.frames import Connect, Welcome


class Process:
    """A broker in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tidemark.node", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def end(self, number: int) -> tuple[int, list[dict[str, object]]]:
        """Send a signal; returns the exit code and what the process has logged."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, [json.loads(line) for line in said.splitlines()]


async def connected(to: Process, port: int) -> Speaker:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            speaker = Speaker(*await asyncio.open_connection("127.0.0.1", port))
            break
        except OSError:
            assert to.process.poll() is None, "the broker has ended"
            assert time.monotonic() < until, "the broker does not listen"
            await asyncio.sleep(0.02)
    await speaker.say(Connect("tester"))
    await speaker.hear(Welcome)
    return speaker


def settings(tmp_path: Path, port: int) -> list[str]:
    given = {
        "storage.data_dir": str(tmp_path / "data"),
        "broker.listen": str(HostPort("127.0.0.1", port)),
        "http.listen": "",
        "thresholds.silence": "50ms",
    }
    return [part for key, value in given.items() for part in ("--set", f"{key}={value}")]


def ended(path: Path) -> subprocess.CompletedProcess[str]:
    """A broker process that ends by itself, and what it has said."""
    return subprocess.run(
        [sys.executable, "-m", "tidemark.node", *settings(path, 0)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, DONE), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_process_that_is_ended_loses_nothing_that_was_acknowledged(
    tmp_path: Path, number: int, code: int
) -> None:
    (port,) = free_ports(1)

    async def story(_: Stage) -> None:
        first = Process(*settings(tmp_path, port))
        client = await connected(first, port)
        await client.declare()
        await client.subscribe()
        await client.started()
        await client.publish(1, 100)
        token = (await client.numbers(100))[1]
        await client.publish(101, 100)
        ended, said = first.end(number)
        assert ended == code, said
        if number == signal.SIGTERM:
            assert [line["text"] for line in said][-1] == "stopped"
        await client.close()

        second = Process(*settings(tmp_path, port))
        client = await connected(second, port)
        await client.subscribe(token=token)
        assert (await client.numbers(100))[0] == list(range(101, 201))
        await client.close()
        assert second.end(signal.SIGTERM)[0] == DONE

    play(story)


def test_a_process_whose_tables_are_gone_says_what_to_choose_and_ends_with_its_own_code(
    tmp_path: Path,
) -> None:
    async def once(**options: str) -> tuple[str, ...]:
        node = await Node.start(config_at(tmp_path / "data", **options))
        alarms = node.alarms
        await node.stop()
        return alarms

    asyncio.run(once())
    (tmp_path / "data" / "tables" / "tables.sqlite").unlink()
    done = ended(tmp_path)
    assert done.returncode == DAMAGED
    assert "accept_damage=tables" in done.stderr
    (alarm,) = asyncio.run(once(storage__accept_damage="tables"))
    assert "was accepted" in alarm
    assert asyncio.run(once()) == ()


def test_a_data_directory_that_is_gone_is_noticed_with_a_witness_elsewhere(tmp_path: Path) -> None:
    async def once(**options: str) -> tuple[str, ...]:
        node = await Node.start(
            config_at(tmp_path / "data", storage__witness=str(tmp_path / "elsewhere"), **options)
        )
        alarms = node.alarms
        await node.stop()
        return alarms

    asyncio.run(once())
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(DamagedError, match="accept_damage=tables"):
        asyncio.run(once())
    assert asyncio.run(once(storage__accept_damage="tables"))
    asyncio.run(once())


def test_a_saved_topology_that_is_gone_is_refused_unless_that_is_accepted(tmp_path: Path) -> None:
    async def once(**options: str) -> None:
        node = await Node.start(config_at(tmp_path / "data", **options))
        node._store.topology_saved(3)
        await node.stop()

    asyncio.run(once())
    with pytest.raises(DamagedError, match="version 0 of the topology"):
        asyncio.run(once())
    asyncio.run(once(storage__accept_damage="overlay"))


def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.tex").touch()
    done = ended(tmp_path)
    assert done.returncode == NOT_STARTED
    assert "choose a new or an empty one" in done.stderr


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a process's code in this one, without what would change it for others."""
    monkeypatch.setattr(process_module, "configure", lambda *_: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)


@pytest.mark.usefixtures("in_process")
def test_a_failed_disk_ends_the_process_with_its_own_code(tmp_path: Path) -> None:
    error = DiskFailedError("sync failed: Input/output error", path="x")

    def break_it(node: Node) -> None:
        node.runtime._fail(error)

    assert process_module.run(config_at(tmp_path / "data"), ready=break_it) == DISK_FAILED


@pytest.mark.usefixtures("in_process")
def test_a_disk_that_fails_at_the_very_end_is_no_good_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = Store.carry_out

    def fail_last(self: Store, effect: Effect, report: Report | None = None) -> Stimulus | None:
        if effect == CommitTables(OWN_TICKET):
            raise DiskFailedError("sync failed: Input/output error", path="x")
        return carry_out(self, effect, report)

    monkeypatch.setattr(Store, "carry_out", fail_last)

    def end(node: Node) -> None:
        del node
        signal.raise_signal(signal.SIGTERM)

    assert process_module.run(config_at(tmp_path / "data"), ready=end) == DISK_FAILED


@pytest.mark.slow
def test_a_topology_starts_and_stops_with_one_command(tmp_path: Path) -> None:
    ports = dict(zip(("east", "middle", "west"), free_ports(3), strict=True))
    file = tmp_path / "cells.toml"
    parents = {"east": "middle", "west": "middle"}
    file.write_text(
        "".join(
            f'[brokers.{name}]\nlisten = "127.0.0.1:{port}"\n'
            + (f'parent = "{parents[name]}"\n' if name in parents else "")
            + ('pubends = ["main"]\n' if name == "east" else "")
            for name, port in ports.items()
        )
        + '[thresholds]\nsilence = "50ms"\n'
    )

    async def story(_: Stage) -> None:
        whole = Process("--config", str(file), "--all")
        publisher = await connected(whole, ports["east"])
        await publisher.declare()
        subscriber = await connected(whole, ports["west"])
        await subscriber.subscribe()
        await subscriber.started()
        await publisher.publish(1, 10)
        assert (await subscriber.numbers(10))[0] == list(range(1, 11))
        await publisher.close()
        await subscriber.close()
        code, said = whole.end(signal.SIGTERM)
        assert code == DONE, said
        assert sum(line["text"] == "stopped" for line in said) == 3

    play(story)
