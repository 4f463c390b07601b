"""The pages on messages, selectors and matching: their examples run, and their errors are what is raised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidemark.errors import SchemaSyntaxError, SelectorError
from tidemark.matching.selectors.selector import Selector
from tidemark.message.schema import Schema

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["messages.md", "matching.md"])
def test_the_example_of_a_page_runs(page: str) -> None:
    examples = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, page, "exec"), {})


def test_the_page_shows_the_error_of_a_misspelt_field() -> None:
    with pytest.raises(SelectorError) as refused:
        Selector.parse("prize > 5", Schema.parse("[price: double]"))
    assert f"```\n{refused.value}\n```" in (DOCS / "selectors.md").read_text()


def test_the_page_shows_the_error_of_a_broken_schema() -> None:
    with pytest.raises(SchemaSyntaxError) as refused:
        Schema.parse("[\n a strin]")
    assert f"```\n{refused.value}\n```" in (DOCS / "messages.md").read_text()
