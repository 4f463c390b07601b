"""Contexts are kept in one file, which a crash leaves whole and nobody but its owner reads."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.storage.sync_recorder import record_syncs
from tidemark.admin.contexts import FILE, Context, load_contexts, save_contexts


def test_contexts_are_synced_before_they_take_the_place_of_the_former_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_contexts({"here": Context("tidemark://127.0.0.1:7676")}, tmp_path)
    # A crash has left this one, and anybody may read it.
    (tmp_path / f"{FILE}.new").write_text("half of someth")
    synced = record_syncs(monkeypatch)
    both = {"here": Context("tidemark://127.0.0.1:7676"), "there": Context("tidemark://10.0.0.1:1")}
    path = save_contexts(both, tmp_path)
    assert synced == [tmp_path / f"{FILE}.new", tmp_path]
    assert load_contexts(tmp_path) == both
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
