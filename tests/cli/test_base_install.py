"""The package as `pip install tidemark` installs it, without extras: what needs one says so, in one line."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import tidemark

SOURCE = Path(tidemark.__file__).parents[1]
RUN = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); from tidemark.cli import main; main()"


def required(name: str, found: dict[str, list[Path]]) -> None:
    """Add the files at the top of a distribution, and of what it needs; extras are left out."""
    if name.lower() in found:
        return
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        return  # for another platform or version of Python
    at = Path(str(installed.locate_file("")))
    tops = {Path(str(each)).parts[0] for each in installed.files or ()} - {".."}
    found[name.lower()] = [] if name == "tidemark" else [at / top for top in tops]
    for each in installed.requires or ():
        if "extra ==" not in each:
            required(re.split(r"[^\w.-]", each, maxsplit=1)[0], found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what a base install has, and nothing else."""
    place = tmp_path_factory.mktemp("site")
    found: dict[str, list[Path]] = {}
    required("tidemark", found)
    for path in {path for paths in found.values() for path in paths}:
        if path.exists():
            (place / path.name).symlink_to(path)
    metadata = Path(str(distribution("tidemark").locate_file(""))).glob("tidemark-*.dist-info")
    for path in metadata:
        (place / path.name).symlink_to(path)
    return place


def run(site: Path, *arguments: str, code: str = RUN) -> tuple[int, str]:
    command = [sys.executable, "-I", "-S", "-c", code, f"{site}:{SOURCE}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=site, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    ["pipeline status --offline", "pipeline archive --once", "demo"],
)
def test_a_command_that_needs_spark_says_what_to_install(site: Path, command: str) -> None:
    code, said = run(site, *command.split())
    assert "Traceback" not in said
    assert "pip install 'tidemark[spark]'" in said
    assert code in (1, 2)


def test_a_program_that_needs_spark_is_told_what_to_install(site: Path) -> None:
    program = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); from tidemark.spark import history"
    _, said = run(site, code=program)
    assert said.strip().splitlines()[-1].endswith("pip install 'tidemark[spark]'")


def test_a_broker_that_is_to_trace_says_what_to_install(site: Path, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('[tracing]\nendpoint = "http://127.0.0.1:4318"\n')
    code, said = run(site, "broker", "--config", str(tmp_path / "t.toml"))
    assert (code, "Traceback" in said) == (1, False)
    assert "pip install 'tidemark[otel]'" in said


def test_what_needs_no_extra_works(site: Path) -> None:
    assert run(site, "schema", "show", str(SOURCE.parent / "examples/trades.schema"))[0] == 0
    assert run(site, "lab", "list")[0] == 0
    code, said = run(site, "lag", "--broker", "127.0.0.1:1")
    assert (code, said.count("\n")) == (1, 1)
    assert "nobody listens" in said
