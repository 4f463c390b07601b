"""Table: rows of numbers and words under named columns, written as CSV files and read from them."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Cell = str | float | int | None


@dataclass(slots=True)
class Table:
    """Named columns. A cell without a value is empty in the file, and NaN as a number."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        """One more row."""
        assert len(cells) == len(self.columns)
        self.rows.append(cells)

    def numbers(self, column: str) -> Numbers:
        """values[row]"""
        return np.array([np.nan if cell in (None, "") else float(cell) for cell in self._cells(column)])

    def words(self, column: str) -> list[str]:
        """values[row]"""
        return [str(cell) for cell in self._cells(column)]

    def where(self, **wanted: Any) -> Table:
        """Returns a table of the rows that have these values; numbers compare as numbers."""
        places = [(self.columns.index(name), value) for name, value in wanted.items()]
        rows = [row for row in self.rows if all(_same(row[at], value) for at, value in places)]
        return Table(self.name, self.columns, rows)

    def _cells(self, column: str) -> list[Cell]:
        at = self.columns.index(column)
        return [row[at] for row in self.rows]

    def write(self, directory: Path) -> Path:
        """Write the CSV file; numbers have at most six decimals, so that equal runs make equal files."""
        path = directory / f"{self.name}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows([_text(cell) for cell in row] for row in self.rows)
        return path


def read(path: Path) -> Table:
    """Read a table; `numbers` converts its cells."""
    with path.open(newline="") as file:
        reader = csv.reader(file)
        columns = tuple(next(reader))
        return Table(path.stem, columns, [tuple(row) for row in reader])


def read_all(directory: Path) -> dict[str, Table]:
    """Every table of a run."""
    return {path.stem: read(path) for path in sorted(directory.glob("*.csv"))}


def mean_by(table: Table, key: str, value: str) -> tuple[Numbers, Numbers]:
    """Returns the distinct keys in order, and the mean value of each."""
    keys, values = table.numbers(key), table.numbers(value)
    distinct = np.unique(keys)
    return distinct, np.array([values[keys == each].mean() for each in distinct])


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6f}".rstrip("0").rstrip(".")
    return str(cell)


def _same(cell: Cell, value: Any) -> bool:
    if isinstance(value, str):
        return str(cell) == value
    return cell not in (None, "") and float(cell) == float(value)
