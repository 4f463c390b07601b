"""Every page that uses the words of the project says where they are explained."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"
#: The glossary itself, pages that are made by a program, and lists of links or libraries.
WITHOUT = {"architecture.md", "figures.md", "reference/api.md", "dependencies.md"}


def test_every_page_links_to_the_glossary() -> None:
    pages = [page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "decisions"]
    found = [str(page.relative_to(DOCS)) for page in pages if "#the-words)" not in page.read_text()]
    assert set(found) == WITHOUT - {"architecture.md"}
