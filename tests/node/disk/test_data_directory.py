"""The data directory: made once, used by one, refused when it is something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.errors import DamagedError, DirectoryLockedError, UnknownFormatError
from tidemark.node.disk.data_directory import PARTS, DataDirectory, RestoredDirectory
from tidemark.persistence.restoration import Restoration


def test_the_first_start_makes_the_directory_and_the_next_finds_it(tmp_path: Path) -> None:
    for _ in range(2):
        directory = DataDirectory(tmp_path / "a" / "data")
        assert (directory.path / "version").read_text() == "tidemark data 1\n"
        assert all(directory.part(part).is_dir() for part in PARTS)
        directory.close()


def test_two_processes_cannot_use_it_at_once(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    with pytest.raises(DirectoryLockedError, match="in use by process"):
        DataDirectory(tmp_path)
    directory.close()
    DataDirectory(tmp_path).close()


def test_a_directory_of_another_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("tidemark data 2\n")
    with pytest.raises(UnknownFormatError, match="start the version that wrote it"):
        DataDirectory(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "version"]


@pytest.mark.parametrize("text", ["", "tidem", "tidemark datb 1\n", "tidemark data -\n"])
def test_a_version_that_no_broker_wrote_is_damage_with_what_to_put_back(tmp_path: Path, text: str) -> None:
    (tmp_path / "version").write_text(text)
    with pytest.raises(DamagedError, match="put a copy back"):
        DataDirectory(tmp_path)


def test_a_directory_that_has_lost_its_version_is_not_taken_for_another_programs(tmp_path: Path) -> None:
    DataDirectory(tmp_path).close()
    (tmp_path / "version").unlink()
    with pytest.raises(DamagedError, match="put a copy back"):
        DataDirectory(tmp_path)


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UnknownFormatError, match=r"thesis.tex"):
        DataDirectory(tmp_path)


def test_a_first_start_that_crashed_half_way_is_finished(tmp_path: Path) -> None:
    (tmp_path / "version.new").write_text("tide")
    DataDirectory(tmp_path).close()
    assert (tmp_path / "version").read_text() == "tidemark data 1\n"
    assert not (tmp_path / "version.new").exists()


def test_it_is_noticed_if_nothing_says_any_more_what_was_restored(tmp_path: Path) -> None:
    restored = RestoredDirectory(tmp_path / "data")
    restored.finish(Restoration(taken=1_700_000_000_000_000, generation=7, segment=3, ahead=5))
    restored.close()
    mark = tmp_path / "data" / "restored"
    kept = mark.read_bytes()
    mark.unlink()
    for _ in range(2):
        with pytest.raises(DamagedError, match="restore the backup again"):
            DataDirectory(tmp_path / "data")
    mark.write_bytes(kept)
    directory = DataDirectory(tmp_path / "data")
    assert directory.restoration() is not None
    directory.has_started()
    directory.close()
    directory = DataDirectory(tmp_path / "data")
    assert directory.restoration() is None
    directory.close()


def test_one_bit_of_what_was_restored_is_noticed(tmp_path: Path) -> None:
    restored = RestoredDirectory(tmp_path)
    given = Restoration(taken=1_700_000_000_000_000, generation=7, segment=3, ahead=5)
    restored.finish(given)
    restored.close()
    directory = DataDirectory(tmp_path)
    assert directory.restoration() == given
    path = tmp_path / "restored"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 1 << at % 8,)) + whole[at + 1 :])
        with pytest.raises(DamagedError, match="restore the backup again"):
            directory.restoration()
    for length in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedError, match="restore the backup again"):
            directory.restoration()
    path.write_bytes(whole)
    directory.has_started()
    assert directory.restoration() is None
    directory.close()
