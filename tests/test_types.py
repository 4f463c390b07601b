"""What mypy says: of the project, of uses of the public face, and of every block of Python on a page.

A block that uses names from the text around it (`tm`, `sub`, `database`) becomes the body of a function that
has these names as parameters, of the types that the page means.

One run of mypy, which takes most of a minute where its cache is empty, reads all of it; each test looks for
what was reported of its files.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import indent

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
#: Every page but the reference, whose blocks are signatures.
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page.parent.name != "reference"
]
IMPORTS = """
import asyncio
import logging
import sqlite3
from typing import Any

import pyspark.sql
import pyspark.sql.functions
import tidemark
import tidemark.message
import tidemark.queue
import tidemark.spark
"""
#: name that a page uses without having defined it -> its type, in a block with and without asyncio
TYPES: dict[str, tuple[str, str]] = {
    "tm": ("tidemark.Client", "tidemark.sync.Client"),
    "sub": ("tidemark.Subscription[tidemark.Event]", "tidemark.sync.Subscription[tidemark.Event]"),
}
SAME_TYPES = {
    "trade": "dict[str, object]",
    "trades": "list[dict[str, object]]",
    "order": "dict[str, object]",
    "order_id": "int",
    "url": "str",
    "database": "sqlite3.Connection",
    "log": "logging.Logger",
    "store": "tidemark.SqliteCheckpoints",
    "spark": "pyspark.sql.SparkSession",
    "F": "Any",
}
#: page -> names that mean something else there
ON_PAGE = {
    "docs_spark": {
        "trades": "pyspark.sql.DataFrame",
        "values": "list[dict[str, Any]]",
        "query": "Any",
    }
}

QUIET = ("--no-error-summary", "--hide-error-context")
#: Right uses of the public face.
RIGHT = """
import asyncio
import tidemark
import tidemark.queue
import tidemark.spark
from dataclasses import dataclass
from tidemark import Event, SelectorSyntaxError, errors

@dataclass
class Trade:
    price: float

async def main() -> None:
    async with tidemark.connect("tidemark://127.0.0.1:7676", client="me") as tm:
        tick: int | None = await tm.publish("t", {"n": 1})
        async with tm.subscribe("t", where="n > 0", durable="audit") as sub:
            async for event in sub:
                number: int = event["n"]
            async for batch in sub.batches():
                ticks: list[int] = batch.ticks.tolist()
        async with tm.subscribe("t", gaps=True) as both:
            async for item in both:
                if isinstance(item, Event):
                    number = item["n"]
                else:
                    lost: tuple[int, int] = item.base, item.upto
        async with tm.subscribe("t", into=Trade) as trades:
            async for trade in trades:
                price: float = trade.price

def blocking() -> None:
    with tidemark.sync.connect("tidemark://127.0.0.1:7676") as tm, tm.subscribe("t") as sub:
        for batch in sub.batches():
            token: tidemark.CheckpointToken = batch.checkpoint
    with tidemark.queue.connect("tidemark://127.0.0.1:7676", name="a", state="a.db") as queue:
        queue.put("t", "text")

try:
    asyncio.run(main())
except (SelectorSyntaxError, tidemark.RefusedError, errors.TimedOutError) as error:
    print(error.args)
history = tidemark.spark.history
"""

#: Each line after the imports is a mistake.
WRONG = """
import tidemark
import tidemark.queue
import tidemark.spark
from tidemark import Evnt
tidemark.conect("tidemark://127.0.0.1:7676")
tidemark.sync.conect("tidemark://127.0.0.1:7676")
tidemark.queue.conect("tidemark://127.0.0.1:7676")
tidemark.spark.histroy
tidemark.RefusdError
tidemark.connect("tidemark://127.0.0.1:7676", cleint="me")
tidemark.connect("tidemark://127.0.0.1:7676").publsh("t", {})
"""


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy reports, with the settings of the project.

    The lines about right.py, about wrong.py, about blocks, and, as `project`, about everything else.
    """
    folder = tmp_path_factory.mktemp("typed")
    right, wrong, block = folder / "right.py", folder / "wrong.py", folder / "blocks"
    right.write_text(RIGHT.lstrip("\n"))
    wrong.write_text(WRONG.lstrip("\n"))
    block.mkdir()
    for name, text in blocks():
        (block / f"{name}.py").write_text(module_of(name, text))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *QUIET, *settings["files"], str(right), str(wrong), str(block)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, list[str]] = {"right": [], "wrong": [], "blocks": [], "project": []}
    for line in (ran.stdout + ran.stderr).splitlines():
        # What mypy has in its cache is reported under the name that the folder had in an earlier run.
        place = Path(line.split(":")[0])
        name = place.parent.name if place.parent.name == block.name else place.stem
        found[name if name in found and not (ROOT / place).is_relative_to(ROOT) else "project"].append(line)
    # The mistakes in wrong.py show that mypy has read to the end.
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return found


def test_the_code_the_tests_and_the_examples_pass_a_strict_type_checker(
    reported: dict[str, list[str]],
) -> None:
    assert reported["project"] == []


def test_right_uses_of_the_public_face_are_accepted(reported: dict[str, list[str]]) -> None:
    assert reported["right"] == []


def test_every_typo_in_a_use_of_the_public_face_is_reported(reported: dict[str, list[str]]) -> None:
    lines = WRONG.lstrip("\n").splitlines()
    mistakes = [number for number, line in enumerate(lines, 1) if not line.startswith("import ")]
    errors = [line.split(":") for line in reported["wrong"]]
    assert sorted({int(number) for _, number, kind, *_ in errors if kind.strip() == "error"}) == mistakes


def test_every_printed_block_passes_a_strict_type_checker(reported: dict[str, list[str]]) -> None:
    assert len(blocks()) > 20
    assert reported["blocks"] == []


def blocks() -> list[tuple[str, str]]:
    """The name and the text of each block of Python."""
    found = []
    for page in PAGES:
        texts = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        name = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_").lower()
        found += [(f"{name}_{number}", text) for number, text in enumerate(texts, 1)]
    return found


def module_of(name: str, text: str) -> str:
    """The module with the block as the body of a function."""
    is_async = bool(re.search(r"\b(await|async)\b", text))
    body = f"{'async ' if is_async else ''}def block() -> None:\n{indent(text, '    ')}"
    names = [node for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)]
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    used = {node.id for node in names} - stored
    types = {name: pair[0 if is_async else 1] for name, pair in TYPES.items()} | SAME_TYPES
    types |= ON_PAGE.get(name.rpartition("_")[0], {})
    parameters = ", ".join(f"{name}: {types[name]}" for name in sorted(used & types.keys()))
    return f"{IMPORTS}\n{body.replace('block()', f'block({parameters})', 1)}"
