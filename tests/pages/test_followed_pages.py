"""The README, the tutorial and the how-to pages, followed word by word, each in a fresh directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.followed_page import FollowedPage, _fits
from tests.ports import free_ports

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


def test_what_is_printed_is_compared_line_by_line() -> None:
    assert _fits("a\nb\nc\n", "a\n...\nc\n")
    assert _fits("a\n", "a\n...\n")
    assert _fits("", "")
    assert not _fits("a\nb\n", "a\n")
    assert not _fits("a\n", "b\n")
    assert not _fits("a\nb\n", "...\na\n")
    assert _fits("a b c\nd\n", "a ...\nd\n")
    assert not _fits("b c\nd\n", "a ...\nd\n")


@pytest.mark.slow
def test_the_readme_can_be_followed_word_by_word(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    page = FollowedPage(ROOT / "README.md", tmp_path, port)
    page.follow()
    assert len(page.commands) >= 9


@pytest.mark.slow
def test_the_tutorial_can_be_followed_word_by_word(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    page = FollowedPage(DOCS / "tutorial.md", tmp_path, port)
    page.follow()
    assert len(page.commands) > 20
    assert {each.name for each in tmp_path.glob("*.py")} == {"freezers.py", "alarms.py", "count.py"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "commands"), [("backup", 13), ("checkpoint", 8), ("kafka", 6), ("rabbitmq", 6)]
)
def test_a_how_to_page_can_be_followed_word_by_word(name: str, commands: int, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    page = FollowedPage(DOCS / f"howto/{name}.md", tmp_path, port)
    page.follow()
    assert len(page.commands) >= commands


def test_a_page_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one\ntwo\n```\n")
    with pytest.raises(AssertionError, match="one"):
        FollowedPage(page, tmp_path, 1).follow()
