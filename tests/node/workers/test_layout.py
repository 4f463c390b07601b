"""Workers: several brokers in place of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.sync_recorder import record_syncs
from tidemark.errors import ConfigError
from tidemark.node.config.loading import brokers_of, load
from tidemark.node.workers.layout import lay_out


def test_each_worker_has_a_pubend_an_address_and_a_directory(tmp_path: Path) -> None:
    file = lay_out(str(tmp_path / "data"), "127.0.0.1:9000", 3, {"storage.durability": "os"})
    assert brokers_of(file) == ("worker-1", "worker-2", "worker-3")
    third = load(file, broker="worker-3")
    assert str(third.broker.listen) == "127.0.0.1:9020"
    assert third.broker.pubends == ("worker-3",)
    assert third.storage.durability == "os"
    assert third.storage.data_dir == str(tmp_path / "data" / "worker-3")
    assert third.topology.neighbours("worker-1") == ("worker-2", "worker-3")


def test_there_may_be_more_the_next_time_and_never_fewer(tmp_path: Path) -> None:
    lay_out(str(tmp_path), "127.0.0.1:9000", 2, {})
    file = lay_out(str(tmp_path), "127.0.0.1:9000", 3, {})
    assert len(brokers_of(file)) == 3
    with pytest.raises(ConfigError, match="3 workers have data"):
        lay_out(str(tmp_path), "127.0.0.1:9000", 2, {})


def test_a_number_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="between 1 and 64"):
        lay_out(str(tmp_path), "127.0.0.1:9000", 65, {})


def test_the_topology_of_the_workers_is_on_disk_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = record_syncs(monkeypatch)
    file = lay_out(str(tmp_path), "127.0.0.1:9000", 2, {})
    assert synced == [file.with_name("workers.toml.new"), tmp_path]
