"""Both kinds of tables, each of which can crash, and how the tests fill them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tidemark.message.topic_selector import TopicSelector
from tidemark.storage.tables.memory_tables import MemoryTables
from tidemark.storage.tables.sqlite_tables import SqliteTables
from tidemark.storage.tables.subscription import SelectorVersion, SubscriptionRow
from tidemark.storage.tables.tables import SUBSCRIBERS, Tables
from tidemark.ticks import CheckpointToken


class OnDisk:
    """SQLite's tables; a crash is that the process is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tables = SqliteTables(path)

    def crash(self) -> Tables:
        self.tables.close()
        self.tables = SqliteTables(self.path)
        return self.tables


class InMemory:
    """Tables of the simulator."""

    def __init__(self) -> None:
        self.tables = MemoryTables()

    def crash(self) -> Tables:
        self.tables = self.tables.crash()
        return self.tables


def subscribe(tables: Tables, name: str = "audit") -> SubscriptionRow:
    start = CheckpointToken({"p1": 100})
    first = SelectorVersion(1, TopicSelector("trades.>", "price > 10"), start)
    row = SubscriptionRow(tables.bump(SUBSCRIBERS), name, "ada", 1, start, 99, (first,))
    tables.put_subscription(row)
    return row


def reselected(
    row: SubscriptionRow, wanted: TopicSelector, since: CheckpointToken, epoch: int = 1
) -> SubscriptionRow:
    """The row after its subscriber has changed its selector."""
    new = SelectorVersion(row.current.version + 1, wanted, since)
    return replace(row, epoch=epoch, history=(*row.history, new))


def seen(tables: Tables) -> object:
    rows = tables.subscriptions()
    return rows, [tables.released(row.id) for row in rows], tables.latest_delivered()


def filled(path: Path) -> Path:
    tables = SqliteTables(path)
    for number in range(200):
        row = subscribe(tables, f"subscriber {number}")
        tables.release(row.id, {"p1": number + 1})
    tables.commit()
    tables.close()
    return path
