"""Clusters of local processes share a directory of logs, which the last one that runs clears."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from tidemark.lab.processes.engines import local_cluster


def test_the_last_cluster_that_ends_removes_what_all_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "__init__.py"))
    with ExitStack() as first, ExitStack() as second:
        assert first.enter_context(local_cluster(3, 2, 512)) == "local-cluster[3,2,512]"
        second.enter_context(local_cluster())
        for name in ("app-1", "app-2"):
            (tmp_path / "work" / name / "0").mkdir(parents=True)
        first.close()
        assert len(list((tmp_path / "work").glob("app-*/0"))) == 2, "the executors of the other work there"
        second.close()
        assert not list((tmp_path / "work").glob("app-*"))
