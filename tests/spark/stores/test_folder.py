"""All kinds of folders keep one contract."""

from __future__ import annotations

import errno
import io
import pickle
from pathlib import Path

import pytest

from tests.spark.stores.faulty_proxy import FaultyProxy
from tests.spark.stores.s3_servers import SECRET, options_at
from tidemark.errors import ConfigError, DiskFailedError, DiskFullError, StorageError, StoreAwayError
from tidemark.spark.locations import folder_at, location, staging_beside
from tidemark.spark.stores import objects
from tidemark.spark.stores.folder import Folder
from tidemark.spark.stores.mounted import MountedFolder
from tidemark.spark.stores.probe import probe
from tidemark.spark.stores.ranged_file import AHEAD_BYTES, RangedFile
from tidemark.spark.stores.storage_options import checked_options, load_storage_options


@pytest.fixture(params=["mounted", "s3", "gcs", "azure"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    is_mounted = request.param == "mounted"
    found: Folder = folder_at(tmp_path / "x") if is_mounted else request.getfixturevalue(request.param)
    return pickle.loads(pickle.dumps(found))  # type: ignore[no-any-return]  # as it comes to a task


def names(folder: Folder) -> list[str]:
    return [each.name for each in folder.files()]


def test_a_file_is_replaced_read_listed_and_removed(folder: Folder) -> None:
    assert not folder.exists()
    assert (folder.files(), folder.folders(), folder.read("a")) == ([], [], None)
    folder.replace("a", b"one")
    folder.replace("a", b"two!")
    (folder / "below" / "deep%5F").replace("b", b"")
    assert folder.exists()
    assert folder.read("a") == b"two!"
    assert [(each.name, each.bytes) for each in folder.files()] == [("a", 4)]
    assert folder.folders() == ["below"]
    assert (folder / "below").folders() == ["deep%5F"]
    assert names(folder / "below" / "deep%5F") == ["b"]
    folder.remove("a")
    folder.remove("a")
    assert names(folder) == []
    folder.remove_all()
    folder.remove_all()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "Kein Platz mehr"), DiskFullError),
        (OSError(errno.EDQUOT, "Kein Platz mehr"), DiskFullError),
        (OSError(errno.EACCES, "Permission denied", "/data/quotas/a"), DiskFailedError),
        (OSError("Generic error: No space left on device (os error 28)"), DiskFullError),
        (OSError("Generic error: Permission denied (os error 13)"), DiskFailedError),
    ],
)
def test_a_full_disk_is_known_by_its_number_and_by_words_only_where_there_is_none(
    tmp_path: Path, error: OSError, kind: type[StorageError]
) -> None:
    with pytest.raises(StorageError) as caught, MountedFolder(tmp_path).errors():
        raise error
    assert type(caught.value) is kind


def test_of_two_that_make_a_file_one_does(folder: Folder) -> None:
    assert folder.create_once("a", b"mine")
    assert not folder.create_once("a", b"theirs")
    assert folder.create_once("a", b"mine")
    assert folder.read("a") == b"mine"
    assert names(folder) == ["a"]


def test_a_new_file_is_there_when_it_is_closed_and_not_when_it_is_discarded(folder: Folder) -> None:
    folder.make()
    data = bytes(range(256)) * 1024
    made = folder.create("a", private=True)
    made.stream.write(data)
    assert made.close() == len(data)
    folder.sync(["a"])
    with folder.open("a") as file:
        assert file.read(10) == data[:10]
        file.seek(-10, io.SEEK_END)
        assert file.read() == data[-10:]
    with folder.local_copy("a") as copy:
        assert copy.read() == data
    for is_closed in (False, True):
        lost = folder.create("b")
        lost.stream.write(b"x")
        if is_closed:
            lost.close()
        lost.discard()
    assert names(folder) == ["a"]
    with pytest.raises(FileNotFoundError):
        folder.open("b")


def test_an_object_is_replaced_only_if_nobody_else_has_replaced_it(store: Folder) -> None:
    assert store.read_tagged("a") is None
    assert store.replace_tagged("a", b"1", None)
    first = store.read_tagged("a")
    assert first is not None
    assert store.replace_tagged("a", b"2", first.tag)
    assert not store.replace_tagged("a", b"3", first.tag)
    assert not store.replace_tagged("gone", b"3", first.tag)
    assert store.read("a") == b"2"


def test_a_store_that_honours_conditions_may_hold_an_archive(store: Folder) -> None:
    assert probe(store) > 0
    assert store.files() == []


def test_a_lost_answer_to_a_conditional_put_is_no_failure(s3: Folder, proxy: FaultyProxy) -> None:
    proxy.once("cut after", "PUT", "/made")
    assert s3.create_once("made", b"1")
    found = s3.read_tagged("made")
    assert found is not None
    proxy.once("cut after", "PUT", "/made")
    assert s3.replace_tagged("made", b"2", found.tag)
    assert s3.read("made") == b"2"
    assert proxy.faults == 2


@pytest.mark.parametrize("fault", ["slow", "error", "cut before", "cut after"])
def test_a_failure_that_passes_is_not_noticed(s3: Folder, proxy: FaultyProxy, fault: str) -> None:
    for method, work in (
        ("PUT", lambda: s3.replace("a", b"data")),
        ("GET", lambda: s3.read("a")),
        ("GET", s3.files),
        ("HEAD", lambda: s3.open("a")),
    ):
        proxy.once(fault, method, "")  # type: ignore[arg-type]  # one of the faults
        work()
    assert s3.read("a") == b"data"
    assert proxy.faults == 4


def test_a_store_that_does_not_answer_is_away_and_no_secret_is_told(
    s3: Folder, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "RETRIES_MAX", 0)
    objects._store.cache_clear()
    proxy.fault = lambda *_: "error"
    for work in (lambda: s3.read("a"), s3.files, lambda: s3.replace("a", b""), lambda: s3.open("a")):
        with pytest.raises(StoreAwayError) as caught:
            work()
        assert s3.text in str(caught.value)
        assert SECRET not in str(caught.value)
    assert SECRET not in repr(s3) + str(s3) + s3.text
    objects._store.cache_clear()


def test_a_store_that_ignores_conditions_is_refused(s3: Folder, proxy: FaultyProxy) -> None:
    assert probe(s3) > 0
    assert names(s3) == []
    proxy.ignores_conditions = True
    with pytest.raises(ConfigError, match="ignores the conditions of a put"):
        probe(s3)
    assert names(s3) == []


def test_ranges_are_fetched_as_they_are_needed() -> None:
    data = bytes(range(256)) * 2_000
    fetched: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        fetched.append((start, end))
        return data[start:end]

    file = RangedFile(len(data), fetch)
    file.seek(-8, io.SEEK_END)
    assert file.read(8) == data[-8:]
    file.seek(-1_000, io.SEEK_END)
    assert file.read(900) == data[-1_000:-100]
    assert fetched == [(len(data) - AHEAD_BYTES, len(data))]
    file.seek(5)
    assert file.read(AHEAD_BYTES + 1) == data[5 : AHEAD_BYTES + 6]
    assert file.tell() == AHEAD_BYTES + 6
    buffer = bytearray(4)
    assert file.readinto(buffer) == 4
    assert buffer == data[AHEAD_BYTES + 6 : AHEAD_BYTES + 10]
    file.seek(0, io.SEEK_END)
    assert file.read() == b""


def test_what_a_user_writes_is_a_location() -> None:
    assert location("s3a://bucket//a/b/") == "s3://bucket/a/b"
    assert location("abfss://box@name.dfs.core.windows.net/a") == "abfss://box@name.dfs.core.windows.net/a"
    assert location("file:///a/b") == "/a/b"
    assert staging_beside("gs://bucket/check") == "gs://bucket/check/tidemark"
    assert folder_at("s3://bucket").at("a") == "s3://bucket/a"
    for wrong in ("hdfs://h/p", "s3://", "s3://bucket/a?versionId=1", "s3://bucket/../x", "gs://a@b/c", ""):
        with pytest.raises(ConfigError):
            location(wrong)


def test_storage_options_come_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    file = tmp_path / "s3.toml"
    file.write_text('aws_region = "here"\nAWS_ALLOW_HTTP = true\nmax_retries = 3\n')
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_storage_options(file)
    file.chmod(0o600)
    assert load_storage_options(file) == {"aws_region": "here", "aws_allow_http": "true", "max_retries": "3"}
    file.write_text(f"aws_secret_access_key = {SECRET}")
    with pytest.raises(ConfigError) as caught:
        load_storage_options(file)
    assert SECRET not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_storage_options(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="not a text"):
        checked_options({"a": ["b"]})


def test_an_option_that_no_store_knows_is_refused() -> None:
    options = {**options_at("http://127.0.0.1:1"), "aws_colour": "blue"}
    with pytest.raises((ConfigError, StorageError)):
        folder_at("s3://bucket/x", options).read("a")
