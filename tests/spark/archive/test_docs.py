"""The chapters on the archive and on history say what works: their programs run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live_node import live_node
from tests.spark.manual import MANUAL, programs
from tidemark import sync


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_programs_of_archive_and_history_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    with live_node(tmp_path, **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        tm.create_topic("trades", "[symbol: string, price: double, qty: int?]")
        tm.publish_many("trades", [{"symbol": "ACME", "price": float(n), "qty": n} for n in range(100)])
        for program in programs("Other tools", "History", "The archive as it was"):
            here = program.replace("tidemark://127.0.0.1:7676", node.url).replace("/tmp/demo", str(tmp_path))
            exec(compile(here, str(MANUAL), "exec"), names)
        assert names["trades"].count() == 90
    assert "100 events up to" in capsys.readouterr().out
