"""What commands are made of: values, generated events, pace, tables, verdicts, screens, trees."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.admin.samples import METRICS, OVERLAY, REPORTS, pubend, status, stream, subscription
from tests.storage.sync_recorder import record_syncs
from tidemark.admin import BrokerSnapshot, describe_overlay, lags_of, rates_between
from tidemark.admin.numbers import show_bytes, show_seconds, show_time
from tidemark.cli.brokers.overview import draw
from tidemark.cli.connection import Interrupts
from tidemark.cli.options import duration, settings
from tidemark.cli.output import emit, table, visible_values
from tidemark.cli.pubsub.checkpoint_file import CheckpointFile
from tidemark.cli.pubsub.flow import at_most, lines_again, lines_of, made, paced
from tidemark.cli.pubsub.generate import Generator
from tidemark.cli.pubsub.sub import _shown
from tidemark.cli.pubsub.values import event_maker, split_fields, values_of
from tidemark.cli.root import main
from tidemark.cli.topic import read_schema
from tidemark.cli.watching.screen import draw_lags, draw_top, watch
from tidemark.cli.watching.subs import parse_goal
from tidemark.client.connecting.refusals import error_of
from tidemark.errors import EncodeError, NotConnectedError, RefusedError, SchemaError
from tidemark.message.foreign.json.plain import to_json_value
from tidemark.message.schema import Schema
from tidemark.node.topology.file import parse_topology
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Refused

SCHEMA = Schema.parse(
    "[name: string, n: int, ok: boolean?, price: decimal(6, 2), at: timestamp?, raw: bytes?, "
    "venue: { lit: [] | dark: [pool: string] }?, tags: *(string)*, inner: [x: double]?]"
)
NOW = datetime(2026, 11, 15, 20, tzinfo=UTC)


def event(*arguments: str, schema: Schema | None = None, number: int = 1) -> Any:
    return event_maker(split_fields(arguments), schema)(number)


def test_a_schema_decides_what_an_argument_means() -> None:
    made_of = event(
        "name=12", "n=12", "ok=true", "price=1.50", "at=2026-11-15T20:00:00Z", "raw=AAE=",
        "venue.dark.pool=7", 'tags=["1", "2"]', "inner.x=1", schema=SCHEMA,
    )  # fmt: skip
    assert made_of == {
        "name": "12", "n": 12, "ok": True, "price": Decimal("1.50"), "at": NOW, "raw": b"\0\1",
        "venue": {"dark": {"pool": "7"}}, "tags": ["1", "2"], "inner": {"x": 1},
    }  # fmt: skip


def test_without_a_schema_json_speaks_for_itself_and_the_rest_is_text() -> None:
    assert event("a=1", "b=x=y", "c.d=null", "e=", 'f="1"') == {
        "a": 1,
        "b": "x=y",
        "c": {"d": None},
        "e": "",
        "f": "1",
    }


@pytest.mark.parametrize("schema", [None, Schema.parse("[price: double]"), Schema.parse("[price: dynamic]")])
def test_a_number_beyond_all_doubles_is_refused(schema: Schema | None) -> None:
    for wrong in ("1e400", "-1e400"):
        with pytest.raises(EncodeError, match="beyond what a double can hold"):
            event(f"price={wrong}", schema=schema)
        with pytest.raises(EncodeError, match=r"line 1: .*beyond what a double can hold"):
            list(values_of([[f'{{"price": {wrong}}}']], schema))


def test_a_long_line_is_refused_as_soon_as_it_is_too_long() -> None:
    class Endless(BytesIO):
        taken = 0

        def read1(self, size: int | None = -1) -> bytes:
            assert size is not None
            self.taken += size
            return b"x" * size

    stream = Endless()
    with pytest.raises(click.ClickException, match="a line is over 8 MiB"):
        list(lines_of(stream, Interrupts()))
    assert stream.taken < 9 << 20


def test_a_line_that_comes_in_pieces_is_one_line() -> None:
    class Slow(BytesIO):
        def read1(self, size: int | None = -1) -> bytes:  # noqa: ARG002
            return super().read1(3)

    lines = [line for some in lines_of(Slow(b"one\n\ntwo and three\nfour"), Interrupts()) for line in some]
    assert lines == ["one", "", "two and three", "four"]


def test_a_schema_file_that_is_not_there_is_told() -> None:
    for name in ("trades.schema", "schemas/trades", "./trades.json"):
        with pytest.raises(click.UsageError, match="there is no file"):
            read_schema(name)
    with pytest.raises(SchemaError, match="there is no type 'strin': did you mean string"):
        read_schema("[symbol: strin]")
    assert read_schema("[a: int]").text == "[a: int]"


def test_the_number_of_an_event_can_be_part_of_it() -> None:
    assert event("a={n}", "b=no-{n}", number=7) == {"a": 7, "b": "no-7"}


@pytest.mark.parametrize("wrong", [("a",), ("=1",), ("a=1", "a.b=2")])
def test_arguments_that_are_no_fields_are_refused(wrong: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        event(*wrong)


def test_lines_are_read_by_the_schema_and_counted() -> None:
    values = values_of(
        iter([['{"a": 1}', ""], ['{"a": 2}', '{"b": 2}', '{"a": 3}']]), Schema.parse("[a: int]")
    )
    assert next(values) == [{"a": 1}]
    assert next(values) == [{"a": 2}]
    with pytest.raises(EncodeError, match="line 4"):
        next(values)


def test_lines_come_as_they_are_written() -> None:
    class Slow(BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            del size
            return super().read1(4)

    with Interrupts() as interrupts:
        assert [line for some in lines_of(Slow(b"one\ntwo\nlast"), interrupts) for line in some] == [
            "one",
            "two",
            "last",
        ]


def test_a_file_is_repeated_and_an_empty_one_refused(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("1\n\n2\n")
    assert list(islice(lines_again(file), 2)) == [["1", "2"], ["1", "2"]]
    file.write_text("\n")
    with pytest.raises(click.ClickException, match="no events"):
        next(lines_again(file))


def test_a_flow_ends_at_its_count_or_when_told() -> None:
    with Interrupts() as interrupts:
        flow = paced(made(lambda number: number, 2_500), None, interrupts)
        assert [number for some in flow for number in some] == list(range(1, 2_501))
        assert list(at_most(iter([[1, 2], [3, 4], [5]]), 3)) == [[1, 2], [3]]
        endless = paced(made(lambda number: number, None), 1e6, interrupts)
        assert next(endless)[0] == 1
        signal.raise_signal(signal.SIGINT)
        assert interrupts.is_interrupted
        assert list(endless) == []


def test_ctrl_c_ends_a_wait_at_once_and_twice_ends_all() -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert not interrupts.sleep(1000.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_generated_events_are_events_of_the_schema_and_the_same_again() -> None:
    one, two = Generator(SCHEMA), Generator(SCHEMA)
    for number in range(1, 50):
        value = one(number)
        SCHEMA.encode(value)
        assert value == two(number)
        assert value["n"] == number


def test_recursive_schemas_generate_finite_events() -> None:
    schema = Schema.parse("Tree\nTree: [n: long, left: Tree?, right: Tree?, more: *(Tree)*]")
    for number in range(1, 20):
        schema.encode(Generator(schema, seed=number)(number))


def test_a_value_is_written_as_it_can_be_read_back() -> None:
    value = {
        "at": NOW,
        "raw": b"\0\1",
        "price": Decimal("1.50"),
        "x": [float("nan"), float("-inf"), 1.5, None],
    }
    assert to_json_value(value) == {
        "at": "2026-11-15T20:00:00+00:00",
        "raw": "AAE=",
        "price": "1.50",
        "x": ["NaN", "-Infinity", 1.5, None],
    }


def test_columns_are_aligned_whatever_their_colours() -> None:
    text = table(("a", "b"), [(click.style("x", fg="red"), "1"), ("long", "100")], right=[1])
    assert click.unstyle(text) == "a       b\nx       1\nlong  100"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (0.0123, "12.3 ms"),
        (75, "75 s"),
        (600, "10 min"),
        (9_000, "2.5 h"),
        (1e6, "11.6 d"),
    ],
)
def test_times_read_well(seconds: float | None, text: str) -> None:
    assert show_seconds(seconds) == text


def test_sizes_and_ticks_read_well() -> None:
    assert [show_bytes(size) for size in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert show_time(0) == "1970-01-01T00:00:00+00:00"
    assert show_time(None) == "-"


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("now", "now"),
        ("12", 12),
        ("10m", 1794772800_000_000 - 600_000_000),
        ("2026-11-15T20:00:00", 1794772800_000_000),
        ("2026-11-15T21:00:00+01:00", 1794772800_000_000),
        (CheckpointToken({"p": 3}).text(), CheckpointToken({"p": 3}).text()),
    ],
)
def test_a_goal_is_now_a_time_a_tick_or_a_token(text: str, goal: str | int) -> None:
    assert parse_goal(text, NOW) == goal


@pytest.mark.parametrize("text", ["yesterday", "10 parsecs", "2026-13-01"])
def test_a_goal_that_is_none_of_these_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_goal(text, NOW)


@pytest.mark.parametrize("text", ["9" * 5_000, "1794872800000000", "2027-01-01", "9999-12-31T23:59:59"])
def test_a_goal_in_the_future_is_refused_with_what_it_can_be(text: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        parse_goal(text, NOW, "--start")
    assert "it is 2026-11-15T20:00:00 now, which is the tick 1794772800000000" in refused.value.message
    assert refused.value.param_hint == "--start"


def test_a_damaged_token_is_no_goal() -> None:
    with pytest.raises(click.BadParameter, match="cut or altered"):
        parse_goal("tm1.abc", NOW)


def test_durations_and_settings_are_read_as_written() -> None:
    assert [duration(text) for text in ("250ms", "2", "1.5", "1h")] == [0.25, 2.0, 1.5, 3600.0]
    assert settings(("a.b=c=d", "e.f=")) == {"a.b": "c=d", "e.f": ""}
    with pytest.raises(click.BadParameter):
        settings(("a.b",))
    with pytest.raises(click.BadParameter):
        duration("soon")


def test_a_checkpoint_file_holds_one_token(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "place")
    assert file.load() is None
    token = CheckpointToken({"main": 7})
    assert file.save(token)
    assert not file.save(token)
    assert CheckpointFile(tmp_path / "place").load() == token
    assert [path.name for path in tmp_path.iterdir()] == ["place"]
    with pytest.raises(click.ClickException, match="cannot be written"):
        CheckpointFile(tmp_path / "none" / "place").save(token)


def test_a_checkpoint_that_is_saved_is_on_disk_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = record_syncs(monkeypatch)
    CheckpointFile(tmp_path / "place").save(CheckpointToken({"p": 7}))
    assert synced == [tmp_path / "place.new", tmp_path]


def test_who_is_furthest_behind_comes_first() -> None:
    lags = lags_of(
        [
            subscription("a", 0),
            subscription("b", None),
            subscription("c", 2_000_000),
            subscription("~", 9, durable=False),
        ]
    )
    assert [(each.name, each.lag_seconds) for each in lags] == [("c", 2.0), ("a", 0.0), ("b", None)]
    assert "catching up" in draw_lags(lags)
    assert "away" in draw_lags(lags_of([subscription("d", 1, connected=False)]))


def test_top_shows_rates_alarms_and_how_many_are_not_shown() -> None:
    snapshot = BrokerSnapshot(
        1.0,
        status(alarms=("the archive is away",)),
        METRICS,
        pubends=[pubend("main", size=4096)],
        streams=[stream("main", window_bytes=100, catching_up=2), stream("far")],
        subscriptions=[subscription(f"s{n}", n) for n in range(12)],
        rates=rates_between({"events_published": 500}, METRICS, 2.0),
        link_rates={"west": {"Knowledge": (12.5, 3_000.0), "Nack": (0.0, 0.0)}},
    )
    text = click.unstyle(draw_top(snapshot))
    for part in (
        "published       250   1,000",
        "! the archive is away",
        "elsewhere",
        "(2 more)",
        "links 1/1",
        "west     Knowledge      12.5",
    ):
        assert part in text


def test_those_who_watch_see_a_broker_leave_and_return(capsys: pytest.CaptureFixture[str]) -> None:
    with Interrupts() as interrupts:
        pages: Iterator[str | NotConnectedError] = iter(
            ["one", NotConnectedError("the broker was lost"), "two"]
        )

        def draw() -> str:
            page = next(pages)
            if page == "two":
                signal.raise_signal(signal.SIGINT)
            if isinstance(page, NotConnectedError):
                raise page
            return page

        watch(draw, 0.0, interrupts)
    assert capsys.readouterr().out.split("\n\n") == ["one", "the broker was lost", "two\n"]


def test_an_overlay_is_drawn_with_its_cells_bundles_and_trees() -> None:
    drawn = draw(describe_overlay(parse_topology(OVERLAY, 0)))
    assert click.unstyle(drawn).splitlines() == [
        "cell  broker         at              pubends",
        "east  e1             127.0.0.1:7001  orders",
        "      e2 (draining)  127.0.0.1:7002  -",
        "west  w1             127.0.0.1:7003  -",
        "",
        "bundle  cells        link",
        "inside  east         e1 - e2",
        "ew      west - east  w1 - e1",
        "                     w1 - e2",
        "",
        "tree main  orders",
        "east",
        "└── west",
    ]


def test_a_running_overlay_is_drawn_with_states_and_rates() -> None:
    drawn = click.unstyle(draw(describe_overlay(parse_topology(OVERLAY, 2), REPORTS[1], REPORTS[0])))
    assert "overlay version 2" in drawn
    assert re.search(r"e1 .* running +10/s +0/s", drawn)
    assert re.search(r"e2 .* not running", drawn)
    assert re.search(r"w1 - e1 +up +10/s +1000 B/s +- +- +orders", drawn)


@dataclass(frozen=True, slots=True)
class Said:
    """An answer with text from strangers at several depths."""

    name: str
    count: int
    parts: tuple[str, ...]
    inner: dict[str, Any]


def test_every_string_of_an_answer_is_made_visible_at_any_depth() -> None:
    shown = visible_values([Said("a\x1b[2J", 3, ("b\nc",), {"k\r": [b"\x1b", "\u202e"]})])
    assert shown == [Said("a\\x1b[2J", 3, ("b\\nc",), {"k\\r": [b"\x1b", "\\u202e"]})]


def test_text_output_of_events_and_errors_has_no_control_characters_of_strangers() -> None:
    assert _shown("plain") == "plain"
    assert _shown("\x1b[31mred\nline") == r"\x1b[31mred\nline"
    assert _shown({"a\x9b": "\u2028"}) == r'{"a\x9b": "\u2028"}'

    @click.command()
    def fails() -> None:
        raise RefusedError("no\x1b[2J\nError: forged", what="x", name="y", code="z")

    group = type(main)("tidemark", commands={"fails": fails})
    with pytest.raises(click.ClickException) as caught:
        group.main(["fails"], standalone_mode=False)
    assert caught.value.message == "no\\x1b[2J\n  Error: forged"


def test_json_output_has_no_control_characters_of_strangers(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"text": "\x9b2J\u202e\x7f"})
    assert capsys.readouterr().out == '{"text": "\\u009b2J\\u202e\\u007f"}\n'


def test_a_refusal_that_a_program_prints_has_no_control_characters_of_its_broker() -> None:
    error = error_of(Refused("subscribe", "a\x1b[2J", "code", "no\x1b[2J\nError: forged"))
    assert str(error) == "subscribe a\\x1b[2J: no\\x1b[2J\n  Error: forged"


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("sub t --from-checkpoint nonsense --durable d", "--from-checkpoint"),
        ("sub t --start nonsense", "--start"),
        ("sub t --start tm1.AAAA", "--start"),
        ("sub t --push nowhere", "--push"),
        ("sub t --ack auto", "--ack"),
        ("sub t --wait 5x", "--wait"),
        ("lag --broker http://x:1", "--broker"),
        ("up --listen nowhere", "--listen: broker.listen"),
        ("up --http nowhere", "--http: http.listen"),
        ("up --set broker.listen=nowhere", "--set: broker.listen"),
        ("up --set nokey=1", "--set: nokey"),
        ("up --set storage.durability=maybe", "--set: storage.durability"),
    ],
)
def test_an_error_names_the_option_that_was_used(line: str, option: str) -> None:
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code in (1, 2)
    assert option in done.output.splitlines()[-1]
