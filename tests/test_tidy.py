"""The house stays in order: who may import whom, what the pure rooms never touch, and what pages may cite."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.citations import DOCS, PAGE, broken_links, broken_names, broken_pages, parsed, remarks
from tidemark.sim.swarm.planted import BUGS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tidemark"

#: room -> rooms it may import, as docs/architecture.md draws them. `errors` is for all.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "ticks": set(),
    "message": {"ticks"},
    "matching": {"message", "ticks"},
    "access": {"matching", "message", "ticks"},
    "wire": {"message", "ticks"},
    "storage": {"message", "ticks"},
    "broker": {"access", "matching", "message", "ticks", "wire"},
    "persistence": {"broker", "message", "storage", "ticks", "wire"},
    "node": {"access", "broker", "matching", "message", "persistence", "storage", "ticks", "wire"},
    "client": {"message", "ticks", "wire"},
    "sync": {"client", "message", "ticks", "wire"},
    "queue": {"client", "message", "ticks", "wire"},
    "admin": {"access", "client", "matching", "node", "persistence", "storage", "sync", "wire"},
    "sim": {"access", "broker", "matching", "message", "persistence", "storage", "ticks", "wire"},
    "spark": {"client", "matching", "message", "storage", "sync", "ticks", "wire"},
    "console": {"access", "admin", "client", "matching", "message", "node", "ticks", "wire"},
    "lab": {
        "access", "broker", "client", "matching", "message", "node", "persistence", "sim", "spark",
        "storage", "sync", "ticks", "wire",
    },
    "cli": {
        "access", "admin", "client", "console", "lab", "matching", "message", "node", "sim", "spark",
        "storage", "sync", "ticks",
    },
}  # fmt: skip
PURE = {"ticks", "message", "matching", "access", "wire", "broker"}
FORBIDDEN_IN_PURE = {
    "asyncio", "multiprocessing", "os", "pyspark", "random", "secrets", "select", "selectors", "shutil",
    "signal", "socket", "subprocess", "tempfile", "threading", "time",
}  # fmt: skip
#: Of the module uuid only the type is used: its functions draw random numbers and read the clock.
FORBIDDEN_CALLS = {
    "open", "datetime.now", "datetime.utcnow", "datetime.today", "date.today", "import_module",
    "uuid1", "uuid4", "uuid.uuid1", "uuid.uuid4",
}  # fmt: skip
LINES_MAX = 600
MODULES_MAX = 15


@pytest.fixture(autouse=True, scope="module")
def _syntax_trees() -> Iterator[None]:
    """The trees of all modules are kept until the last test has read them.

    The collector of garbage would go through their millions of nodes again and again, which takes most of the
    time, and finds nothing, since trees have no cycles.
    """
    gc.disable()
    yield
    parsed.cache_clear()
    gc.enable()


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports out in full"
            assert node.module is not None
            yield node.module
            if node.module == "tidemark":
                yield from (f"tidemark.{alias.name}" for alias in node.names)


def rooms_imported(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("tidemark.")} - {"__version__"}


def calls(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_a_room_imports_only_what_it_may() -> None:
    wrong = {
        name_of(path): found
        for path in modules()
        if (room := room_of(path)) in MAY_IMPORT
        and (found := rooms_imported(path) - MAY_IMPORT[room] - {room, "errors"})
    }
    assert not wrong


def test_a_pure_room_has_no_clock_no_chance_and_no_io() -> None:
    wrong = {}
    for path in modules():
        if room_of(path) in PURE:
            modules_used = {name.split(".")[0] for name in imports(path)} & FORBIDDEN_IN_PURE
            called = {name for name in calls(path) if name in FORBIDDEN_CALLS or ".random." in name}
            if modules_used or called:
                wrong[name_of(path)] = modules_used | called
    assert not wrong


def test_a_module_says_what_it_owns_and_promises() -> None:
    assert not [name_of(path) for path in modules() if not ast.get_docstring(parsed(path))]


def test_a_module_stays_small() -> None:
    lengths = {name_of(path): path.read_text().count("\n") for path in modules()}
    assert not {name: lines for name, lines in lengths.items() if lines > LINES_MAX}


def test_a_directory_holds_few_modules() -> None:
    counted = Counter(path.parent.relative_to(SOURCE) for path in modules())
    assert not {str(where): count for where, count in counted.items() if count > MODULES_MAX}


def test_every_room_is_known() -> None:
    rooms = {room_of(path) for path in modules()} - {"__init__", "__main__"}
    assert rooms <= MAY_IMPORT.keys()


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines()]


def test_the_lock_is_hashed_and_names_no_host() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    packages = re.findall(r"^[a-z][^\s]*==", lock, re.MULTILINE)
    assert len(packages) > 10
    assert lock.count("--hash=sha256:") >= len(packages)


def test_no_file_names_the_machine_it_was_written_on() -> None:
    private = re.compile(r"(?:^|[\s\"'(=])/(?:work|root|home)/[a-z]")
    for path in tracked():
        if path.suffix in (".py", ".md", ".toml", ".sh", "") and path.is_file():
            assert not private.search(path.read_text(errors="replace")), path


def test_every_dependency_is_explained() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    explained = (ROOT / "docs" / "dependencies.md").read_text()
    names = re.findall(r'^    "([a-z0-9-]+)[><=]', text, re.MULTILINE)
    assert len(names) > 8
    assert not [name for name in names if f"`{name}`" not in explained]


PAGES = [
    *sorted(DOCS.rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
]
#: Pages about the code: every name in them is one of it.
CODE_PAGES = [DOCS / f"{name}.md" for name in ("architecture", "traps", "faults", "limits")]
CODE_PAGES += [ROOT / "CONTRIBUTING.md", *sorted((DOCS / "decisions").glob("*.md"))]
#: Where what is in the code was first written down; the pages of the project have taken their place.
FORMER_PAGES = re.compile(r"\b(?:DESIGN|TRAPS|FAULTS)\b")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_links_only_to_pages_and_headings_that_exist(page: Path) -> None:
    assert not broken_links(page)
    assert not broken_pages(page.read_text())


@pytest.mark.parametrize("page", CODE_PAGES, ids=named)
def test_a_page_about_the_code_names_only_what_is_in_it(page: Path) -> None:
    assert not broken_names(page)


def test_no_module_cites_a_page_that_does_not_exist() -> None:
    broken: dict[str, list[str]] = {}
    for path in tracked():
        if path.suffix == ".py" and path.is_file() and path.is_relative_to(ROOT):
            # To find the remarks of a module takes long; most modules cite nothing at all.
            if not any(cited.search(path.read_text()) for cited in (PAGE, FORMER_PAGES)):
                continue
            said = "\n".join(remarks(path))
            found = [*broken_pages(said), *FORMER_PAGES.findall(said)]
            if found:
                broken[named(path)] = found
    assert not broken


def test_every_bug_that_the_traps_name_is_planted() -> None:
    lines = re.findall(r"^Planted: ([a-z, -]+)", (DOCS / "traps.md").read_text(), re.MULTILINE)
    bugs = {bug.strip() for line in lines for bug in line.split(", ")}
    assert {bug for bug in bugs if " " not in bug} == BUGS.keys()


def test_every_page_is_found_from_the_way_in() -> None:
    linked = (DOCS / "README.md").read_text() + (DOCS / "decisions" / "README.md").read_text()
    pages = [page for page in sorted(DOCS.rglob("*.md")) if page != DOCS / "README.md"]
    assert not [named(page) for page in pages if f"{page.name})" not in linked]


def test_the_map_of_rooms_is_drawn_as_it_is_checked() -> None:
    drawn = (DOCS / "architecture.md").read_text()
    rows = re.findall(r"^\| <a id=\"room-[a-z]+\"></a>`([a-z]+)` \| ([a-z, `—]*) \|", drawn, re.MULTILINE)
    found = {room: set(re.findall(r"[a-z]+", may)) for room, may in rows}
    assert found == MAY_IMPORT
