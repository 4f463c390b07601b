"""The rows of the tables as SQLite keeps them, each with its own checksum."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from zlib import crc32

from tidemark.errors import TokenError
from tidemark.message.topic_selector import TopicSelector
from tidemark.storage.tables.subscription import SelectorVersion, SubscriptionRow
from tidemark.storage.tables.tables import PfsMark, Positions, TableRows, TopicRow
from tidemark.ticks import TICK_LAST, CheckpointToken, nearest_position
from tidemark.ticks.token_text import decode

#: The columns of one row in the order of SCHEMA, without the checksum.
Row = tuple[Any, ...]

#: The numbers of release rows end here, as they do on the wire.
SEQUENCE_MAX = 2**62 - 1
#: Tokens that are remembered while the tables are read.
TOKENS_PARSED_MAX = 1 << 16

#: table -> its columns; those of the key come first and end with KEY
SCHEMA: dict[str, tuple[str, ...]] = {
    "subscriptions": (
        "id INTEGER KEY", "name TEXT", "principal TEXT", "epoch INTEGER", "start TEXT", "created INTEGER"
    ),
    "selectors": (
        "subscriber INTEGER KEY", "version INTEGER KEY", "pattern TEXT", "selector TEXT", "since TEXT"
    ),
    "released": ("subscriber INTEGER KEY", "pubend TEXT KEY", "tick INTEGER"),
    "tokens": ("subscriber INTEGER KEY", "pubend TEXT KEY", "tick INTEGER"),
    "latest_delivered": ("pubend TEXT KEY", "tick INTEGER"),
    "pfs": ("pubend TEXT KEY", "upto INTEGER", "chopped INTEGER"),
    "counters": ("name TEXT KEY", "value INTEGER"),
    "topics": ("topic TEXT KEY", "is_open INTEGER", "schemas TEXT"),
    "schemas": ("topic TEXT KEY", "number INTEGER KEY", "schema TEXT"),
    "generations": ("topic TEXT KEY", "creation INTEGER KEY", "is_open INTEGER", "generation INTEGER"),
    "hosts": ("pubend TEXT KEY", "brokers TEXT"),
}  # fmt: skip

#: table -> the column of the subscriber; removing a subscriber removes its rows of these tables
SUBSCRIBER_COLUMN = {
    "subscriptions": "id",
    "selectors": "subscriber",
    "released": "subscriber",
    "tokens": "subscriber",
}


def create_statement(table: str) -> str:
    """Returns the SQL that creates a table."""
    keys = [column.split()[0] for column in SCHEMA[table] if column.endswith(" KEY")]
    columns = [f"{column.removesuffix(' KEY')} NOT NULL" for column in SCHEMA[table]]
    parts = [*columns, "checksum INTEGER NOT NULL", f"PRIMARY KEY ({', '.join(keys)})"]
    return f"CREATE TABLE {table} ({', '.join(parts)}) WITHOUT ROWID"


def replace_statement(table: str) -> str:
    """Returns the SQL that adds a sealed row, or replaces the row with the same key."""
    return f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * (len(SCHEMA[table]) + 1))})"


def seal_statements() -> list[str]:
    """Returns the SQL that creates the seal: how many rows all tables have, and the sum of their checksums.

    SQLite itself keeps the seal with every change, in the same transaction. A page that is older than the
    others, or a row that is gone, does not fit it.
    """
    counts = " + ".join(f"(SELECT count(*) FROM {table})" for table in SCHEMA)
    sums = " + ".join(f"(SELECT coalesce(sum(checksum), 0) FROM {table})" for table in SCHEMA)
    change = "UPDATE seal SET rows = rows {sign} 1, total = total {sign} {row}.checksum; END"
    triggers = [
        f"CREATE TRIGGER IF NOT EXISTS {table}_{event} AFTER {event} ON {table} "
        f"BEGIN {change.format(sign=sign, row=row)}"
        for table in SCHEMA
        for event, sign, row in (("insert", "+", "NEW"), ("delete", "-", "OLD"))
    ]
    create = "CREATE TABLE seal (rows INTEGER NOT NULL, total INTEGER NOT NULL)"
    return ["DROP TABLE IF EXISTS seal", create, f"INSERT INTO seal SELECT {counts}, {sums}", *triggers]


def sealed(table: str, row: Row) -> Row:
    """Returns the row with its checksum, which also covers the name of the table."""
    return (*row, crc32("\0".join((table, *map(str, row))).encode()))


def rows_of(contents: TableRows) -> Iterator[tuple[str, list[Row]]]:
    """Yields each table with its rows."""
    subscriptions = contents.subscriptions.values()
    yield "subscriptions", [_subscription_row(each) for each in subscriptions]
    yield "selectors", [_selector_row(each.id, version) for each in subscriptions for version in each.history]
    yield "released", _position_rows(contents.released)
    yield "tokens", _position_rows(contents.tokens)
    yield "latest_delivered", list(contents.latest_delivered.items())
    yield "pfs", [(pubend, mark.upto, mark.chopped) for pubend, mark in contents.pfs.items()]
    yield "counters", list(contents.counters.items())
    yield "topics", [_topic_row(each) for each in contents.topics.values()]
    yield "schemas", [(topic, number, text) for (topic, number), text in contents.schemas.items()]
    yield (
        "generations",
        [(*key, int(opened), number) for key, (opened, number) in contents.generations.items()],
    )
    yield "hosts", [(pubend, json.dumps(hosts)) for pubend, hosts in contents.hosts.items()]


def bounded(rows: Mapping[str, Iterable[Row]]) -> tuple[dict[str, list[Row]], list[str]]:
    """Returns the rows with every tick, epoch and number of a row within its bounds, and which were not.

    Earlier versions took any int64 from outside. The last one has no successor: it ended the broker at each
    start.
    """
    found: dict[str, list[Row]] = {}
    changed: list[str] = []
    for table, given in rows.items():
        bound = _BOUNDS.get(table, tuple)
        found[table] = [bound(row) for row in given]
        changed += [
            f"{table}: {row} is beyond all bounds, and counts as {kept}"
            for row, kept in zip(given, found[table], strict=True)
            if row != kept
        ]
    return found, changed


def contents_of(rows: Mapping[str, Iterable[Row]]) -> TableRows:
    """Returns what `rows_of` was given. Raises KeyError, ValueError or TokenError if the rows contradict."""
    history: dict[int, list[SelectorVersion]] = {}
    for subscriber, version, pattern, selector, since in sorted(rows["selectors"]):
        wanted, of_token = TopicSelector(pattern, selector), _parsed(since)
        history.setdefault(subscriber, []).append(SelectorVersion(version, wanted, of_token))
    subscriptions = {
        number: SubscriptionRow(
            number, name, principal, epoch, _parsed(start), created, tuple(history[number])
        )
        for number, name, principal, epoch, start, created in rows["subscriptions"]
    }
    _parsed.cache_clear()
    topics = {
        topic: TopicRow(topic, bool(is_open), tuple(json.loads(schemas)))
        for topic, is_open, schemas in rows["topics"]
    }
    return TableRows(
        subscriptions,
        _positions(rows["released"]),
        _positions(rows["tokens"]),
        dict(rows["latest_delivered"]),
        {pubend: PfsMark(upto, chopped) for pubend, upto, chopped in rows["pfs"]},
        dict(rows["counters"]),
        topics,
        {(topics[topic].topic, number): text for topic, number, text in rows["schemas"]},
        {
            (topics[topic].topic, creation): (bool(is_open), generation)
            for topic, creation, is_open, generation in rows["generations"]
        },
        {pubend: _hosts(json.loads(hosts)) for pubend, hosts in rows["hosts"]},
    )


#: Each token is there several times, and is looked at twice: within bounds, and then for what it says.
_parsed = lru_cache(maxsize=TOKENS_PARSED_MAX)(CheckpointToken.parse)


def _bounded_token(text: str) -> str:
    try:
        _parsed(text)
    except TokenError:
        # Either damage, which `decode` reports, or ticks that no token has.
        return CheckpointToken({pubend: nearest_position(tick) for pubend, tick in decode(text)}).text()
    return text


def _bounded_time(number: int) -> int:
    """An epoch, and when a subscription was made, are times of day in microseconds, as ticks are."""
    return max(0, min(number, TICK_LAST))


def _bounded_subscription(row: Row) -> Row:
    number, name, principal, epoch, start, created = row
    return number, name, principal, _bounded_time(epoch), _bounded_token(start), _bounded_time(created)


def _bounded_hosts(row: Row) -> Row:
    pubend, text = row
    hosts = json.loads(text)
    if isinstance(hosts, dict) and any(sequence > SEQUENCE_MAX for sequence in hosts.values()):
        text = json.dumps({host: min(sequence, SEQUENCE_MAX) for host, sequence in hosts.items()})
    return pubend, text


#: table -> what brings a row of it within bounds; rows of other tables hold nothing that came from outside
_BOUNDS: dict[str, Callable[[Row], Row]] = {
    "subscriptions": _bounded_subscription,
    "selectors": lambda row: (*row[:-1], _bounded_token(row[-1])),
    "released": lambda row: (*row[:-1], nearest_position(row[-1])),
    "tokens": lambda row: (*row[:-1], nearest_position(row[-1])),
    "latest_delivered": lambda row: (row[0], nearest_position(row[1])),
    "pfs": lambda row: (row[0], nearest_position(row[1]), nearest_position(row[2])),
    "hosts": _bounded_hosts,
}


def _subscription_row(each: SubscriptionRow) -> Row:
    return each.id, each.name, each.principal, each.epoch, each.start.text(), each.created


def _selector_row(subscriber: int, each: SelectorVersion) -> Row:
    return subscriber, each.version, each.wanted.pattern, each.wanted.selector, each.since.text()


def _topic_row(each: TopicRow) -> Row:
    return each.topic, int(each.is_open), json.dumps(each.schemas)


def _hosts(found: dict[str, int] | list[str]) -> dict[str, int]:
    """Returns host -> the oldest row that counts. Version 3 of the tables had the names of hosts only."""
    return found if isinstance(found, dict) else dict.fromkeys(found, 0)


def _position_rows(positions: Positions) -> list[Row]:
    return [
        (subscriber, pubend, tick)
        for subscriber, ticks in positions.items()
        for pubend, tick in ticks.items()
    ]


def _positions(rows: Iterable[Row]) -> Positions:
    positions: Positions = {}
    for subscriber, pubend, tick in rows:
        positions.setdefault(subscriber, {})[pubend] = tick
    return positions
