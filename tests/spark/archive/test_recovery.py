"""An archive whose own notes are damaged: the tables say how far it got, and nothing is doubled or lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
from tidemark import sync
from tidemark.errors import DamagedError
from tidemark.spark.archive import archive as archive_module
from tidemark.spark.archive import reader as archive_reader
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.compaction import ArchiveRetention
from tidemark.spark.archive.recovery import recovered
from tidemark.spark.archive.state import ArchiveState, load_state
from tidemark.spark.archive.table import ArchiveTable
from tidemark.ticks import TICK_MAX, TICK_MIN


class Place:
    """A broker and its archive."""

    def __init__(self, node: LiveNode, tm: sync.Client, path: Path) -> None:
        self.url = node.url
        self.path = path
        self.state = path / "_archive" / "state.json"
        self._tm = tm
        self.ticks: list[int] = []

    def publish(self, *roots: str) -> None:
        for root in roots:
            found = self._tm.publish_many(f"{root}.x", [{"n": n} for n in range(5)])
            self.ticks += [tick for tick in found if tick is not None]

    def archive(self, *roots: str, **more: Any) -> None:
        self.publish(*roots)
        with Archive(self.url, self.path, **more) as archive:
            while archive.round():
                pass

    def there(self) -> list[int]:
        found = archive_reader.read(self.path, "main", TICK_MIN, TICK_MAX)
        return [int(tick) for batch in found for tick in batch.ticks]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with live_node(tmp_path, **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        yield Place(node, tm, tmp_path / "archive")


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize("harm", [damaged, Path.unlink, lambda path: path.write_text("{}")])
def test_a_state_that_is_damaged_or_gone_is_made_again_from_the_tables(place: Place, harm: Any) -> None:
    place.archive("a", "b")
    place.archive("a")
    place.archive("b")
    before = load_state(place.path)
    harm(place.state)
    place.archive("a", "b")
    after = load_state(place.path)
    assert place.there() == place.ticks
    assert (after.events, dict(after.missing)) == (before.events + 10, {})
    # The broker has let go what was archived: had it been asked for again, it would be missing.
    assert archive_reader.gaps(place.path, "main", place.ticks[0] - 1, place.ticks[-1]) == []


def test_readers_are_told_who_mends_a_damaged_state(place: Place) -> None:
    place.archive("a")
    damaged(place.state)
    with pytest.raises(DamagedError, match=r"tidemark pipeline archive --path .*archive`"):
        archive_reader.covered(place.path)
    with Archive(place.url, place.path):
        assert place.there() == place.ticks
    assert (place.state.parent / "state.json.damaged").exists()


def test_a_state_out_of_a_backup_does_not_take_the_archive_back(place: Place) -> None:
    place.archive("a")
    old = place.state.read_text()
    for _ in range(3):
        place.archive("a", "b")
    place.state.write_text(old)
    place.archive("b")
    assert place.there() == place.ticks
    assert dict(load_state(place.path).missing) == {}


class CrashError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("tables", [1, 2])
def test_of_a_round_that_did_not_end_the_state_before_it_is_found(
    place: Place, monkeypatch: pytest.MonkeyPatch, tables: int
) -> None:
    place.archive("a", "b")
    place.archive("b")
    before = load_state(place.path)
    place.publish("a", "b")
    add = ArchiveTable.add
    calls: list[Any] = []

    def once(self: ArchiveTable, *arguments: Any) -> None:
        if len(calls) == tables:
            raise CrashError
        calls.append(1)
        add(self, *arguments)

    def crash(*_: Any) -> None:
        raise CrashError

    with monkeypatch.context() as patch, Archive(place.url, place.path) as archive:
        patch.setattr(ArchiveTable, "add", once)
        patch.setattr(archive_module, "save_state", crash)
        with pytest.raises(CrashError):
            archive.round()
    found = recovered(place.path)
    assert found.batch == before.batch + (tables == 2)
    assert found.covered["main"] > before.covered["main"] if tables == 2 else found.covered == before.covered
    place.state.unlink()
    place.archive("a")
    assert place.there() == place.ticks


def test_what_was_let_go_stays_a_gap_when_the_state_is_made_again(place: Place) -> None:
    place.archive("a")
    place.archive("a", retain=ArchiveRetention(bytes=1))
    released = load_state(place.path).released
    assert released is not None
    damaged(place.state)
    with Archive(place.url, place.path) as archive:
        assert archive.state.released == released
    assert archive_reader.gaps(place.path, "main", place.ticks[0] - 1, place.ticks[0])


def test_an_archive_without_tables_has_nothing_to_say(tmp_path: Path) -> None:
    assert recovered(tmp_path) == ArchiveState()


def test_damaged_topics_are_read_from_their_copy(place: Place) -> None:
    place.archive("a")
    damaged(place.state.with_name("topics.json"))
    assert place.there() == place.ticks
    shutil.copy(place.state.with_name("topics.json"), place.state.with_name("topics.copy.json"))
    with pytest.raises(DamagedError, match="from a copy"):
        place.there()
