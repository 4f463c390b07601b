"""KeptRuns: the tables of every finished run on disk: an interruption loses only the run under way."""

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
