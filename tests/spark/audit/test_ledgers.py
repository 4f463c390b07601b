"""Ledgers are found, cut into parts and read whole, whatever they are written in and wherever cut."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.audit.ledger_samples import make_case, write_ledger
from tidemark.errors import ConfigError, UnknownFormatError
from tidemark.lab.processes import ledger as single
from tidemark.spark.audit import ledger_lines, ledgers
from tidemark.spark.audit.ledger_lines import compact, decoded, is_same, lookup, value_column
from tidemark.spark.audit.ledgers import LedgerFile

GAP = {"what": "gap", "subscriber": "s", "pubend": "main", "base": 1, "upto": 2, "reason": "away"}


def rows_of(path: Path, paths: list[tuple[str, ...]] | None = None) -> list[dict[str, Any]]:
    shares = ledgers.packed(ledgers.parts(LedgerFile(3, "x", path)))
    batches = [batch for share in shares for batch in ledger_lines.read(share, paths or [])]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


@settings(derandomize=True, deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), part=st.integers(1, 400), lines=st.integers(1, 7))
def test_a_ledger_is_read_whole_and_in_order_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, seed: int, part: int, lines: int
) -> None:
    directory = tmp_path_factory.mktemp("cut")
    wanted = next(iter(make_case(seed, Random(seed)).subscribers.values()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledgers, "PART_BYTES_MAX", part)
        patch.setattr(ledgers, "PART_LINES_MAX", lines)
        for ending in (".jsonl", ".sqlite", ".parquet"):
            found = rows_of(write_ledger(directory / f"x.subscriber{ending}", wanted))
            assert [row["what"] for row in found] == [line["what"] for line in wanted]
            assert [row["tick"] for row in found] == [line.get("tick") for line in wanted]
            assert [row["fields"] for row in found] == [
                compact(line["fields"]) if "fields" in line else None for line in wanted
            ]
            places = [row["at"] for row in found]
            assert places == sorted(set(places))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(cut=st.integers(0, 500), part=st.integers(1, 60))
def test_a_line_that_a_crash_cut_short_was_never_written(
    tmp_path_factory: pytest.TempPathFactory, cut: int, part: int
) -> None:
    path = tmp_path_factory.mktemp("torn") / "x.subscriber.jsonl"
    whole = "".join(json.dumps(GAP | {"base": n}) + "\n" for n in range(5)).encode()
    path.write_bytes(whole[:cut])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledgers, "PART_BYTES_MAX", part)
        assert [row["base"] for row in rows_of(path)] == [line["base"] for line in single.read(path)]


@pytest.mark.parametrize("ending", [".jsonl", ".sqlite", ".parquet"])
def test_values_keep_the_type_they_were_written_in(tmp_path: Path, ending: str) -> None:
    values = [1, 1.0, True, "1", None, 2**70, [1], "\ud800"]
    event = {"what": "event", "key": "k", "pubend": "main", "tick": 1, "topic": "t"}
    path = write_ledger(
        tmp_path / f"x.subscriber{ending}", [event | {"fields": {"a": {"b": value}}} for value in values]
    )
    found = rows_of(path, [("a", "b")])
    kinds = [
        next((kind for kind in ledger_lines.VALUE_COLUMNS if row[value_column(0, kind)] is not None), None)
        for row in found
    ]
    assert kinds == ["long", "double", "boolean", "string", None, "other", "other", "other"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ('{"n": 1}', "`what` is none of"),
        ('{"what": "event", "key": "k"}', "without `pubend`"),
        ('{"what": "gap", "pubend": "p", "base": "x", "upto": 3}', "wrong type"),
        ('{"what": "gap", "pubend": "p", "base": 1e300, "upto": 3}', "wrong type"),
        ("[1]", "`what` is none of"),
    ],
)
def test_a_line_that_cannot_be_read_is_a_row_that_says_why(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "x.subscriber.jsonl"
    path.write_text(text + "\n")
    (row,) = rows_of(path)
    assert row["what"] == ledger_lines.DAMAGED
    assert reason in row["reason"]


def test_parquet_with_fields_that_are_no_json_is_damaged(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    event = {"what": "event", "key": "k", "pubend": "main", "tick": 1, "topic": "t", "fields": "{"}
    pq.write_table(
        pa.table({name: [value] for name, value in event.items()}), tmp_path / "x.subscriber.parquet"
    )
    (row,) = rows_of(tmp_path / "x.subscriber.parquet")
    assert "`fields` is not text of JSON" in row["reason"]


def test_a_directory_of_parquet_files_is_one_ledger(tmp_path: Path) -> None:
    path = tmp_path / "x.subscriber.parquet"
    path.mkdir()
    for number in range(3):
        write_ledger(path / f"part-{number}.parquet", [GAP | {"base": number * 7 + at} for at in range(7)])
    found = rows_of(path)
    assert [row["base"] for row in found] == [row["at"] for row in found] == list(range(21))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.dictionaries(st.text(max_size=2), JSON, max_size=3), st.data())
def test_fields_are_the_same_when_python_says_so(fields: dict[str, Any], data: st.DataObject) -> None:
    changes = data.draw(st.dictionaries(st.sampled_from([*fields, "x"]), JSON, max_size=1))
    one, other = json.loads(json.dumps(fields)), json.loads(json.dumps(fields | changes))
    texts = compact(one), compact(other)
    assert is_same(*texts) == (decoded(json.dumps(one)) == decoded(json.dumps(other)))
    # The shortcut that the plan takes: equal texts need not be read.
    if texts[0] == texts[1]:
        assert is_same(*texts)
    if "NaN" not in texts[0]:
        assert is_same(*texts) == (one == other)


def test_doubts_are_settled_by_reading_both_texts() -> None:
    doubts = [
        (True, False, None, None),
        (False, False, None, None),
        (True, True, '{"a":1}', '{"a":1.0}'),
        (True, True, '{"a":1}', '{"a":2}'),
    ]
    names = ("is_due", "is_doubtful", "mine", "theirs")
    batch = pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in doubts])
    assert ledger_lines.settled(batch).to_pydict() == {"is_right": [True, False, True, False]}


def test_lookup_goes_down_into_objects_only() -> None:
    assert lookup({"a": {"b": 1}}, ("a", "b")) == 1
    assert lookup({"a": [1]}, ("a", "b")) is None


def test_ledgers_are_found_by_their_names(tmp_path: Path) -> None:
    start = {"what": "subscriber", "subscriber": "two", "topic": "t", "where": "", "start": {"main": 5}}
    write_ledger(tmp_path / "desk.1.publisher.jsonl", [])
    write_ledger(tmp_path / "one.subscriber.sqlite", [GAP])
    write_ledger(tmp_path / "two.subscriber.jsonl", [GAP, start, start | {"where": "x > 1"}])
    write_ledger(tmp_path / "three.subscriber.parquet", [start])
    (tmp_path / "one.subscriber.sqlite-wal").touch()
    (tmp_path / "broker.log").touch()
    found = ledgers.gather(tmp_path)
    assert [each.name for each in found.publishers] == ["desk.1"]
    assert [each.name for each in found.subscribers] == ["one", "three", "two"]
    assert [(each.ledger, each.where, each.start) for each in found.subscriptions] == [
        (1, "", {"main": 5}),
        (2, "", {"main": 5}),
    ]
    assert found.idle == ["one"]


def test_nothing_to_compare_is_an_error_not_a_clean_audit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no ledger of a publisher"):
        ledgers.gather(tmp_path)
    write_ledger(tmp_path / "desk.publisher.jsonl", [])
    with pytest.raises(ConfigError, match="no ledger of a subscriber"):
        ledgers.gather(tmp_path)
    write_ledger(tmp_path / "one.subscriber.jsonl", [GAP])
    with pytest.raises(ConfigError, match="has a subscription"):
        ledgers.gather(tmp_path)


def test_the_same_ledger_twice_is_refused(tmp_path: Path) -> None:
    write_ledger(tmp_path / "one.subscriber.jsonl", [GAP])
    write_ledger(tmp_path / "one.subscriber.sqlite", [GAP])
    with pytest.raises(UnknownFormatError, match="leave one of them"):
        ledgers.find(tmp_path, ledgers.SUBSCRIBER)


def test_small_parts_share_a_task_and_large_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "PART_BYTES_MAX", 10)
    sizes = [0, 4, 4, 4, 10, 1, 30, 1]
    shares = ledgers.packed(ledgers.LedgerPart(0, "", 0, 0, size) for size in sizes)
    assert [[part.size_bytes for part in share] for share in shares] == [[0, 4, 4], [4], [10], [1], [30], [1]]
