"""The chapters on the archive and on history say what works: their programs run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import live_node
from tidemark import sync

MANUAL = Path(__file__).parents[3] / "docs" / "spark.md"


def programs(title: str) -> list[str]:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", MANUAL.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return re.findall(r"```python\n(.*?)```", found[1], re.DOTALL)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_programs_of_archive_and_history_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    with live_node(tmp_path, **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        tm.create_topic("trades", "[symbol: string, price: double, qty: int?]")
        tm.publish_many("trades", [{"symbol": "ACME", "price": float(n), "qty": n} for n in range(100)])
        for program in programs("The archive") + programs("History"):
            here = program.replace("tidemark://127.0.0.1:7676", node.url).replace("/tmp/demo", str(tmp_path))
            exec(compile(here, str(MANUAL), "exec"), names)
        assert names["trades"].count() == 90
    assert "100 events up to" in capsys.readouterr().out
