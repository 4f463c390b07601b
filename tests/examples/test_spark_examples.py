"""The Spark examples, on one session, against brokers in processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.examples.programs import broker, loaded
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import Event, sync
from tidemark.spark.archive.state import load_state

TRADE = "[symbol: string, price: double, qty: int]"


def publish(tm: sync.Client, count: int) -> None:
    tm.publish_many("trades", [{"symbol": "ACME", "price": float(n), "qty": n} for n in range(count)])


@pytest.mark.spark
def test_history_and_a_query_from_source_to_sink_read_archive_and_broker(spark: Any, tmp_path: Path) -> None:
    archive = tmp_path / "data" / "archive"
    with broker(tmp_path, "--set", "archive.interval=100ms") as url, sync.connect(url) as tm:
        tm.create_topic("trades", TRADE)
        tm.create_topic("amounts", "[symbol: string, amount: double]")
        publish(tm, 20)
        eventually(lambda: load_state(archive).events >= 20)
        publish(tm, 20)
        assert loaded("spark_history.py").main(spark, url, str(archive)) == {"ACME": 18}
        with tm.subscribe("amounts", durable="amounts") as sub:
            for _ in range(2):  # the second time there is nothing to do
                loaded("spark_source_to_sink.py").main(spark, url, str(archive), str(tmp_path / "checkpoint"))
            found = [sub.next(PATIENCE_SECONDS) for _ in range(18)]
            assert sub.next(0.5) is None
        amounts = sorted(each["amount"] for each in found if isinstance(each, Event))
        assert amounts == sorted([float(n * n) for n in range(11, 20)] * 2)
