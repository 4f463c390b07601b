"""What a bench found, for people (tables) and for programs (one JSON object a line)."""

from __future__ import annotations

import json
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from rich.console import Console
from rich.table import Table

#: Tables fit a terminal of this many columns.
WIDTH = 100


@dataclass(frozen=True, slots=True)
class Goal:
    """What a value should be: `>= 100`, `< 4`."""

    sense: str
    bound: float

    def met_by(self, value: float) -> bool:
        """Whether the value reaches the goal."""
        return _SENSE[self.sense](value, self.bound)

    def __str__(self) -> str:
        return f"{self.sense} {number_text(self.bound)}"


_SENSE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number."""

    case: str
    metric: str
    value: float
    unit: str
    goal: Goal | None = None

    @property
    def ok(self) -> bool | None:
        """Whether the goal is reached; None when there is no goal."""
        return None if self.goal is None else self.goal.met_by(self.value)


@dataclass(frozen=True, slots=True)
class Section:
    """Measurements that belong together. A grid has a row a metric and a column a case."""

    title: str
    measurements: Sequence[Measurement]
    #: put before each metric in JSON, to tell it from the same metric of other sections
    prefix: str = ""
    grid: bool = False
    notes: Sequence[str] = ()


class JsonReport:
    """One object a line, written as soon as it is known."""

    def __init__(self, bench: str, out: IO[str] | None = None) -> None:
        self._bench = bench
        self._out = out or sys.stdout

    def show(self, section: Section) -> None:
        """Every measurement of the section."""
        for each in section.measurements:
            line = {
                "bench": self._bench,
                "case": each.case,
                "metric": f"{section.prefix}: {each.metric}" if section.prefix else each.metric,
                "value": each.value,
                "unit": each.unit,
                "goal": None if each.goal is None else each.goal.bound,
                "ok": each.ok,
            }
            print(json.dumps(line), file=self._out, flush=True)


class TableReport:
    """A table a section."""

    def __init__(self, bench: str, out: IO[str] | None = None) -> None:
        # With a fixed width, since output to a file would be wrapped at 80 columns.
        self._console = Console(file=out or sys.stdout, width=WIDTH, highlight=False)
        self._console.print(f"[bold]bench {bench}[/bold]")

    def show(self, section: Section) -> None:
        """Title, table, notes."""
        self._console.print()
        self._console.print(_grid(section) if section.grid else _list(section))
        for note in section.notes:
            self._console.print(f"  {note}", style="dim")


def number_text(value: float) -> str:
    """At least three digits that mean something, thousands apart."""
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def _new_table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, collapse_padding=True
    )


def _grid(section: Section) -> Table:
    cases = list(dict.fromkeys(each.case for each in section.measurements))
    metrics = list(dict.fromkeys(each.metric for each in section.measurements))
    values = {(each.metric, each.case): each for each in section.measurements}
    table = _new_table(section.title)
    table.add_column("")
    for case in cases:
        table.add_column(case, justify="right")
    for metric in metrics:
        row = [values.get((metric, case)) for case in cases]
        table.add_row(metric, *("" if each is None else number_text(each.value) for each in row))
    return table


def _list(section: Section) -> Table:
    table = _new_table(section.title)
    table.add_column("case")
    table.add_column("metric")
    for name in ("value", "goal"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in section.measurements:
        goal = "" if each.goal is None else str(each.goal)
        value = f"{number_text(each.value)} {each.unit}"
        table.add_row(each.case, each.metric, value, goal, _VERDICT[each.ok])
    return table


_VERDICT = {None: "", True: "[green]ok[/green]", False: "[bold red]MISSED[/bold red]"}
