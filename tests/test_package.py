"""The package as it is released: a wheel and a source archive that are whole, and run by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with what hatchling builds of the sources."""
    path = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return path


def test_the_wheel_has_every_module_and_every_file_that_the_console_serves(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    wanted = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert not {str(path.relative_to(source)) for path in wanted} - names


def test_the_source_archive_has_what_people_look_for(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/tidemark/__init__.py", "run"}
    assert wanted | {"deploy/container/Containerfile", "deploy/kubernetes/tidemark.yaml"} <= names


def test_the_wheel_that_the_source_archive_builds_is_the_same(built: Path, tmp_path: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "built")]
    subprocess.run(command, cwd=unpacked, check=True, capture_output=True)
    (ours,), (theirs,) = built.glob("*.whl"), (tmp_path / "built").glob("*.whl")
    assert ours.name == theirs.name
    assert digests(ours) == digests(theirs)


def digests(wheel: Path) -> dict[str, int]:
    """The files of a wheel with their checksums."""
    return {each.filename: each.CRC for each in zipfile.ZipFile(wheel).infolist()}


def test_what_is_in_the_wheel_runs(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    program = "import tidemark, tidemark.console.serving; print(tidemark.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    assert said.stdout.startswith(str(tmp_path))
    version = subprocess.run(
        [sys.executable, "-m", "tidemark", "--version"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert version.stdout.startswith("tidemark")
