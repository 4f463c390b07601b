"""Every block of Python that a page prints passes `mypy --strict` as it is printed.

A block that uses names from the text around it (`tm`, `sub`, `database`) becomes the body of a function that
has these names as parameters, of the types that the page means.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).parent.parent.parent
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
    ran = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context",
            *(str(tmp_path / f"{name}.py") for name, _ in found),
        ],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
