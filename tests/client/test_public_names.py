"""The public face: every name resolves, and pages name only what is there; its types are in test_types.py."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import tidemark
from tidemark import errors

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: What looks like a name of the package on a page and is a file.
FILES = {"tidemark.toml", "tidemark.fish", "tidemark.db", "tidemark.service"}


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
