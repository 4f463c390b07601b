"""Every example does what it says, against real brokers."""

from __future__ import annotations

import ast
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from tests.cli.live_broker import Spoken
from tests.examples.programs import EXAMPLES, broker, run, started
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync

LINES_MAX = 60
TRADE = "[symbol: string, price: double, qty: int]"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that parks clients soon."""
    with broker(
        tmp_path_factory.mktemp("broker"), "--no-pipeline", "--set", "subscribers.rest=200ms"
    ) as found:
        yield found


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_small_and_says_how_to_run_it(path: Path) -> None:
    text = path.read_text()
    said = ast.get_docstring(ast.parse(text))
    assert said is not None
    assert f"python examples/{path.name}" in said
    assert "tidemark://127.0.0.1:7676" in text
    assert text.count("\n") <= LINES_MAX


def test_every_example_is_run_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    missing = {path.stem for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tests}
    # There is no PostgreSQL to run this one against; mypy reads it like all examples.
    assert missing == {"postgres_transaction"}


def test_publish_and_subscribe(url: str, tmp_path: Path) -> None:
    lines = run("quickstart.py", url, directory=tmp_path)
    assert [line.split()[0] for line in lines] == ["published"] * 3 + ["received"] * 2
    assert "10.5" in lines[3]
    assert "11.5" in lines[4]


def test_totals_in_a_database_are_right_although_the_program_is_killed(url: str, tmp_path: Path) -> None:
    totals = tmp_path / "totals.db"

    def total() -> list[tuple[str, int]]:
        with sqlite3.connect(totals) as database:
            return database.execute("SELECT symbol, qty FROM totals").fetchall()

    with sync.connect(url) as tm:
        tm.create_topic("trades", TRADE)
        for kills in range(3):
            with started("sqlite_transaction.py", str(totals), url, directory=tmp_path) as program:
                assert program.line() == "waiting for trades\n"
                tm.publish_many("trades", [{"symbol": "ACME", "price": 11.0, "qty": 1}] * 40)
                if kills < 2:
                    sleep(0.02)  # and then it is killed, somewhere in the middle
                else:
                    eventually(lambda: total() == [("ACME", 120)], total)


def test_a_queue_bills_every_order_once_however_often_it_is_started(url: str, tmp_path: Path) -> None:
    assert run("work_queue.py", url, directory=tmp_path) == ["ann owes 30", "bob owes 12", "cid owes 7"]
    assert run("work_queue.py", url, directory=tmp_path) == []
    with sqlite3.connect(tmp_path / "billing.db") as database:
        assert database.execute("SELECT * FROM bills ORDER BY amount").fetchall() == [
            ("cid", 7), ("bob", 12), ("ann", 30),
        ]  # fmt: skip


def test_a_subscriber_is_called_for_events_that_come_while_it_is_parked(url: str, tmp_path: Path) -> None:
    def is_parked(tm: sync.Client) -> bool:
        return [each["name"] for each in tm.ask("connections")] == [tm.name]

    with started("listen.py", url, directory=tmp_path) as program, sync.connect(url) as tm:
        assert program.line() == "waiting for alarms\n"
        for number in (1, 2, 3):
            eventually(lambda: is_parked(tm))
            tm.publish("alarms", {"text": f"smoke {number}"})
            assert program.line() == f"alarm {number}: smoke {number}\n"
        assert program.close() == 0


def test_a_subscriber_comes_back_at_another_broker_of_an_overlay(tmp_path: Path) -> None:
    topology = (EXAMPLES / "overlay.toml").read_text()
    ports = dict(zip((7676, 7686, 7696), free_ports(3), strict=True))
    for known, free in ports.items():
        topology = topology.replace(f":{known}", f":{free}")
    (tmp_path / "overlay.toml").write_text(topology)
    overlay = Spoken("up", "--no-pipeline", "--topology", "overlay.toml", "--json", cwd=tmp_path)
    try:
        assert len(json.loads(overlay.line())["brokers"]) == 3
        urls = [f"tidemark://127.0.0.1:{port}" for port in ports.values()]
        for each in urls:  # its process is started, and may not listen yet
            sync.connect(each, connect_timeout=PATIENCE_SECONDS, wait_for_broker=True).close()
        assert run("overlay.py", *urls, directory=tmp_path) == [
            "west1: 31 degrees",
            "west1: 35 degrees",
            "west2: 38 degrees",
            "west2: 33 degrees",
        ]
    finally:
        overlay.process.terminate()
        overlay.close()
