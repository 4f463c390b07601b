"""Membership: which topology wins, what is told to whom, and what is on disk before anybody acts on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tidemark.broker.effects import RecoveredPubend
from tidemark.errors import (
    ConfigError,
    DiskFullError,
    StaleTopologyError,
    StorageError,
    TidemarkError,
    UnknownFormatError,
)
from tidemark.message.codec.rest import Rest, no_rest
from tidemark.node.config.units import HostPort
from tidemark.node.disk.data_directory import OVERLAY_FILE, DataDirectory
from tidemark.node.topology.membership import Membership
from tidemark.node.topology.text import to_text
from tidemark.node.topology.text_reading import AT_ONCE_CHARACTERS_MAX, WAITING_MAX, TextReading
from tidemark.node.topology.topology import BrokerPlacement, Bundle, Topology
from tidemark.wire.frames import Overlay

ONE = BrokerPlacement("b1", "b1", HostPort("127.0.0.1", 1), ("main",))
TWO = BrokerPlacement("b2", "b2", HostPort("127.0.0.1", 2))
BOTH = Bundle("both", ("b2", "b1"))


def topology(*more: BrokerPlacement, version: int = 0) -> Topology:
    bundles = [Bundle(each.name, (each.cell, "b1")) for each in more]
    return Topology.build([ONE, *more], bundles, version=version)


class Member:
    """A membership that writes down what happens."""

    def __init__(self, first: Topology) -> None:
        self.log: list[str] = []
        self.said: list[Overlay] = []
        self.reasons: list[str] = []
        self.counters = {"frames_refused": 0}
        self.is_full = self.is_broken = False
        self.membership = Membership(first, self._save, self._adopt, self.counters)

    async def _save(self, topology: Topology) -> Mapping[str, RecoveredPubend]:
        await asyncio.sleep(0)
        if self.is_broken:
            raise ZeroDivisionError("nobody has thought of this")
        if self.is_full:
            raise DiskFullError("no space", path="overlay.toml")
        self.log.append(f"saved {topology.version}")
        return {}

    def _adopt(self, topology: Topology, states: Mapping[str, RecoveredPubend]) -> None:
        assert not states
        self.log.append(f"adopted {topology.version}")

    def refused(self, code: str, reason: str) -> None:
        self.reasons.append(f"{code}: {reason}")

    async def hear(self, frame: Overlay) -> None:
        self.membership.heard(frame, self.said.append, self.refused)
        for _ in range(10):
            await asyncio.sleep(0)


def told(topology: Topology) -> Overlay:
    return Overlay(topology.version, topology.digest, to_text(topology))


def test_a_newer_topology_is_on_disk_before_it_is_acted_on_and_an_older_one_is_answered() -> None:
    async def story() -> None:
        member = Member(topology())
        newer = topology(TWO, version=4)
        await member.hear(Overlay(4, newer.digest))
        assert member.log == []  # only its version was said: the rest follows
        await member.hear(told(newer))
        await member.hear(told(newer))
        assert member.log == ["saved 4", "adopted 4"]
        assert member.said == []
        await member.hear(Overlay(3, "old"))
        assert member.said == [told(newer)]

    asyncio.run(story())


def test_files_that_differ_are_not_taken_from_each_other() -> None:
    async def story() -> None:
        member = Member(topology())
        await member.hear(told(topology(TWO)))
        assert (member.log, member.said) == ([], [])

    asyncio.run(story())


def test_of_two_changes_at_once_all_agree_on_one() -> None:
    async def story() -> None:
        other = replace(TWO, name="b3", cell="b3")
        changes = [topology(TWO, version=1), topology(other, version=1)]
        members = [Member(topology()) for _ in changes]
        for member, change in zip(members, changes, strict=True):
            await member.hear(told(change))
        for member, change in zip(members, reversed(changes), strict=True):
            await member.hear(told(change))
        assert len({member.membership.topology.digest for member in members}) == 1
        assert sorted(len(member.log) for member in members) == [2, 4]

    asyncio.run(story())


def test_of_two_proposals_at_once_one_is_told_that_it_came_too_late() -> None:
    async def story() -> None:
        member = Member(topology())
        changes = [topology(replace(TWO, name=name, cell=name)) for name in ("b2", "b3", "b4")]
        proposals = (member.membership.propose(to_text(each), 0) for each in changes)
        found = await asyncio.gather(*proposals, return_exceptions=True)
        (taken,) = (each for each in found if isinstance(each, Topology))
        assert taken.digest == member.membership.topology.digest
        assert [type(each) for each in found].count(StaleTopologyError) == 2
        assert member.log == ["saved 1", "adopted 1"]

    asyncio.run(story())


def test_whoever_proposes_what_another_broker_says_meanwhile_is_told_that_it_holds() -> None:
    async def story() -> None:
        member = Member(topology())
        change = topology(replace(TWO, name="b2", cell="b2"), version=1)
        found = await asyncio.gather(
            member.membership.take(change),
            member.membership.propose(to_text(change), 0),
            member.membership.propose(to_text(change), 0),
        )
        assert [each.digest for each in found[1:]] == [change.digest, change.digest]
        assert member.log == ["saved 1", "adopted 1"]

    asyncio.run(story())


def test_a_topology_that_cannot_be_kept_is_not_acted_on_and_may_come_again() -> None:
    async def story() -> None:
        member = Member(topology())
        member.is_full = True
        await member.hear(told(topology(TWO, version=1)))
        await member.hear(Overlay(2, "x", "[brokers"))
        assert member.log == []
        assert member.membership.topology.version == 0
        member.is_full = False
        await member.hear(told(topology(TWO, version=1)))
        assert member.log == ["saved 1", "adopted 1"]

    asyncio.run(story())


def test_the_data_directory_keeps_the_last_topology(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert directory.topology() is None
    for version in (1, 7):
        directory.save_topology(topology(TWO, version=version))
    directory.close()
    directory = DataDirectory(tmp_path)
    found = directory.topology()
    assert found is not None
    assert (found.version, found.layout()) == (7, topology(TWO).layout())
    whole = (tmp_path / OVERLAY_FILE).read_bytes()
    without_check = b"\n".join(line for line in whole.split(b"\n") if not line.startswith(b"# check"))
    (tmp_path / OVERLAY_FILE).write_bytes(without_check)
    assert directory.topology() == found
    for at in range(0, len(whole), 5):
        (tmp_path / OVERLAY_FILE).write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            assert directory.topology() == found
        except (ConfigError, StorageError):
            continue
    (tmp_path / OVERLAY_FILE).write_text("[brokers]\n")
    with pytest.raises(UnknownFormatError, match="not with its version"):
        directory.topology()
    directory.close()


def test_an_error_that_a_topology_causes_refuses_who_brought_it_and_is_counted() -> None:
    async def story() -> None:
        member = Member(topology())
        member.is_broken = True
        await member.hear(told(topology(TWO, version=4)))
        assert member.reasons == ["frame: cannot be handled: ZeroDivisionError: nobody has thought of this"]
        assert member.counters == {"frames_refused": 1}
        member.is_broken = False
        await member.hear(told(topology(TWO, version=4)))
        assert member.log == ["saved 4", "adopted 4"]

    asyncio.run(story())


def test_a_long_text_is_parsed_on_a_thread_one_after_the_other_and_few_wait() -> None:
    threads: list[int] = []
    at_once = 0

    def parse(text: str, version: int, *, rest: Rest = no_rest) -> int:
        nonlocal at_once
        at_once += 1
        assert at_once == 1
        threads.append(threading.get_ident())
        assert (rest is no_rest) is (text == "short"), "only the thread rests"
        at_once -= 1
        return version

    async def story() -> None:
        reading = TextReading(parse)
        assert await reading.read("short", 7) == 7
        assert threads == [threading.get_ident()]
        found = await asyncio.gather(
            *(reading.read("x" * (AT_ONCE_CHARACTERS_MAX + 1), at) for at in range(WAITING_MAX + 2)),
            return_exceptions=True,
        )
        assert found[:WAITING_MAX] == [*range(WAITING_MAX)]
        assert all(isinstance(each, TidemarkError) for each in found[WAITING_MAX:])
        assert threading.get_ident() not in threads[1:]
        assert await reading.read("x" * (AT_ONCE_CHARACTERS_MAX + 1), 9) == 9

    asyncio.run(story())
