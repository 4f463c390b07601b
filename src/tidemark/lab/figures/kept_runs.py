"""KeptRuns, KeptExperiments: what is finished of a long measurement, which goes on after an interruption."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import tidemark
from tidemark.lab.figures.table import Table, read_all


def fingerprint_of_code() -> str:
    """Returns a digest of this package's modules: runs of other code must not be mixed with those of this."""
    root, digest = Path(tidemark.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class KeptRuns:
    """The finished runs of one experiment by one state of the code; runs by another state are removed."""

    def __init__(self, directory: Path, fingerprint: str) -> None:
        self._directory = directory / fingerprint
        for other in directory.iterdir() if directory.is_dir() else ():
            if other != self._directory:
                shutil.rmtree(other)
        self._directory.mkdir(parents=True, exist_ok=True)

    def find(self, name: str) -> dict[str, Table] | None:
        """Returns the tables of a run by their names; None if the run has not been finished."""
        place = self._directory / name
        return read_all(place) if place.is_dir() else None

    def keep(self, name: str, tables: Sequence[Table]) -> None:
        """Write the tables of a finished run; either all of them are found afterwards or none is."""
        unfinished = self._directory / f"{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        for table in tables:
            table.write(unfinished)
        unfinished.rename(self._directory / name)


class KeptExperiments:
    """Which experiments a run of all of them has finished: an interruption loses only the one under way.

    One file for each state of the code has the names. It is there until all experiments are finished.
    """

    def __init__(self, out: Path, fingerprint: str) -> None:
        self._path = out / f"all-{fingerprint}.txt"
        out.mkdir(parents=True, exist_ok=True)
        for other in out.glob("all-*.txt"):
            if other != self._path:
                other.unlink()
        self._names = self._path.read_text().split() if self._path.exists() else list[str]()

    def has(self, directory: Path) -> bool:
        """Returns whether the experiment with this directory was finished, and its tables are still there."""
        return directory.name in self._names and directory.is_dir()

    def add(self, directory: Path) -> None:
        """Note that the experiment with this directory is finished."""
        self._names.append(directory.name)
        with self._path.open("a") as file:
            file.write(f"{directory.name}\n")

    def forget(self) -> None:
        """Remove the file, so that the next run of all experiments begins anew."""
        self._path.unlink(missing_ok=True)
