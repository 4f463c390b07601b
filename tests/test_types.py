"""What mypy says: of the project, of uses of the public face, and of every block of Python on a page.

A block that uses names from the text around it (`tm`, `sub`, `database`) becomes the body of a function that
has these names as parameters, of the types that the page means.

The first test takes most of a minute where the cache of mypy is empty, and the others use that cache. So they
are in one file, which one worker runs in this order while other workers run other tests.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
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


def mypy(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mypy in the project, with its settings, and return what it said."""
    return subprocess.run(
        [sys.executable, "-m", "mypy", *arguments],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_code_the_tests_and_the_examples_pass_a_strict_type_checker() -> None:
    ran = mypy()
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """What mypy reports: the lines of right.py and of wrong.py."""
    folder = tmp_path_factory.mktemp("typed")
    for name, text in (("right.py", RIGHT), ("wrong.py", WRONG)):
        (folder / name).write_text(text.lstrip("\n"))
    ran = mypy(*QUIET, str(folder / "right.py"), str(folder / "wrong.py"))
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    found: dict[str, list[int]] = {"right.py": [], "wrong.py": []}
    for line in ran.stdout.splitlines():
        match = re.match(r".*?(right\.py|wrong\.py):(\d+): error", line)
        if match:
            found[match[1]].append(int(match[2]))
    return found


def test_right_uses_of_the_public_face_are_accepted(reported: dict[str, list[int]]) -> None:
    assert reported["right.py"] == []


def test_every_typo_in_a_use_of_the_public_face_is_reported(reported: dict[str, list[int]]) -> None:
    lines = WRONG.lstrip("\n").splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if not line.startswith("import ")]
    assert sorted(set(reported["wrong.py"])) == wrong


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


def test_every_printed_block_passes_a_strict_type_checker(tmp_path: Path) -> None:
    found = blocks()
    assert len(found) > 20
    for name, text in found:
        (tmp_path / f"{name}.py").write_text(module_of(name, text))
    ran = mypy("--strict", *QUIET, *(str(tmp_path / f"{name}.py") for name, _ in found))
    assert ran.returncode == 0, ran.stdout + ran.stderr
