"""Deep catch-up with a real broker and a real archive: nobody gets a gap while the archive has the events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tidemark
from tests.live_node import LiveNode, live_node
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.node import node as node_module
from tidemark.spark.archive.archive import Archive
from tidemark.spark.deep import shared_scan
from tidemark.spark.deep import waves as deep_waves
from tidemark.spark.deep.service import DeepService
from tidemark.spark.deep.thread import DeepThread
from tidemark.ticks import TICK_MIN, CheckpointToken

#: A pubend lets go beyond the least that it may be told to hold; so does the log, in whole segments.
LITTLE = {"retention.archive": "true", "retention.max_bytes": "64KiB", "storage.segment": "64KiB"}
#: Events of one turn: more than a pubend holds.
MANY = 400
FILL = "x" * 500

WithGaps = sync.Subscription[tidemark.Event | tidemark.Gap]


@dataclass
class World:
    """A broker with little room, and an archive that a test moves on round by round."""

    node: LiveNode
    tm: sync.Client
    archive: Archive
    published: list[tuple[int, int]] = field(default_factory=list)

    def publish(self, count: int = MANY) -> None:
        first = len(self.published)
        values = [{"n": n, "kind": n % 7, "fill": FILL} for n in range(first, first + count)]
        ticks = self.tm.publish_many("news.local", values)
        self.published += [(n, tick or 0) for n, tick in enumerate(ticks, first)]

    def archived(self) -> None:
        """Everything is in the archive, and the broker has let most of it go."""
        while self.archive.round() is not None:
            pass
        last = self.published[-1][1]
        eventually(lambda: self.lost > last - (last - self.published[0][1]) // 2)

    @property
    def lost(self) -> int:
        lost = self.tm.ask("pubends")[0]["lost"]
        return TICK_MIN if lost is None else int(lost)


@contextmanager
def world(tmp_path: Path, **more: Any) -> Iterator[World]:
    with ExitStack() as stack:
        node = stack.enter_context(live_node(tmp_path, **LITTLE))
        tm = stack.enter_context(sync.connect(node.url))
        archive = stack.enter_context(Archive(node.url, tmp_path / "archive", **more))
        tm.create_topic("news.local", "[n: int, kind: int, fill: string]")
        yield World(node, tm, archive)


@contextmanager
def serving(at: World, **options: Any) -> Iterator[DeepService]:
    service = DeepService([at.node.url], at.archive.path, **options)
    with DeepThread(service):
        yield service


def subscribe(at: World, topic: str, where: str = "", **options: Any) -> WithGaps:
    """A subscription that hands out gaps like events."""
    return at.tm.subscribe(topic, where, gaps=True, **options)


def read(
    sub: WithGaps, last: int, patience: float = PATIENCE_SECONDS
) -> tuple[list[int], list[tidemark.Gap]]:
    """The numbers of the events up to `last`, and the gaps."""
    found: list[int] = []
    gaps: list[tidemark.Gap] = []
    while not found or found[-1] < last:
        item = sub.next(patience)
        assert item is not None, f"nothing came after {found[-1:]}"
        if isinstance(item, tidemark.Gap):
            gaps.append(item)
        else:
            found.append(item["n"])
    return found, gaps


def wanted(at: World, kind: int | None = None, since: int = 0) -> list[int]:
    return [n for n, _ in at.published[since:] if kind is None or n % 7 == kind]


def test_those_who_return_and_those_who_start_in_the_past_are_healed_by_one_scan(tmp_path: Path) -> None:
    with world(tmp_path) as at:
        for kind in range(5):
            at.tm.subscribe("news.>", f"kind = {kind}", durable=f"old{kind}").close()
        at.publish()
        at.archived()
        at.publish(100)
        with ExitStack() as stack:
            back = {
                kind: stack.enter_context(subscribe(at, "news.>", f"kind = {kind}", durable=f"old{kind}"))
                for kind in range(5)
            }
            late = stack.enter_context(subscribe(at, "news.*", durable="late", start="earliest"))
            eventually(lambda: at.tm.ask("metrics")["recalls_waiting"] == 6)
            with serving(at) as service:
                for kind, sub in back.items():
                    expected = wanted(at, kind)
                    assert read(sub, expected[-1]) == (expected, [])
                assert read(late, at.published[-1][0]) == (wanted(at), [])
                at.publish(10)
                assert read(late, at.published[-1][0]) == (wanted(at, since=MANY + 100), [])
                assert service.counters["scans"] == 1
                assert at.tm.ask("metrics")["recalls_waiting"] == 0


def test_a_pfs_that_is_gone_is_made_up_for_from_the_archive(tmp_path: Path) -> None:
    with world(tmp_path) as at:
        for kind in range(3):
            at.tm.subscribe("news.>", f"kind = {kind}", durable=f"old{kind}").close()
        at.publish()
        at.archived()
        at.publish(100)
        at.node.stop()
        for file in (tmp_path / "data" / "pfs").glob("*.segment"):
            file.unlink()
        at.node.start()
        with serving(at) as service, ExitStack() as stack:
            for kind in range(3):
                sub = stack.enter_context(subscribe(at, "news.>", f"kind = {kind}", durable=f"old{kind}"))
                expected = wanted(at, kind)
                assert read(sub, expected[-1]) == (expected, [])
            assert service.counters["scans"] >= 1


def test_a_gap_is_told_only_where_the_archive_has_let_go_too(tmp_path: Path) -> None:
    with world(tmp_path) as at:
        at.tm.subscribe("news.>", durable="old").close()
        at.publish()
        at.archived()
        at.publish()
        at.archived()
        horizon = at.published[MANY // 2][1]
        at.archive.save(replace(at.archive.state, released=horizon))
        with serving(at), subscribe(at, "news.>", durable="old") as sub:
            found, gaps = read(sub, at.published[-1][0])
            assert found == wanted(at, since=MANY // 2 + 1)
            assert [each.upto for each in gaps] == [horizon]
            assert gaps[0].base < at.published[0][1]


def test_a_start_in_the_past_counts_once_and_is_exact(tmp_path: Path) -> None:
    with world(tmp_path) as at:
        at.publish()
        at.archived()
        first, tick = at.published[100]
        moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=tick)
        with serving(at):
            with subscribe(at, "news.*", "kind < 5", durable="one", start=moment) as sub:
                expected = [n for n in wanted(at, since=first) if n % 7 < 5]
                assert read(sub, expected[-1]) == (expected, [])
            with subscribe(at, "news.*", durable="two", start=CheckpointToken({"main": tick})) as sub:
                assert read(sub, at.published[-1][0]) == (wanted(at, since=first + 1), [])
            at.publish(14)
            # It is there now, and goes on where it was.
            with subscribe(at, "news.*", "kind < 5", durable="one", start="earliest") as sub:
                rest = [n for n in wanted(at, since=MANY) if n % 7 < 5]
                assert read(sub, rest[-1]) == (rest, [])


def test_a_slow_subscriber_takes_what_it_can_and_holds_nobody_up(tmp_path: Path) -> None:
    with world(tmp_path) as at:
        for name in ("slow", "quick"):
            at.tm.subscribe("news.>", durable=name).close()
        at.publish(4 * MANY)
        at.archived()
        with serving(at) as service, ExitStack() as stack:
            little = stack.enter_context(subscribe(at, "news.>", durable="slow", window_bytes_max=20_000))
            quick = stack.enter_context(subscribe(at, "news.>", durable="quick"))
            assert read(quick, at.published[-1][0]) == (wanted(at), [])
            assert read(little, at.published[-1][0]) == (wanted(at), [])
            assert service.counters["behind"] == 0


def test_who_waits_for_a_pipeline_can_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "STUCK_LOOKS", 0)
    with world(tmp_path) as at:
        at.tm.subscribe("news.>", durable="old").close()
        at.publish()
        at.archived()
        with subscribe(at, "news.>", durable="old") as sub:
            eventually(
                lambda: at.tm.ask("subscription", name="old")["pubends"]["main"]["recall"] == "waiting"
            )
            eventually(
                lambda: any("no pipeline is connected" in each for each in at.tm.ask("status")["alarms"])
            )
            assert at.tm.ask("metrics")["pipelines"] == 0
            with serving(at):
                assert read(sub, at.published[-1][0]) == (wanted(at), [])
                assert at.tm.ask("metrics")["pipelines"] == 1
            eventually(lambda: not at.tm.ask("status")["alarms"])


@pytest.mark.spark
def test_a_scan_on_spark_gives_what_one_in_this_process_gives(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[int] = []

    @contextmanager
    def sessions() -> Iterator[Any]:
        jobs.append(1)
        yield spark

    monkeypatch.setattr(deep_waves, "SPARK_BYTES_MIN", 1)
    monkeypatch.setattr(shared_scan, "SLICE_BYTES", 1_000)
    monkeypatch.setattr(shared_scan, "FIRST_WAVE_BYTES", 4_000)
    with world(tmp_path) as at:
        for kind in range(3):
            at.tm.subscribe("news.>", f"kind = {kind}", durable=f"old{kind}").close()
        for _ in range(4):
            at.publish()
            at.archived()
        with ExitStack() as stack:
            back = {
                kind: stack.enter_context(subscribe(at, "news.>", f"kind = {kind}", durable=f"old{kind}"))
                for kind in range(3)
            }
            eventually(lambda: at.tm.ask("metrics")["recalls_waiting"] == 3)
            stack.enter_context(serving(at, sessions=sessions))
            for kind, sub in back.items():
                expected = wanted(at, kind)
                assert read(sub, expected[-1]) == (expected, [])
    assert jobs
