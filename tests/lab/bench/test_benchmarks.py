"""The benches run, say what they found in the agreed form, and notice a wrong answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from io import StringIO
from random import Random
from typing import Any

import numpy as np
import pytest

from tidemark.lab.bench import BENCHES, run
from tidemark.lab.bench.matching import benchmark as matching
from tidemark.lab.bench.matching.measured_matcher import MeasuredMatcher
from tidemark.lab.bench.matching.workload import SCHEMA, event, holds, selectors
from tidemark.lab.bench.measure import check_exact, race
from tidemark.lab.bench.messages import benchmark as messages
from tidemark.lab.bench.messages.peers import TIDEMARK, Protobuf, Tidemark
from tidemark.lab.bench.messages.samples import at, samples
from tidemark.lab.bench.pfs import benchmark as pfs
from tidemark.lab.bench.report import Goal, JsonReport, Measurement, Section, TableReport, number_text
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.vectors.vector import Condition
from tidemark.message.batches.columns import Column
from tidemark.message.batches.reader import BatchColumns
from tidemark.message.schema import Schema

#: Those that run in this process; the others are in test_bench_system.
IN_PROCESS = ("messages", "matching", "pfs")
KEYS = {"bench", "case", "metric", "value", "unit", "goal", "ok"}


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "QUICK", messages.MessagesEffort(messages=12, rounds=1))
    tiny = matching.MatchingEffort(
        (60, 600), rounds=1, batches=2, changes=8, checked=100, scanned=300, conditions=20
    )
    monkeypatch.setattr(matching, "QUICK", tiny)
    monkeypatch.setattr(pfs, "QUICK", pfs.PfsEffort(seconds=1, rounds=1))


@cache
def found(name: str) -> list[Section]:
    """What a bench finds; each bench runs once for all tests that read it."""
    return list(BENCHES[name].sections(quick=True))


def shown(report: JsonReport | TableReport, out: StringIO, name: str) -> list[str]:
    """The lines in which a report shows what a bench finds."""
    for section in found(name):
        report.show(section)
    return out.getvalue().splitlines()


def json_lines(name: str) -> list[dict[str, Any]]:
    lines = shown(JsonReport(name, out := StringIO()), out, name)
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", IN_PROCESS)
def test_every_line_of_json_has_the_agreed_keys(name: str) -> None:
    lines = json_lines(name)
    for line in lines:
        assert set(line) == KEYS
        assert line["bench"] == name
        assert isinstance(line["value"], int | float)
        assert (line["goal"] is None) == (line["ok"] is None)
        assert line["ok"] in (None, True, False)
    assert any(line["goal"] is not None for line in lines)


@pytest.mark.parametrize("name", IN_PROCESS)
def test_no_two_numbers_of_a_bench_have_the_same_name(name: str) -> None:
    names = [(line["case"], line["metric"]) for line in json_lines(name)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", IN_PROCESS)
def test_the_tables_fit_a_hundred_columns(name: str) -> None:
    lines = shown(TableReport(name, out := StringIO()), out, name)
    assert max(len(line) for line in lines) <= 100
    assert any("goal" in line for line in lines)


def test_the_messages_bench_covers_every_schema_and_format_and_the_paper() -> None:
    found = {(line["case"], line["metric"]) for line in json_lines("messages")}
    for sample in samples():
        for metric in (TIDEMARK, "XML DOM (minidom)", "protobuf", "paper: Gryphon", messages.NOTHING):
            assert (sample.name, f"one field: {metric}") in found
            assert (sample.name, f"nine fields: {metric}") in found


def wrong_accessor(_: Schema, __: object) -> Callable[[bytes], Any]:
    return lambda _: 0


def nobody(_: Matcher, columns: BatchColumns) -> Any:
    return np.zeros(columns.count, np.uint32)


def nothing(_: Condition, columns: BatchColumns) -> Any:
    return np.zeros(columns.count, np.bool_)


def twice_the_value(columns: BatchColumns, path: Any) -> Column:
    column = columns._field(path)
    values: Any = column.values
    return Column(column.type, values * 2, column.valid)


@pytest.mark.parametrize(
    ("name", "broken", "attribute", "wrong", "said"),
    [
        ("messages", Tidemark, "one", wrong_accessor, "flatInt, Tidemark, field"),
        ("messages", Tidemark, "several", lambda *_: lambda _: [0] * 9, "flatInt, Tidemark, field"),
        ("messages", Protobuf, "several", lambda *_: lambda _: [None] * 9, "flatInt, protobuf, field"),
        ("messages", BatchColumns, "column", twice_the_value, "flatInt, column field0, row 0"),
        ("matching", Matcher, "match", nobody, "does {"),
        ("matching", Condition, "matched", nothing, "scanning 300 events"),
    ],
)
def test_a_wrong_answer_fails_the_run(
    name: str,
    broken: type,
    attribute: str,
    wrong: object,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(broken, attribute, wrong)
    assert run(name, json_output=True, quick=True, out=StringIO()) == 1
    assert f"bench {name}: WRONG: {said}" in capsys.readouterr().err


def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'lxml'", name="lxml")

    monkeypatch.setattr(messages, "formats", missing)
    assert run("messages", quick=True, out=StringIO()) == 1
    assert "needs lxml" in capsys.readouterr().err


def test_a_missed_goal_is_shown_and_is_no_failure() -> None:
    section = Section("s", [Measurement("c", "m", 5.0, "x", Goal("<", 4)), Measurement("c", "n", 1.5, "x")])
    table, lines = StringIO(), StringIO()
    TableReport("b", table).show(section)
    JsonReport("b", lines).show(section)
    assert "MISSED" in table.getvalue()
    missed, other = (json.loads(line) for line in lines.getvalue().splitlines())
    assert (missed["goal"], missed["ok"]) == (4, False)
    assert (other["goal"], other["ok"]) == (None, None)


def test_numbers_keep_three_digits() -> None:
    assert [number_text(value) for value in (0.1234, 1.234, 12.34, 1234.5, 20e6)] == [
        *("0.123", "1.23", "12.3", "1,234", "20,000,000")
    ]


def test_a_race_runs_every_case_in_turns() -> None:
    order: list[str] = []
    times = race({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=3)
    turns = "".join(order).replace("aa", "a").replace("bb", "b")
    assert set(turns) == {"a", "b"}
    assert all(0 < timing.best <= timing.median for timing in times.values())


def test_an_exact_check_tells_a_true_one_from_a_one() -> None:
    check_exact(1, 1, "same")
    with pytest.raises(AssertionError, match="type: found True, expected 1"):
        check_exact(True, 1, "type")


def test_the_six_schemas_are_those_of_the_paper() -> None:
    by_name = {sample.name: sample for sample in samples()}
    assert list(by_name) == [
        "flatInt",
        "flatString",
        "nestedInt",
        "nestedString",
        "optNestInt",
        "optNestString",
    ]
    assert by_name["nestedInt"].paths[13] == ("partB", "sectionD", "areaG", "pieceN", "fieldD")
    assert "{ [] | pieceD: [ field3: int ] }" in by_name["optNestInt"].text
    assert Schema.parse(by_name["optNestString"].text).flat.count == 16
    random = Random(1)
    values = [by_name["optNestInt"].message(random) for _ in range(50)]
    lacking = {
        path for path in by_name["optNestInt"].paths if any(at(value, path) is None for value in values)
    }
    assert lacking == set(by_name["optNestInt"].paths[3::4])


def test_the_workload_says_in_text_what_it_says_in_trees() -> None:
    for selector in selectors(50, Random(1), narrow=3.0):
        assert Selector.parse(selector.text, SCHEMA) == selector


def test_narrower_ranges_keep_the_matches_about_the_same() -> None:
    random = Random(1)
    events = [event(random) for _ in range(40)]
    wide = list(selectors(100, Random(1), narrow=0.02))
    narrow = list(selectors(1_000, Random(1), narrow=0.2))
    count = [sum(holds(each, of) for each in some for of in events) for some in (wide, narrow)]
    assert 0.5 < count[0] / count[1] < 2


def test_a_matcher_is_right_after_selectors_come_and_go() -> None:
    random = Random(1)
    contender = MeasuredMatcher.build(300, 1, 0.05)
    contender.add_and_remove(list(selectors(40, random, narrow=0.05)), random)
    assert len(contender.selectors) == len(contender.matcher) == 300
    contender.check([event(random) for _ in range(20)], random, selectors_max=1_000)
