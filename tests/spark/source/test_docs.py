"""The chapters on reading and writing say what works: their programs run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import live_node
from tests.spark.manual import MANUAL, programs, section
from tidemark import sync
from tidemark.spark import options


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_programs_of_the_manual_run(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    with live_node(tmp_path, **{"retention.archive": "true"}) as node:
        for program in programs("Reading", "Writing", "Updates"):
            here = program.replace("tidemark://127.0.0.1:7676", node.url).replace("/tmp/demo", str(tmp_path))
            exec(compile(here, str(MANUAL), "exec"), names)
        read = names["spark"].read.format("tidemark").option("broker", node.url)
        assert read.option("topic", "doubled").load().count() == 90
        assert read.option("topic", "copies").load().count() == 100
        with sync.connect(node.url) as tm:
            assert {each["topic"] for each in tm.ask("topics")} == {"trades", "doubled", "copies", "totals"}


@pytest.mark.parametrize(
    ("title", "known"),
    [("Options of the source", options._SOURCE), ("Options of the sink", options._SINK)],
)
def test_every_option_is_in_the_manual(title: str, known: tuple[str, ...]) -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", section(title), re.MULTILINE)) == known
