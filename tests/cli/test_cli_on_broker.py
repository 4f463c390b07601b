"""The commands against a real broker in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.live_broker import Spoken, Tidemark, running_broker
from tests.ports import free_ports
from tests.waiting import eventually
from tidemark.admin import connection
from tidemark.cli import main
from tidemark.ticks import CheckpointToken

TRADES = "[symbol: string, price: double, qty: int, at: timestamp?]"


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with running_broker(tmp_path_factory.mktemp("broker") / "data") as said:
        yield said


@pytest.fixture
def tidemark(ready: dict[str, Any]) -> Tidemark:
    return Tidemark(ready["url"])


def test_a_topic_is_removed_after_a_question_and_created_again(tidemark: Tidemark) -> None:
    tidemark("topic", "create", "t.gone", "--schema", "[a: int]")
    tidemark("sub", "t.gone", "--durable", "rm.one", "--wait", "0.1s")
    tidemark("pub", "t.gone", "a=1")
    asked = tidemark("topic", "rm", "t.gone", stdin="n\n", code=1)
    assert "Nothing can be published to 't.gone' until it is created again." in asked
    assert "1 durable subscription of it (rm.one) is owed 1 event, which is still delivered." in asked
    assert "t.gone" in tidemark("topic", "list")
    (done,) = tidemark.json("topic", "rm", "t.gone", "--yes")
    assert done == {"topic": "t.gone", "removed": True, "subscriptions": ["rm.one"], "owed_events": 1}
    assert "t.gone" not in tidemark("topic", "list")
    assert "has removed the topic 't.gone'" in tidemark("topic", "show", "t.gone", code=1)
    assert "knows no topic 't.gone'" in tidemark("topic", "rm", "t.gone", "--yes", code=1)
    assert "'t.gone' was removed: create it again" in tidemark("pub", "t.gone", "a=2", code=1)
    assert "there is no topic 't.gone' yet" in tidemark("sub", "t.gone", "--wait", "0.1s")
    assert tidemark("topic", "create", "t.gone", "--schema", "[a: string]").strip() == "t.gone: [a: string]"
    tidemark("pub", "t.gone", "a=two")
    (shown,) = tidemark.json("topic", "show", "t.gone")
    assert [each["text"] for each in shown["versions"]] == ["[a: string]"]
    values = tidemark("sub", "t.gone", "--durable", "rm.one", "--wait", "1s", "--values")
    assert values.splitlines() == ['{"a": 1}', '{"a": "two"}']


def test_a_topic_is_created_listed_and_shown(tidemark: Tidemark, tmp_path: Path) -> None:
    file = tmp_path / "t.schema"
    file.write_text("[a: int]")
    assert "[a: int]" in tidemark("topic", "create", "t.shown", "--schema", str(file))
    tidemark("topic", "create", "t.shown", "--schema", "[a: int, b: string?]")
    assert tidemark.json("topic", "create", "t.open", "--open") == [
        {"topic": "t.open", "open": True, "schema": None}
    ]
    text = tidemark("topic", "create", "t.open", "--open", "--schema", "[a: int]")
    assert text.strip() == "t.open: open to any fields, [a: int]"
    assert "--open for any fields" in tidemark("topic", "create", "t.open", code=2)
    listed = {each["topic"]: each for each in tidemark.json("topic", "list")}
    assert listed["t.open"]["versions"] == 1
    assert listed["t.shown"] == {"topic": "t.shown", "open": False, "versions": 2}
    assert listed["t.open"]["open"]
    assert "declared" in tidemark("topic", "list")
    text = tidemark("topic", "show", "t.shown")
    assert "declared, 2 versions" in text
    assert "optional" in text
    (shown,) = tidemark.json("topic", "show", "t.shown")
    assert [field["path"] for field in shown["versions"][1]["fields"]] == ["a", "b"]
    assert "knows no topic 'nowhere'" in tidemark("topic", "show", "nowhere", code=1)


def test_an_incompatible_version_is_refused_with_the_reason(tidemark: Tidemark) -> None:
    tidemark("topic", "create", "t.strict", "--schema", "[a: int]")
    assert "a:" in tidemark("topic", "create", "t.strict", "--schema", "[a: string]", code=1)


def test_events_go_from_arguments_to_a_durable_subscriber(tidemark: Tidemark) -> None:
    tidemark("topic", "create", "trades", "--schema", TRADES)
    tidemark("sub", "trades", "--where", "price > 10", "--durable", "args", "--wait", "10ms")
    at = "2026-11-15T20:00:00+00:00"
    assert "at tick" in tidemark("pub", "trades", "symbol=123", "price=10.5", "qty=3", f"at={at}")
    tidemark("pub", "trades", "symbol=LOW", "price=1", "qty=1")
    published = tidemark.json("pub", "trades", "symbol=N", "price=11", "qty={n}", "--count", "3")
    assert [set(line) for line in published[:3]] == [{"tick"}] * 3
    assert published[3]["published"] == 3
    assert published[3]["last_tick"] == published[2]["tick"]
    events = tidemark.json("sub", "trades", "--durable", "args", "--where", "price > 10", "--count", "4")
    assert events[0]["value"] == {"symbol": "123", "price": 10.5, "qty": 3, "at": at}
    assert [event["value"]["qty"] for event in events[1:]] == [1, 2, 3]
    assert [event["tick"] for event in events[1:]] == [line["tick"] for line in published[:3]]
    assert CheckpointToken.parse(events[-1]["checkpoint"])["main"] >= published[2]["tick"]


def test_json_lines_come_back_as_they_were(tidemark: Tidemark, tmp_path: Path) -> None:
    lines = [{"n": n, "text": f"été {n}"} for n in range(3)]
    text = "\n".join(json.dumps(line) for line in lines)
    tidemark("sub", "j.lines", "--durable", "lines", "--wait", "10ms")
    assert "published 3 events" in tidemark("pub", "j.lines", "--file", "-", stdin=text)
    file = tmp_path / "lines.jsonl"
    file.write_text(text + "\n\n")
    tidemark("pub", "j.lines", "--file", str(file), "--key", "k", "--validity", "1h")
    tidemark("pub", "j.lines", "--file", str(file), "--count", "4")
    got = tidemark("sub", "j.lines", "--durable", "lines", "--count", "10", "--values")
    assert [json.loads(line) for line in got.splitlines()] == [*lines, *lines, *lines, lines[0]]


def test_a_line_that_is_no_event_is_named_and_those_before_it_are_published(tidemark: Tidemark) -> None:
    said = tidemark("pub", "j.broken", stdin='{"a": 1}\n{"a": 2}\n[3]\n{"a": 4}\n', code=1)
    assert "published 2 events" in said
    assert "line 3: an event is a JSON object" in said


def test_generated_events_fit_their_schema(tidemark: Tidemark) -> None:
    tidemark("topic", "create", "g.made", "--schema", TRADES)
    (summary,) = tidemark.json("pub", "g.made", "--generate", "--count", "2500", "--rate", "1000000")[2500:]
    assert summary["published"] == 2500
    assert "no schema" in tidemark("pub", "g.nowhere", "--generate", code=1)


def test_text_shows_time_topic_and_fields(tidemark: Tidemark) -> None:
    tidemark("sub", "x.text", "--durable", "text", "--wait", "10ms")
    tidemark("pub", "x.text", "name=ACME", "n=3")
    assert tidemark("tail", "x.text", "--durable", "text", "--count", "1").split()[1:] == [
        "x.text",
        "name=ACME",
        "n=3",
    ]


def test_a_checkpoint_file_is_where_the_next_reading_goes_on(tidemark: Tidemark, tmp_path: Path) -> None:
    file = str(tmp_path / "place")
    reading = ("sub", "c.file", "--durable", "filed", "--checkpoint-file", file, "--values")
    tidemark(*reading, "--wait", "10ms")
    tidemark("pub", "c.file", "n={n}", "--count", "5")
    assert tidemark(*reading, "--count", "2").split() == ['{"n":', "1}", '{"n":', "2}"]
    token = CheckpointToken.parse((tmp_path / "place").read_text().strip())
    assert tidemark(*reading, "--count", "3").count("\n") == 3
    (shown,) = tidemark.json("subs", "show", "filed")
    assert shown["pubends"]["main"]["acknowledged"] >= token["main"]
    (tmp_path / "place").write_text("tm1.nonsense")
    assert "cut or altered" in tidemark(*reading, "--count", "1", code=1)


def test_a_token_says_where_to_start(tidemark: Tidemark) -> None:
    tidemark("sub", "c.token", "--durable", "tokened", "--wait", "10ms")
    tidemark("pub", "c.token", "n={n}", "--count", "3")
    look = ("sub", "c.token", "--durable", "tokened", "--ack", "client")
    first, again = (tidemark.json(*look, "--count", "3") for _ in range(2))
    # A checkpoint may include silence behind its event, and so be later the second time.
    assert [each["tick"] for each in again] == [each["tick"] for each in first], "nothing was acknowledged"
    (last,) = tidemark.json(*look, "--from-checkpoint", first[1]["checkpoint"], "--count", "1")
    assert last["value"] == {"n": 3}


def test_the_past_is_replayed_without_a_name(tidemark: Tidemark) -> None:
    tidemark("sub", "c.past", "--durable", "past-keeper", "--wait", "10ms")
    tidemark("pub", "c.past", "n={n}", "--count", "3")
    for _ in range(2):
        found = tidemark.json("sub", "c.past", "--start", "earliest", "--count", "3", "--wait", "5s")
        assert [each["value"]["n"] for each in found] == [1, 2, 3]
    assert "--ack needs a place" in tidemark("sub", "c.past", "--ack", "client", code=2)


def test_waiting_for_a_topic_that_does_not_exist_is_told(tidemark: Tidemark) -> None:
    said = tidemark("sub", "nosuch", "--wait", "10ms")
    assert "there is no topic 'nosuch' yet: waiting for one" in said
    assert "no topic that 'no.such.*' matches" in tidemark("sub", "no.such.*", "--wait", "10ms")
    tidemark("topic", "create", "here", "--open")
    assert "there is no topic" not in tidemark("sub", "here", "--wait", "10ms")


def test_fewer_events_than_asked_for_is_a_failure(tidemark: Tidemark) -> None:
    assert "0 of 2 events came" in tidemark("sub", "nobody", "--count", "2", "--wait", "20ms", code=1)


def test_a_subscription_is_listed_moved_and_removed(tidemark: Tidemark) -> None:
    tidemark("sub", "s.moved", "--where", "n > 1", "--durable", "moved", "--wait", "10ms")
    tidemark("pub", "s.moved", "n={n}", "--count", "5")
    names = [each["name"] for each in tidemark.json("subs", "list")]
    assert "moved" in names
    assert "n > 1" in tidemark("subs", "list")
    assert "away" in tidemark("subs", "show", "moved")
    tidemark("sub", "s.moved", "--where", "n > 1000", "--durable", "calm", "--wait", "10ms")
    tidemark("pub", "s.moved", "n={n}", "--count", "5")
    lags = {each["name"]: each for each in tidemark.json("lag")}
    assert lags["moved"]["owed_events"] == 8
    assert lags["moved"]["owed_bytes"] > 8 * 8
    assert lags["moved"]["lag_seconds"] > 0
    assert (lags["calm"]["owed_events"], lags["calm"]["owed_bytes"], lags["calm"]["lag_seconds"]) == (0, 0, 0)
    assert "events, the oldest of" in tidemark("check", "--max-lag", "1us", code=1)
    (moved,) = tidemark.json("subs", "seek", "moved", "--to", "now")
    assert moved["pubends"]["main"]["lag_us"] == 0
    assert "0 of 1 events" in tidemark(
        "sub", "s.moved", "--durable", "moved", "--where", "n > 1", "--count", "1", "--wait", "50ms", code=1
    )
    assert "subscribe with a checkpoint" in tidemark("subs", "seek", "moved", "--to", "2001-01-01", code=1)
    assert "removed moved" in tidemark("subs", "rm", "moved")
    assert "no subscription 'moved'" in tidemark("subs", "show", "moved", code=1)


def test_a_connected_subscription_is_removed_only_by_force(tidemark: Tidemark) -> None:
    tidemark("sub", "s.held", "--durable", "held", "--wait", "10ms")
    tidemark("pub", "s.held", "n=1")
    reader = Spoken("sub", "s.held", "--durable", "held", "--values", "--broker", tidemark.url)
    assert reader.line() == '{"n": 1}\n'
    try:
        assert "force" in tidemark("subs", "rm", "held", code=1)
        assert tidemark.json("subs", "rm", "held", "--force") == [{"removed": "held"}]
    finally:
        reader.end(signal.SIGINT)


def test_ctrl_c_publishes_what_was_begun_and_counts_it(tidemark: Tidemark) -> None:
    tidemark("sub", "i.pub", "--durable", "counted", "--wait", "10ms")
    publisher = Spoken("pub", "i.pub", "n={n}", "--rate", "500", "--json", "--broker", tidemark.url)
    ticks = [json.loads(publisher.line())["tick"] for _ in range(20)]
    code, rest = publisher.end(signal.SIGINT)
    assert code == 0
    *more, summary = map(json.loads, rest)
    ticks += [line["tick"] for line in more]
    assert summary["published"] == len(ticks)
    got = tidemark.json("sub", "i.pub", "--durable", "counted", "--wait", "300ms")
    assert [event["tick"] for event in got] == ticks


def test_ctrl_c_ends_a_subscriber_and_what_it_printed_does_not_come_again(tidemark: Tidemark) -> None:
    tidemark("sub", "i.sub", "--durable", "ended", "--wait", "10ms")
    tidemark("pub", "i.sub", "n={n}", "--count", "3")
    reader = Spoken("sub", "i.sub", "--durable", "ended", "--values", "--broker", tidemark.url)
    assert [json.loads(reader.line())["n"] for _ in range(3)] == [1, 2, 3]
    assert reader.end(signal.SIGINT) == (0, [])
    tidemark("pub", "i.sub", "n=4")
    (event,) = tidemark.json("sub", "i.sub", "--durable", "ended", "--count", "1")
    assert event["value"] == {"n": 4}


def test_top_shows_rates_and_totals(tidemark: Tidemark) -> None:
    tidemark("pub", "o.top", "n=1")
    text = tidemark("top", "--once", "--interval", "10ms")
    for part in ("running", "published", "a second", "main"):
        assert part in text
    (shown,) = tidemark.json("top", "--once", "--interval", "10ms")
    assert shown["metrics"]["events_published"] > 0
    assert shown["rates"]["events_published"] == 0


def test_lag_goes_on_when_watched(tidemark: Tidemark) -> None:
    tidemark("sub", "o.lag", "--durable", "watched", "--wait", "10ms")
    watching = Spoken("lag", "--watch", "--interval", "10ms", "--broker", tidemark.url)
    try:
        lines = iter(watching.line, "")
        assert (
            sum(1 for _, line in zip(range(20), lines, strict=False) if line.startswith("subscription")) > 1
        )
    finally:
        assert watching.end(signal.SIGINT)[0] == 0


def test_check_speaks_to_monitoring(tidemark: Tidemark) -> None:
    assert tidemark("check").startswith("TIDEMARK OK - broker: tidemark is running")
    tidemark("sub", "o.check", "--durable", "late", "--wait", "10ms")
    tidemark("pub", "o.check", "n=1")
    (warned,) = tidemark.json("check", "--max-lag", "0", code=1)
    assert warned["state"] == "warning"
    assert [each["state"] for each in warned["checks"]] == ["ok", "ok", "ok", "warning"]
    assert "TIDEMARK CRITICAL - lag" in tidemark("check", "--critical-lag", "0", code=2)
    tidemark("subs", "rm", "late")


def test_a_running_broker_tells_its_configuration_and_its_neighbours(
    tidemark: Tidemark, ready: dict[str, Any]
) -> None:
    rows = {row["key"]: row for row in tidemark.json("config", "show", "--broker", tidemark.url)}
    assert rows["storage.data_dir"] == {
        "key": "storage.data_dir",
        "value": f'"{ready["data_dir"]}"',
        "source": "--data-dir",
    }
    drawn = tidemark("topology", "show", "--interval", "10ms")
    assert re.search(r"tidemark +tidemark +127.0.0.1:\d+ +main +running +0/s +0/s", drawn)


def test_a_mistake_in_a_selector_points_at_it(tidemark: Tidemark) -> None:
    tidemark("topic", "create", "m.selector", "--schema", TRADES)
    said = tidemark("sub", "m.selector", "--where", "prize > 1", code=1)
    assert "did you mean" in said
    assert "^" in said


def checked(tidemark: Tidemark) -> str:
    return CliRunner(env={"TIDEMARK_BROKER": tidemark.url}).invoke(main, ["check"]).output


def process_of(file: Path, broker: str) -> int | None:
    """The process that runs a broker of a topology file; None while there is none."""
    wanted = ["--config", str(file), "--broker", broker]
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if found.read_bytes().decode(errors="replace").split("\0")[-5:-1] == wanted:
                return int(found.parent.name)
    return None


def test_a_topology_starts_with_one_command_and_is_compared_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = dict(zip(("middle", "east", "west"), free_ports(3), strict=True))
    tables = [
        f'[brokers.{name}]\nlisten = "127.0.0.1:{port}"\n'
        + ('parent = "middle"\n' if name != "middle" else "")
        for name, port in ports.items()
    ]
    file, changed = tmp_path / "three.toml", tmp_path / "changed.toml"
    tables[1] += 'pubends = ["orders"]\n'
    file.write_text("".join(tables))
    tables[2] += 'pubends = ["more"]\n'
    changed.write_text("".join(tables))
    command = Tidemark("tidemark://127.0.0.1:1")
    drawn = command("topology", "show", str(file)).splitlines()
    assert drawn[-3:] == ["east", "└── middle", "    └── west"]
    whole = Spoken("up", "--no-pipeline", "--topology", str(file), "--json")
    try:
        assert [each["name"] for each in json.loads(whole.line())["brokers"]] == list(ports)
        addresses = [f"127.0.0.1:{port}" for port in ports.values()]
        assert json.loads(whole.line()) == {"url": f"tidemark://{','.join(addresses)}", "console": None}
        east, middle = (Tidemark(f"tidemark://127.0.0.1:{ports[name]}") for name in ("east", "middle"))
        eventually(lambda: "TIDEMARK OK" in checked(east) and "TIDEMARK OK" in checked(middle))
        for command in (east, Tidemark("")):
            assert command.json("topology", "plan", str(file)) == [{"version": 0, "changes": [], "steps": []}]
        (plan,) = east.json("topology", "plan", str(changed), code=1)
        assert [(each["kind"], each["name"], each["what"]) for each in plan["changes"]] == [
            ("pubend", "more", "added")
        ]
        assert "Aborted" in east("topology", "apply", str(changed), stdin="n\n", code=1)
        assert "done: version 1" in east("topology", "apply", str(changed), "--yes")
        same = {"version": 1, "changes": [], "steps": []}
        eventually(lambda: middle.json("topology", "plan", str(changed)) == [same])
        (shown,) = east.json("topology", "show", "--interval", "10ms")
        assert all(link["up"] for bundle in shown["bundles"] for link in bundle["links"])
        west = Tidemark(f"tidemark://127.0.0.1:{ports['west']}")
        assert "1 event" in west("pub", "some.topic", "n=1")
        # A broker that is killed is started again, and the others go on.
        killed = process_of(file, "west")
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: process_of(file, "west") not in (None, killed) and "TIDEMARK OK" in checked(west))
        assert "1 event" in west("pub", "some.topic", "n=2")
    finally:
        code, _ = whole.end(signal.SIGTERM)
    assert code == 0
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.1)
    assert "no broker answered" in command("topology", "plan", str(file), code=1)


def test_a_new_broker_joins_by_pointing_at_any_live_one_and_one_process_runs_two(tmp_path: Path) -> None:
    ports = dict(zip(("east", "west", "new"), free_ports(3), strict=True))
    file = tmp_path / "two.toml"
    file.write_text(
        f'[brokers.east]\nlisten = "127.0.0.1:{ports["east"]}"\npubends = ["orders"]\n'
        f'[brokers.west]\nlisten = "127.0.0.1:{ports["west"]}"\n'
        '[bundles.both]\ncells = ["west", "east"]\n[processes.one]\nbrokers = ["east", "west"]\n'
    )
    urls = {name: f"tidemark://127.0.0.1:{port}" for name, port in ports.items()}
    east, new = Tidemark(urls["east"]), Tidemark(urls["new"])
    two = Spoken("broker", "--config", str(file), "--process", "one", "--json")
    try:
        assert [json.loads(two.line())["broker"] for _ in range(2)] == ["east", "west"]
        arguments = (
            "broker", "--join", urls["west"], "--name", "new", "--cell", "east", "--json",
            "--listen", f"127.0.0.1:{ports['new']}", "--data-dir", str(tmp_path / "new"),
        )  # fmt: skip
        for _ in range(2):  # the second time it is part of the overlay already
            joining = Spoken(*arguments)
            try:
                assert json.loads(joining.line())["url"] == urls["new"]
                eventually(lambda: "TIDEMARK OK" in checked(east) and "TIDEMARK OK" in checked(new))
                (shown,) = east.json("topology", "show", "--interval", "10ms")
                links = {
                    (link["from"], link["to"]): link for each in shown["bundles"] for link in each["links"]
                }
                assert {name: link["local"] for name, link in links.items()} == {
                    ("east", "new"): False, ("west", "east"): True, ("west", "new"): False,
                }  # fmt: skip
                assert shown["version"] == 1
            finally:
                joining.process.terminate()
                assert joining.close() == 0
    finally:
        two.process.terminate()
        assert two.close() == 0


def test_what_cannot_be_meant_of_a_broker_is_said() -> None:
    command = Tidemark("")
    assert "--config FILE, or --join URL" in command("broker", code=2)
    assert "needs --name and --listen" in command("broker", "--join", "tidemark://127.0.0.1:1", code=2)
    said = command(
        "broker", "--join", "tidemark://127.0.0.1:1", "--name", "n", "--listen", "0.0.0.0:7676", code=1
    )
    assert "others call it there" in said
