"""The audit finds what is wrong in ledgers, and nothing where nothing is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.lab.processes.ledger import DetailedAccount, audit, export, read
from tidemark.lab.processes.ledger_writers import PlainSubscriberLedger, PublisherLedger
from tidemark.ticks import CheckpointToken


def publication(number: int, price: float, tick: int | None = None, *, acked: bool = True) -> list[Any]:
    key = f"desk-{number}"
    who = {"publisher": "desk", "sequence": number, "key": key}
    lines: list[Any] = [
        {"what": "publish", **who, "pubend": "main", "topic": "trades", "fields": {"price": price}}
    ]
    if acked:
        lines.append({"what": "outcome", **who, "outcome": "acked", "tick": tick})
    return lines


def delivery(number: int, tick: int, price: float) -> Any:
    where = {"pubend": "main", "tick": tick, "key": f"desk-{number}", "topic": "trades"}
    return {"what": "event", "subscriber": "s", **where, "fields": {"price": price}}


def gap(base: int, upto: int) -> Any:
    return {
        "what": "gap",
        "subscriber": "s",
        "pubend": "main",
        "base": base,
        "upto": upto,
        "reason": "released",
    }


def opened(where: str = "price < 50", start: int = 0) -> Any:
    selector = {"topic": "trades", "where": where, "durable": True, "start": {"main": start}}
    return {"what": "subscriber", "subscriber": "s", **selector}


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


#: prices 10, 20, 30 match; 90 does not
PUBLISHED = [
    *publication(1, 10.0, 101),
    *publication(2, 90.0, 102),
    *publication(3, 20.0, 103),
    *publication(4, 30.0, 104),
]


def judged(
    tmp_path: Path, received: list[Any], published: list[Any] = PUBLISHED, **start: Any
) -> DetailedAccount:
    one = write(tmp_path / "p.jsonl", published)
    other = write(tmp_path / "s.jsonl", [opened(**start), *received])
    return audit([one], [other]).accounts[0]


def test_ledgers_that_agree_are_clean(tmp_path: Path) -> None:
    account = judged(tmp_path, [delivery(1, 101, 10.0), delivery(3, 103, 20.0), delivery(4, 104, 30.0)])
    assert account.is_clean
    assert (account.matched, account.delivered, account.gaps) == (3, 3, 0)


@pytest.mark.parametrize(
    ("received", "lost", "duplicated", "out_of_order", "wrong"),
    [
        ([(1, 101, 10.0), (4, 104, 30.0)], 1, 0, 0, 0),
        ([(1, 101, 10.0), (1, 101, 10.0), (3, 103, 20.0), (4, 104, 30.0)], 0, 1, 0, 0),
        ([(3, 103, 20.0), (1, 101, 10.0), (4, 104, 30.0)], 0, 0, 1, 0),
        ([(1, 101, 10.0), (2, 102, 90.0), (3, 103, 20.0), (4, 104, 30.0)], 0, 0, 0, 1),
        ([(1, 101, 10.0), (3, 103, 21.0), (4, 104, 30.0)], 1, 0, 0, 1),
        ([(1, 101, 10.0), (3, 109, 20.0), (4, 104, 30.0)], 1, 0, 0, 1),
        ([(1, 101, 10.0), (3, 103, 20.0), (4, 104, 30.0), (7, 107, 10.0)], 0, 0, 0, 1),
    ],
    ids=["lost", "duplicated", "out of order", "not matching", "altered", "at another tick", "unpublished"],
)
def test_each_kind_of_fault_is_counted_as_what_it_is(
    tmp_path: Path,
    received: list[tuple[int, int, float]],
    lost: int,
    duplicated: int,
    out_of_order: int,
    wrong: int,
) -> None:
    account = judged(tmp_path, [delivery(*each) for each in received])
    found = [len(each) for each in (account.lost, account.duplicated, account.out_of_order, account.wrong)]
    assert found == [lost, duplicated, out_of_order, wrong]
    assert not account.is_clean


def test_what_lies_in_a_gap_is_not_lost(tmp_path: Path) -> None:
    account = judged(tmp_path, [delivery(1, 101, 10.0), gap(101, 103), delivery(4, 104, 30.0)])
    assert account.is_clean
    assert (account.matched, account.delivered, account.gaps, account.in_gaps) == (3, 2, 1, 1)


def test_what_was_published_before_the_start_is_not_expected(tmp_path: Path) -> None:
    account = judged(tmp_path, [delivery(4, 104, 30.0)], start=103)
    assert account.is_clean
    assert account.matched == 1


def test_an_unknown_outcome_is_right_with_one_delivery_or_none(tmp_path: Path) -> None:
    published = [*publication(1, 10.0, 101), *publication(2, 20.0, acked=False)]
    assert judged(tmp_path, [delivery(1, 101, 10.0)], published).is_clean
    assert judged(tmp_path, [delivery(1, 101, 10.0), delivery(2, 102, 20.0)], published).is_clean
    twice = [delivery(1, 101, 10.0), delivery(2, 102, 20.0), delivery(2, 103, 20.0)]
    assert judged(tmp_path, twice, published).duplicated == ["desk-2"]


def test_what_reached_one_subscriber_is_logged_and_due_to_all(tmp_path: Path) -> None:
    publisher = write(tmp_path / "p.jsonl", publication(1, 10.0, acked=False))
    one = write(tmp_path / "one.jsonl", [opened(), delivery(1, 101, 10.0)])
    other = write(tmp_path / "other.jsonl", [opened()])
    assert [len(each.lost) for each in audit([publisher], [one, other]).accounts] == [0, 1]


def test_an_acknowledgement_covers_all_before_it(tmp_path: Path) -> None:
    published = [*publication(1, 10.0, acked=False), *publication(2, 20.0, 102)]
    assert judged(tmp_path, [delivery(2, 102, 20.0)], published).lost == ["desk-1"]


def test_a_line_that_a_crash_cut_short_was_never_written(tmp_path: Path) -> None:
    path = write(tmp_path / "p.publisher.jsonl", PUBLISHED)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert len(list(read(path))) == len(PUBLISHED) - 1
    ledger = PublisherLedger(path, "desk", "main", "trades")
    assert [each.sequence for each in ledger.unsettled] == [4]
    ledger.settle(ledger.unsettled[0], 104)
    ledger.close()
    assert path.read_bytes() == whole


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.booleans(), max_size=12))
def test_a_publisher_goes_on_from_whatever_its_ledger_has(
    tmp_path_factory: pytest.TempPathFactory, crashes: list[bool]
) -> None:
    path = tmp_path_factory.mktemp("book") / "p.publisher.jsonl"
    settled = 0
    for number, crash in enumerate(crashes, 1):
        ledger = PublisherLedger(path, "desk", "main", "trades")
        assert ledger.next_sequence == number
        assert [each.sequence for each in ledger.unsettled] == list(range(settled + 1, number))
        made = ledger.intend([{"price": float(number)}])
        if not crash:
            for each in (*ledger.unsettled, *made):
                ledger.settle(each, 100 + each.sequence)
            settled = number
        ledger.close()


def test_a_passing_subscriber_writes_down_that_it_was_away(tmp_path: Path) -> None:
    path = tmp_path / "s.subscriber.jsonl"
    for start in (100, 103):
        ledger = PlainSubscriberLedger(path, "s")
        ledger.opened("trades", "price < 50", CheckpointToken({"main": start}))
        ledger.close()
    account = audit([write(tmp_path / "p.jsonl", PUBLISHED)], [path]).accounts[0]
    assert (account.matched, account.in_gaps, account.lost) == (3, 2, ["desk-4"])


def test_an_exported_ledger_reads_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [opened(), delivery(1, 101, 10.0)])
    export(path, tmp_path / "copy.jsonl")
    assert list(read(tmp_path / "copy.jsonl")) == list(read(path))
