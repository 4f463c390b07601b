"""The chapter on deep catch-up says what works: its program runs."""

from __future__ import annotations

from pathlib import Path

from tests.live_node import live_node
from tests.spark.manual import MANUAL, programs
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.spark.archive.archive import Archive
from tidemark.spark.deep.service import DeepService
from tidemark.spark.deep.thread import DeepThread
from tidemark.ticks import TICK_MIN


def test_the_program_of_deep_catch_up_runs(tmp_path: Path) -> None:
    (program,) = programs("Deep catch-up")
    with live_node(tmp_path, **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        tm.create_topic("trades", "[symbol: string, price: double]")
        tm.publish_many("trades", [{"symbol": "ACME", "price": float(n)} for n in range(100)])
        with Archive(node.url, tmp_path / "archive") as archive:
            while archive.round():
                pass
        # Nobody holds them any more: only the archive has them.
        (pubend,) = tm.ask("pubends")
        with sync.connect(node.url) as other:
            while (other.ask("pubends")[0]["lost"] or TICK_MIN) < pubend["last_event"]:
                pass
        with DeepThread(DeepService([node.url], tmp_path / "archive")):
            exec(compile(program, str(MANUAL), "exec"), {"tm": tm})
        assert tm.ask("metrics", timeout=PATIENCE_SECONDS)["recalls"] == 1
