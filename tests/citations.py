"""What pages and modules cite, and whether it is there: pages, headings, files, and names in the code.

A page cites code as `src/tidemark/broker/broker.py` or `src/tidemark/broker/broker.py: Broker.handle`, in
backquotes. Names in backquotes without a path are looked up in all modules of `src` and `tests`.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\">")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
#: a page that a text cites, with its heading or the number of an item
PAGE = re.compile(r"\b((?:docs/[\w./-]+|README|CONTRIBUTING|CHANGELOG)\.md)(?:#([\w-]+))?(?:, (\d+)\b)?")
_NUMBERED = re.compile(r"^#+ (\d+)\. ", re.MULTILINE)
_QUOTED = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"(?:src|tests|examples)/[\w./-]+")
_IN_FILE = re.compile(r"((?:src|tests|examples)/[\w./-]+\.py): (.+)")
_DRAWING = re.compile(r"^```(?:mermaid)?\n.*?^```", re.MULTILINE | re.DOTALL)
_METHOD = re.compile(r"\b[A-Z]\w+\.[a-z]\w*\b(?!\.)")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")


def prose(page: Path) -> str:
    """The text of a page without its blocks of code and drawings."""
    return _FENCE.sub("", page.read_text())


@cache
def anchors(page: Path) -> frozenset[str]:
    """Where a link may point inside a page: its headings, as GitHub names them, and explicit anchors."""
    text = prose(page)
    found = set(_ANCHOR.findall(text))
    seen: Counter[str] = Counter()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"<[^>]*>|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(found)


def broken_links(page: Path) -> list[str]:
    """Relative links of a page to files or headings that do not exist."""
    broken = []
    for target in _LINK.findall(prose(page)):
        if "://" in target or target.startswith("mailto:"):
            continue
        where, _, anchor = target.partition("#")
        file = (page.parent / where).resolve() if where else page
        is_there = file.exists() and (not anchor or file.suffix != ".md" or anchor in anchors(file))
        if not is_there:
            broken.append(target)
    return broken


def broken_pages(text: str) -> list[str]:
    """Pages, headings and numbered items that a text cites and that do not exist."""
    broken = []
    for name, anchor, number in PAGE.findall(text):
        page = ROOT / name
        if not page.is_file() or (anchor and anchor not in anchors(page)):
            broken.append(f"{name}#{anchor}" if anchor else name)
        elif number and name == "docs/traps.md" and number not in _NUMBERED.findall(page.read_text()):
            broken.append(f"{name}, {number}")
    return broken


def remarks(module: Path) -> Iterator[str]:
    """The comments and docstrings of a module."""
    for token in tokenize.generate_tokens(io.StringIO(module.read_text()).readline):
        is_docstring = token.type == tokenize.STRING and token.string.startswith(('"""', 'r"""'))
        if token.type == tokenize.COMMENT or is_docstring:
            yield token.string


@dataclass(slots=True)
class Names:
    """Names that modules define or use."""

    #: class -> its methods, fields and attributes
    classes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: functions, constants, aliases and imported names of modules
    top: set[str] = field(default_factory=set)
    #: every identifier that occurs
    used: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        """Is there such a class, member of a class, function or constant?"""
        first, _, member = name.partition(".")
        if not member:
            return first in self.classes or first in self.top
        return member in self.classes.get(first, ())

    def add(self, tree: ast.Module) -> None:
        """Take in the names of a module."""
        for statement in tree.body:
            self.top.update(_bound(statement))
        for node in ast.walk(tree):
            kind = type(node)
            if kind in _IDENTIFIER:
                self.used.add(getattr(node, _IDENTIFIER[kind]))
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name].update(_members(node))


def _bound(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            for target in targets:
                yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (alias.asname or alias.name for alias in names)


def _members(found: ast.ClassDef) -> Iterator[str]:
    for statement in found.body:
        yield from _bound(statement)
    for node in ast.walk(found):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                yield name


#: kind of node -> the attribute that has its identifier
_IDENTIFIER: dict[type[ast.AST], str] = {
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.arg: "arg",
    ast.keyword: "arg",
}


@cache
def parsed(module: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(module.read_text())


@cache
def names_of(module: Path) -> Names:
    """The names of one module."""
    names = Names()
    names.add(parsed(module))
    return names


@cache
def all_names() -> Names:
    """The names of all modules of `src` and `tests`."""
    names = Names()
    for folder in ("src", "tests"):
        for module in sorted((ROOT / folder).rglob("*.py")):
            names.add(parsed(module))
            names.used.update((module.stem, module.parent.name))
    return names


@cache
def settings() -> dict[str, set[str]]:
    """The sections of a broker's configuration, and the settings of each."""
    classes = names_of(ROOT / "src/tidemark/node/config/settings.py").classes
    return {name.removesuffix("Section").lower(): found for name, found in classes.items()}


def broken_names(page: Path) -> list[str]:
    """Files and names in backquotes of a page, and methods in its drawings, that are not in the code."""
    drawn = (name for drawing in _DRAWING.findall(page.read_text()) for name in _METHOD.findall(drawing))
    cited = dict.fromkeys([*_QUOTED.findall(prose(page)), *drawn])
    return [name for name in cited if not _is_there(name)]


def _is_there(quoted: str) -> bool:
    located = _IN_FILE.fullmatch(quoted)
    if located is not None:
        module = ROOT / located[1]
        return module.is_file() and all(names_of(module).has(each) for each in located[2].split(", "))
    if _FILE.fullmatch(quoted):
        return (ROOT / quoted).exists()
    if not _NAME.fullmatch(quoted):
        return True
    name, is_call = quoted.removesuffix("()"), quoted.endswith("()")
    first, _, member = name.rpartition(".")
    if member and first in all_names().classes:
        return all_names().has(name)
    if first.startswith("tidemark"):
        path = ROOT / "src" / name.replace(".", "/")
        return path.is_dir() or path.with_suffix(".py").is_file() or all_names().has(member)
    if first:  # a setting, if not a file's or a topic's name
        return member in settings().get(first, {member})
    if re.fullmatch(r"[A-Z][A-Za-z]*[a-z][A-Za-z]*", name) or name.isupper():
        return len(name) < 3 or all_names().has(name)
    return name in all_names().used or name in all_names().top if "_" in name or is_call else True
