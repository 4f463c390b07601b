"""Which files and directories a piece of code has synced, in order, by path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def record_syncs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A list that grows by a path with every sync; the path is the one that the file had at that moment."""
    synced: list[Path] = []

    def recorded(name: str) -> None:
        sync = getattr(os, name)

        def record(descriptor: int) -> None:
            synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
            sync(descriptor)

        monkeypatch.setattr(os, name, record)

    recorded("fsync")
    recorded("fdatasync")
    return synced
