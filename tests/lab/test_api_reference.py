"""The API reference is what the docstrings say today."""

from __future__ import annotations

from pathlib import Path

import tidemark
from tidemark.lab.api_reference import COMMAND, PAGE, render

ROOT = Path(__file__).parent.parent.parent


def test_the_api_reference_is_not_stale() -> None:
    stale = f"{PAGE} is not what the docstrings say: run `{COMMAND}` and commit the page"
    assert (ROOT / PAGE).read_text() == render(), stale


def test_the_api_reference_has_every_public_name() -> None:
    page = render()
    missing = [
        name
        for name in tidemark.__all__
        if f"### {name}\n" not in page and f"| `{name}` |" not in page and f"## tidemark.{name}\n" not in page
    ]
    # The errors module is a table of the page.
    assert missing == ["errors"]
