"""The public face: every name resolves, type checkers know them all, and pages name only what is there."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tidemark
from tidemark import errors

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: What looks like a name of the package on a page and is a file.
FILES = {"tidemark.toml", "tidemark.fish", "tidemark.db", "tidemark.service"}

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
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """What mypy reports: the lines of right.py and of wrong.py."""
    folder = tmp_path_factory.mktemp("typed")
    for name, text in (("right.py", RIGHT), ("wrong.py", WRONG)):
        (folder / name).write_text(text.lstrip("\n"))
    files = [str(folder / "right.py"), str(folder / "wrong.py")]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", *files],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    found: dict[str, list[int]] = {"right.py": [], "wrong.py": []}
    for line in ran.stdout.splitlines():
        match = re.match(r".*?(right\.py|wrong\.py):(\d+): error", line)
        if match:
            found[match[1]].append(int(match[2]))
    return found


@pytest.mark.slow
def test_a_type_checker_accepts_the_right_uses(reported: dict[str, list[int]]) -> None:
    assert reported["right.py"] == []


@pytest.mark.slow
def test_a_type_checker_reports_every_typo(reported: dict[str, list[int]]) -> None:
    lines = WRONG.lstrip("\n").splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if not line.startswith("import ")]
    assert sorted(set(reported["wrong.py"])) == wrong


@pytest.mark.parametrize("name", tidemark.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(tidemark, name) is not None
    assert name in dir(tidemark)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="conect"):
        tidemark.conect  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="histroy"):
        import_module("tidemark.spark").histroy  # noqa: B018


def test_every_error_is_exported() -> None:
    classes = [name for name, found in vars(errors).items() if inspect.isclass(found)]
    assert len(classes) > 25
    assert set(classes) <= set(tidemark.__all__)


def test_type_checkers_and_programs_see_the_same_names() -> None:
    tree = ast.parse(Path(tidemark.__file__).read_text())
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    imported = [alias.name for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(imported) == sorted(tidemark.__all__)


def resolves(dotted: str) -> bool:
    """Is there a module, or an attribute of one, of this name?"""
    parts = dotted.split(".")
    found: object = tidemark
    for index, part in enumerate(parts[1:], 2):
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = import_module(".".join(parts[:index]))
            except ImportError:
                return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_name_of_the_package_on_a_page_is_there(page: Path) -> None:
    named = set(re.findall(r"(?<![\w/.-])tidemark(?:\.[A-Za-z_]\w*)+(?!\w*[/-])", page.read_text())) - FILES
    assert not sorted(name for name in named if not resolves(name))
