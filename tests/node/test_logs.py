"""What is logged, and how often."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tidemark.node import logs
from tidemark.node.logs import REPEATS_MAX, ROOT, Log, configure


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger(ROOT)
    before = (root.handlers, root.level, root.propagate)
    yield
    root.handlers, root.level, root.propagate = before


def test_a_line_of_json_has_its_text_and_values() -> None:
    stream = io.StringIO()
    configure("info", "auto", stream)
    Log("part").info("something happened", peer="b")
    Log("part").debug("not said")
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert (found["level"], found["part"], found["text"], found["peer"]) == (
        "info",
        "part",
        "something happened",
        "b",
    )


def test_a_line_of_text_is_for_people_and_an_error_has_its_trace() -> None:
    stream = io.StringIO()
    configure("info", "text", stream)
    try:
        raise ValueError("wrong")
    except ValueError as error:
        Log("part").error("it broke", cause=error, disk="a")
    assert "error   part: it broke disk=a" in stream.getvalue()
    assert "ValueError: wrong" in stream.getvalue()


def test_what_is_said_too_often_is_counted_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    configure("info", "json", stream)
    clock = [0.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: clock[0])  # type: ignore[attr-defined]  # a module
    log = Log("part")
    for _ in range(REPEATS_MAX + 5):
        log.warning("again")
    assert len(stream.getvalue().splitlines()) == REPEATS_MAX
    clock[0] = 11.0
    log.warning("again")
    assert json.loads(stream.getvalue().splitlines()[-1])["left_out"] == 5


def test_what_strangers_say_stays_on_its_line_and_does_nothing_to_a_terminal() -> None:
    out = io.StringIO()
    configure("info", "text", out)
    Log("test").warning("refused", name="a\nERROR all is well\x1b[2J", reason="\u202eabc")
    (line,) = out.getvalue().splitlines()
    assert line.endswith(r"refused name=a\nERROR all is well\x1b[2J reason=\u202eabc")
    try:
        raise ValueError("bad\x1b[2J")
    except ValueError as error:
        Log("test").error("failed", cause=error)
    assert "\x1b" not in out.getvalue()


def test_a_line_of_json_does_nothing_to_a_terminal_either() -> None:
    out = io.StringIO()
    configure("info", "json", out)
    Log("test").warning("refused", name="a\x9b2J\u202e\ud800")
    (line,) = out.getvalue().splitlines()
    assert line.isprintable()
    assert json.loads(line)["name"] == "a\x9b2J\u202e\ud800"
