"""The command line, as a person or a script calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidemark.cli import main

EXAMPLES = Path(__file__).parent.parent / "examples"
SCHEMA, EVENTS = str(EXAMPLES / "trades.schema"), str(EXAMPLES / "trades.jsonl")


def tidemark(*arguments: str) -> Any:
    return CliRunner().invoke(main, arguments)


def test_schema_show_prints_natural_form_flat_form_and_layouts() -> None:
    shown = tidemark("schema", "show", SCHEMA, "--events", EVENTS)
    assert shown.exit_code == 0
    for text in (
        "natural schema",
        "flat form: a super-variant of 8 flat tuples",
        "venue.auction.round",
        "met in 1",
    ):
        assert text in shown.output


def test_schema_show_speaks_json() -> None:
    shown = json.loads(tidemark("schema", "show", SCHEMA, "--json").output)
    assert shown["cases"] == 8
    assert shown["code_bytes"] == 1
    assert [row["holds"] for row in shown["layouts"][0]["rows"]][:2] == ["multi-choice code", "price: double"]


def test_schema_show_reads_json_schema(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text('{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}')
    assert "a: string" in tidemark("schema", "show", str(file)).output


def test_explain_shows_tree_normal_form_index_and_matches() -> None:
    shown = tidemark("explain", "symbol LIKE 'A%' AND NOT qty > 50", "--schema", SCHEMA, "--events", EVENTS)
    assert shown.exit_code == 0
    for text in ("tree", "normal form", "index", "qty <= 50", "1 of 3 match"):
        assert text in shown.output


def test_explain_speaks_json() -> None:
    shown = json.loads(
        tidemark("explain", "qty IN (3, 7)", "--schema", SCHEMA, "--events", EVENTS, "--json").output
    )
    assert shown["events"] == ["true", "false", "true"]
    assert shown["matched"] == 2
    assert shown["normal_form"] == ["qty IN (3, 7)"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("explain", "prize > 5", "--schema", SCHEMA), "did you mean"),
        (("explain", "price >", "--schema", SCHEMA), "^"),
        (("explain", "price = 'x'", "--schema", SCHEMA), "at character"),
        (("schema", "show", "no-such-file"), "does not exist"),
        (("bench", "nothing"), "there is no benchmark 'nothing'"),
    ],
)
def test_a_mistake_is_one_clear_message_and_a_failing_exit_code(
    arguments: tuple[str, ...], reason: str
) -> None:
    shown = tidemark(*arguments)
    assert shown.exit_code != 0
    assert reason in shown.output
    assert "Traceback" not in shown.output


def test_a_bad_schema_file_says_where(tmp_path: Path) -> None:
    file = tmp_path / "bad.schema"
    file.write_text("[a: int,\n b strin]")
    shown = tidemark("schema", "show", str(file))
    assert shown.exit_code == 1
    assert "line 2, column 4" in shown.output


def test_bench_lists_what_there_is() -> None:
    assert "messages" in tidemark("bench").output


def test_the_demo_checks_itself() -> None:
    shown = tidemark("demo", "--json")
    assert shown.exit_code == 0
    outcome = json.loads(shown.stdout)
    assert outcome["published"] == 20_000
    assert outcome["decisions_checked"] > 100_000
    assert (outcome["missed"], outcome["wrongly_delivered"]) == (0, 0)


def every_command() -> list[list[str]]:
    found: list[list[str]] = []

    def walk(command: Any, names: list[str]) -> None:
        found.append(names)
        for name, child in getattr(command, "commands", {}).items():
            walk(child, [*names, name])

    walk(main, [])
    return found


@pytest.mark.parametrize("names", every_command(), ids=" ".join)
def test_every_command_explains_itself_and_is_in_the_manual(names: list[str]) -> None:
    assert tidemark(*names, "--help").exit_code == 0
    manual = (Path(__file__).parent.parent / "docs" / "cli.md").read_text()
    assert " ".join(["tidemark", *names]) in manual
