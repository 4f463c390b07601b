"""Ledgers made up from a seed, with everything wrong in them that can be wrong."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.audit.ledger_witnesses import WITNESSES, Witness
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.parser import parse
from tidemark.matching.topics import TopicPattern
from tidemark.spark.audit.ledger_lines import lookup

Line = dict[str, Any]

#: Some translate, some are of mixed types or no type at all and are left to the evaluator.
SELECTORS = (
    "",
    "qty >= 0",
    "price > 0 OR qty > 2",
    "price > 50",
    "price > 50 AND qty < 5",
    "symbol LIKE 'A%'",
    "symbol IN ('ACME', 'BOLT') OR hot",
    "NOT hot",
    "mixed >= 3",
    "mixed IS NULL",
    "nowhere = 1",
    "nowhere IS NULL",
    "deep.x > 1",
    "big > 5",
    "_topic = 'x'",
    "qty * 2 - 1 > price / 3",
)
ENDINGS = (".jsonl", ".sqlite", ".parquet")
TEXTS = {"fields", "start", "checkpoint"}


@dataclass(slots=True)
class Case:
    """What one made-up world wrote; its topics, keys and names are its own."""

    publishers: dict[str, list[Line]] = field(default_factory=dict)
    subscribers: dict[str, list[Line]] = field(default_factory=dict)


def make_case(number: int, random: Random) -> Case:
    """A world of one or two publishers and a few subscribers, some with faults."""
    case = Case()
    logged: list[Line] = []
    for name in (f"c{number:03}p{at}" for at in range(random.randint(1, 2))):
        case.publishers[name] = _publisher(f"c{number:03}", name, random, logged)
    logged.sort(key=lambda line: (line["pubend"], line["tick"]))
    for name in (f"c{number:03}s{at}" for at in range(random.randint(1, 3))):
        case.subscribers[name] = _subscriber(f"c{number:03}", name, random, logged)
    return case


def make_cases(count: int, random: Random) -> list[Case]:
    """Returns `count` random cases, and one for each witness."""
    cases = [make_case(number, random) for number in range(count)]
    for name, witness in witnesses_by_name().items():
        cases.append(Case({name: witness.publisher_lines(name)}, witness.subscriber_lines(name)))
    return cases


def witnesses_by_name() -> dict[str, Witness]:
    """The witnesses by the names that their publishers have here."""
    return {f"w{number:02}": witness for number, witness in enumerate(WITNESSES.values())}


def _publisher(root: str, name: str, random: Random, logged: list[Line]) -> list[Line]:
    lines: list[Line] = []
    tick = random.randrange(100)
    for sequence in range(1, random.randint(2, 18)):
        tick += random.randint(1, 5)
        what = {"key": f"{name}-{sequence}", "pubend": f"{root}.{random.choice('ab')}"}
        topic = random.choice((f"{root}.trades", f"{root}.trades.us", f"{root}.news", root))
        event = {**what, "topic": topic, "fields": _fields(random)}
        who = {"publisher": name, "sequence": sequence}
        lines.append({"what": "publish", **who, **event, "time": tick * 1000})
        outcome = random.choice(("acked", "acked", "acked", "tickless", "unknown", "none"))
        said = {"what": "outcome", **who, "key": event["key"], "outcome": "acked", "tick": tick}
        if outcome == "tickless":
            said["tick"] = None
        if outcome == "unknown":
            said |= {"outcome": "unknown", "reason": "gone"}
            del said["tick"]
        if outcome != "none":
            lines.append(said)
        if outcome in ("acked", "tickless") or random.random() < 0.5:
            logged.append(
                {"what": "event", **event, "tick": tick, "time": tick * 1000 + random.randint(50, 5000)}
            )
    return lines


def _fields(random: Random) -> Line:
    fields: Line = {
        "price": random.choice((10.5, 49.0, 50.0, 50.5, 99.75, 1e5)),
        "qty": random.randint(0, 9),
        "symbol": random.choice(("ACME", "BOLT", "Å🌊", "")),
        "hot": random.random() < 0.5,
        "deep": {"x": random.randint(0, 3)},
    }
    if random.random() < 0.5:
        fields["mixed"] = random.choice((1, 3.0, 2.5, "3", None, True, [1]))
    if random.random() < 0.1:
        fields["big"] = 2**70
    if random.random() < 0.1:
        fields["price"] = float("nan")
    return fields


def _subscriber(root: str, name: str, random: Random, logged: list[Line]) -> list[Line]:
    if random.random() < 0.05:
        return [{"what": "event", **_numbered(name, 1), **_without_what(line)} for line in logged[:1]]
    start = {
        pubend: random.randrange(130)
        for pubend in {line["pubend"] for line in logged}
        if random.random() < 0.4
    }
    topic = f"{root}.{random.choice(('trades', '>', '>', '*', 'trades.*'))}"
    asked = {"topic": topic, "where": random.choice(SELECTORS), "durable": True, "start": start}
    lines: list[Line] = [{"what": "subscriber", "subscriber": name, **asked}]
    given = [dict(line) for line in logged if random.random() < (0.95 if _is_due(line, asked) else 0.03)]
    lines += _with_faults(given, name, random)
    if random.random() < 0.3:
        lines.insert(
            random.randint(1, len(lines)), {"what": "returned", "subscriber": name, "checkpoint": start}
        )
    return [{"n": n, **line} for n, line in enumerate(lines, 1)]


def _is_due(line: Line, asked: Line) -> bool:
    return (
        line["tick"] > asked["start"].get(line["pubend"], -1)
        and TopicPattern.parse(asked["topic"]).matches(line["topic"])
        and evaluate(parse(asked["where"]), lambda path: lookup(line["fields"], path)) is True
    )


def _with_faults(given: list[Line], name: str, random: Random) -> list[Line]:
    for _ in range(random.choice((0, 1, 3))):
        if not given:
            break
        at = random.randrange(len(given))
        match random.choice(
            (
                "lost",
                "twice",
                "again",
                "swap",
                "swap",
                "swap",
                "alter",
                "tick",
                "made up",
                "same",
                "pubend",
                "topic",
            )
        ):
            case "lost":
                del given[at]
            case "twice":
                given.insert(at, dict(given[at]))
            case "again":
                given.append(given[at] | {"tick": given[at]["tick"] + 1})
            case "swap":
                given.append(given.pop(at))
            case "alter":
                given[at]["fields"] = given[at]["fields"] | {"qty": 11}
            case "tick":
                given[at]["tick"] += 1
            case "made up":
                given.insert(at, given[at] | {"key": f"{name}-nobody"})
            case "same":
                # Equal to what was published, though written otherwise.
                fields = dict(reversed(given[at]["fields"].items()))
                given[at]["fields"] = fields | {"qty": float(fields["qty"])}
            case "pubend":
                given[at]["pubend"] += "x"
            case "topic":
                given[at]["topic"] += ".x"
    for _ in range(random.choice((0, 1, 2))):
        given = _with_gap(given, random)
    return [{"subscriber": name, **line} for line in given]


def _with_gap(given: list[Line], random: Random) -> list[Line]:
    """The lines of a subscriber that was told of a gap; the events in it are left out, or not."""
    events = [line for line in given if line["what"] == "event"]
    if not events:
        return given
    around = random.choice(events)
    pubend, base = around["pubend"], around["tick"] - random.randint(0, 20)
    upto = base + random.choice((1, 20, 60))
    at = given.index(around)
    if random.random() < 0.7:
        given = [
            line
            for line in given
            if line["what"] == "gap" or line["pubend"] != pubend or not base < line["tick"] <= upto
        ]
    gap = {"pubend": pubend, "base": base, "upto": upto, "reason": random.choice(("lost", "away"))}
    return [*given[:at], {"what": "gap", **gap}, *given[at:]]


def _numbered(name: str, n: int) -> Line:
    return {"n": n, "subscriber": name}


def _without_what(line: Line) -> Line:
    return {key: value for key, value in line.items() if key != "what"}


def write(case: Case, directory: Path, random: Random) -> None:
    """The case's ledgers, each in one of the formats."""
    for name, lines in case.publishers.items():
        write_ledger(directory / f"{name}.publisher{random.choice(('.jsonl', '.parquet'))}", lines)
    for name, lines in case.subscribers.items():
        write_ledger(directory / f"{name}.subscriber{random.choice(ENDINGS)}", lines)


def write_ledger(path: Path, lines: list[Line]) -> Path:
    """Lines in the format that the path ends in."""
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE ledger (n INTEGER PRIMARY KEY, line TEXT NOT NULL)")
            rows = ((n, json.dumps(line)) for n, line in enumerate(lines, 1))
            database.executemany("INSERT INTO ledger VALUES (?, ?)", rows)
    elif path.suffix == ".parquet":
        _write_parquet(path, lines)
    else:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _write_parquet(path: Path, lines: Iterable[Line]) -> None:
    rows = [
        {name: json.dumps(value) if name in TEXTS else value for name, value in line.items()}
        for line in lines
    ]
    names = sorted({name for row in rows for name in row})
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    pq.write_table(table, path, row_group_size=5)
