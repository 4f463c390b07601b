"""The manual, docs/spark.md, as tests read it: its sections, and the programs in them."""

from __future__ import annotations

import re
from pathlib import Path

MANUAL = Path(__file__).parents[2] / "docs" / "spark.md"


def section(title: str) -> str:
    """The text under a heading, up to the next heading of any level."""
    text = MANUAL.read_text()
    found = re.search(rf"^###? {re.escape(title)}\n(.*?)(?=^###? |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def programs(*titles: str) -> list[str]:
    """The programs of these sections, in order."""
    return [
        program
        for title in titles
        for program in re.findall(r"```python\n(.*?)```", section(title), re.DOTALL)
    ]
