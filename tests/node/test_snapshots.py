"""Snapshots of a running broker: what is asked of it for a backup."""

from __future__ import annotations

import shutil
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.live_node import LiveNode, live_node
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.admin.backups.make import back_up
from tidemark.admin.backups.restore import check_backup, restore_backup
from tidemark.errors import RefusedError
from tidemark.wire.answers import SNAPSHOT, SNAPSHOT_END, SNAPSHOT_READ, SnapshotFile


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LiveNode]:
    options = {"storage__segment": "64KiB", "thresholds__save": "20ms", "retention__min_retain": "0s"}
    with live_node(tmp_path, **options) as made:
        yield made


@pytest.fixture
def tm(node: LiveNode) -> Iterator[sync.Client]:
    with sync.connect(node.url) as client:
        yield client


def publish(tm: sync.Client, count: int) -> None:
    tm.publish_many("t", [{"n": number, "text": "x" * 300} for number in range(count)])


def test_a_snapshot_keeps_what_the_broker_lets_go_of(node: LiveNode, tm: sync.Client, tmp_path: Path) -> None:
    log = tmp_path / "data/log"
    sub = tm.subscribe("t", durable="s")
    for _ in range(10):
        publish(tm, 100)
    snapshot = tm.ask(SNAPSHOT)
    segments = [each for each in snapshot.files if each.name.startswith("log/0")]
    assert len(segments) > 3
    assert [each.is_final for each in segments] == [True] * (len(segments) - 1) + [False]
    for _ in range(1_000):
        event = sub.next(timeout=PATIENCE_SECONDS)
        assert event is not None
    sub.ack(sub.checkpoint)

    def gone() -> list[SnapshotFile]:
        publish(tm, 1)
        return [each for each in segments if not (log / Path(each.name).name).exists()]

    eventually(lambda: bool(gone()))
    segment = gone()[0]
    whole = b""
    while len(whole) < segment.bytes:
        piece = tm.ask(
            SNAPSHOT_READ,
            snapshot=snapshot.snapshot,
            file=segment.name,
            offset=len(whole),
            bytes=10_000,
        )
        whole += b64decode(piece.data)
    assert whole.startswith(b"TMSEGMNT")
    tm.ask(SNAPSHOT_END, snapshot=snapshot.snapshot)
    assert not (tmp_path / "data/snapshot").exists()
    made = back_up(node.url, tmp_path / "backups")
    assert made.damage == ()
    assert check_backup(tmp_path / "backups").files == made.files


def test_one_snapshot_is_taken_at_a_time_and_one_that_nobody_reads_ends(
    tm: sync.Client, tmp_path: Path
) -> None:
    with patch("tidemark.node.disk.snapshots.IDLE_SECONDS", 0.2):
        first = tm.ask(SNAPSHOT)
        with pytest.raises(RefusedError, match="another backup is being made"):
            tm.ask(SNAPSHOT)
        eventually(lambda: not (tmp_path / "data/snapshot").exists())
    with pytest.raises(RefusedError, match="the snapshot is over"):
        tm.ask(SNAPSHOT_READ, snapshot=first.snapshot, file="log/volume", offset=0, bytes=10)
    second = tm.ask(SNAPSHOT)
    assert second.snapshot != first.snapshot


@pytest.mark.parametrize(
    "arguments",
    [
        {"file": "../data/version", "offset": 0, "bytes": 10},
        {"file": "log/../../../etc/passwd", "offset": 0, "bytes": 10},
        {"file": "log/volume", "offset": -1, "bytes": 10},
        {"file": "log/volume", "offset": 0, "bytes": 2**60},
        {"file": "log/volume", "offset": "0", "bytes": 10},
        {"file": "log/volume"},
        {},
    ],
)
def test_only_files_of_the_snapshot_are_read(tm: sync.Client, arguments: dict[str, Any]) -> None:
    snapshot = tm.ask(SNAPSHOT)
    with pytest.raises(RefusedError):
        tm.ask("snapshot_read", snapshot=snapshot.snapshot, **arguments)
    assert tm.ask("status")["state"] == "running"


def test_a_broker_that_stops_or_starts_leaves_no_snapshot(node: LiveNode, tmp_path: Path) -> None:
    left = tmp_path / "data/snapshot"
    with sync.connect(node.url) as tm:
        tm.ask(SNAPSHOT)
    assert left.exists()
    node.stop()
    assert not left.exists()
    left.mkdir()
    node.start()
    assert not left.exists()


def test_a_witness_on_another_disk_that_knows_more_does_not_keep_a_restored_broker_from_starting(
    tmp_path: Path,
) -> None:
    data, place = tmp_path / "data", tmp_path / "backups"
    with live_node(tmp_path, storage__witness=str(tmp_path / "elsewhere")) as node:
        with sync.connect(node.url) as tm, tm.subscribe("t", durable="s", gaps=True) as sub:
            publish(tm, 3)
            back_up(node.url, place)
            publish(tm, 2)
            assert sub.next(PATIENCE_SECONDS) is not None
        node.stop()
        shutil.rmtree(data)
        restore_backup(place, data)
        for _ in range(2):
            node.start()
            with sync.connect(node.url) as tm:
                life = tm.ask("status")
                assert life["incarnation"] > 1_000
            node.stop()
        node.start()
        assert not (data / "restored").exists()
        with sync.connect(node.url) as tm, tm.subscribe("t", durable="s", gaps=True) as sub:
            publish(tm, 1)
            came = [sub.next(PATIENCE_SECONDS) for _ in range(4)]
        assert [type(each).__name__ for each in came] == ["Event", "Event", "Event", "Gap"]
