"""The command line, as a person or a script calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tidemark.admin import connection
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


@pytest.mark.parametrize("code", [0, 1])
def test_the_demo_ends_with_the_code_of_its_audit(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(
        "tidemark.lab.demo.demo.run", lambda *, as_json, with_spark: code if as_json and not with_spark else 2
    )
    assert tidemark("demo", "--json", "--no-spark").exit_code == code


def every_command() -> dict[tuple[str, ...], click.Command]:
    found: dict[tuple[str, ...], click.Command] = {}

    def walk(command: click.Command, *names: str) -> None:
        found[names] = command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                walk(child, *names, name)

    walk(main)
    return found


LEAVES = {
    names: command for names, command in every_command().items() if not isinstance(command, click.Group)
}
#: Prints a script for a shell, not for a program that reads JSON.
NO_JSON = {("completion",), ("man",)}


@pytest.mark.parametrize("names", every_command(), ids=" ".join)
def test_every_command_explains_itself_and_is_in_the_manual(names: tuple[str, ...]) -> None:
    assert tidemark(*names, "--help").exit_code == 0
    manual = " ".join((Path(__file__).parent.parent / "docs" / "cli.md").read_text().split())
    assert " ".join(["tidemark", *names]) in manual


@pytest.mark.parametrize("names", LEAVES, ids=" ".join)
def test_every_command_has_examples_and_speaks_json(names: tuple[str, ...]) -> None:
    example = " ".join(["tidemark", *names])
    assert any(example in line for line in tidemark(*names, "--help").output.splitlines()[3:])
    speaks = any(parameter.name == "as_json" for parameter in LEAVES[names].params)
    assert speaks is (names not in NO_JSON)


#: Nothing listens at port 1.
NOWHERE = "tidemark://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("topic", "create", "t"), "--schema TEXT|FILE, or --open"),
        (("pub", "t", "a=1", "--generate"), "one source of events"),
        (("pub", "t", "a=1", "--rate", "0"), "--rate"),
        (("pub", "t", "--file", "no-such-file"), "there is no file"),
        (("sub", "t", "--ack", "auto"), "--durable NAME"),
        (("sub", "t", "--durable", "d", "--from-checkpoint", "x", "--checkpoint-file", "y"), "not both"),
        (("sub", "t", "--values", "--json"), "not both"),
        (("sub", "t", "--wait", "soon"), "a number and a unit"),
        (("subs", "seek", "d", "--to", "yesterday"), "is not understood"),
        (("up", "--set", "nonsense"), "has no '='"),
        (("config", "show", "--broker", NOWHERE, "--set", "a.b=c"), "leave out"),
        (("broker",), "--config"),
        (("completion", "cmd"), "bash"),
    ],
)
def test_a_command_written_wrongly_is_told_how_and_exits_with_2(
    arguments: tuple[str, ...], reason: str
) -> None:
    shown = tidemark(*arguments)
    assert shown.exit_code == 2, shown.output
    assert reason in shown.output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("topic", "list"), 1), (("pub", "t", "a=1"), 1), (("sub", "t"), 1), (("lag",), 1), (("check",), 2)],
)
def test_a_broker_that_is_not_there_is_one_line_that_says_what_to_do(
    arguments: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.05)
    shown = tidemark(*arguments, "--broker", NOWHERE)
    assert shown.exit_code == code
    assert "tidemark up" in shown.output
    assert shown.output.count("\n") == 1


def test_the_broker_can_come_from_a_variable_and_its_form_is_checked() -> None:
    shown = CliRunner(env={"TIDEMARK_BROKER": "nonsense"}).invoke(main, ["topic", "list"])
    assert shown.exit_code == 2
    assert "write tidemark://host:port" in shown.output


def test_config_show_says_where_each_value_came_from(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text('[limits]\nping = "7s"\n')
    runner = CliRunner(env={"TIDEMARK_STORAGE_DURABILITY": "os"})
    arguments = ["config", "show", "--config", str(file), "--set", "broker.name=east"]
    rows = [json.loads(line) for line in runner.invoke(main, [*arguments, "--json"]).output.splitlines()]
    found = {row["key"]: (row["value"], row["source"]) for row in rows}
    assert found["limits.ping"] == ('"7s"', str(file))
    assert found["storage.durability"] == ('"os"', "TIDEMARK_STORAGE_DURABILITY")
    assert found["broker.name"] == ('"east"', "--set")
    assert found["broker.listen"] == ('"127.0.0.1:7676"', "default")
    assert "default" in runner.invoke(main, arguments).output


def test_a_topology_that_does_not_fit_together_is_refused_at_its_key(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text('[brokers.a]\nlisten = "127.0.0.1:1"\nparent = "b"\n')
    for command in (("topology", "show"), ("topology", "apply"), ("up", "--topology")):
        shown = tidemark(*command, str(file))
        assert shown.exit_code == 1
        assert "brokers.a.parent" in shown.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    shown = tidemark("completion", shell)
    assert shown.exit_code == 0
    assert f"_TIDEMARK_COMPLETE={shell}_complete" in shown.output
