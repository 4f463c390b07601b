"""What a bench found, for people (tables) and for programs (one JSON object a line)."""

from __future__ import annotations

import json
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.table import Table

from tidemark.errors import ConfigError
from tidemark.storage.disk.atomic_file import replace_path

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


#: (case, metric) -> the value that an earlier run found
Earlier = Mapping[tuple[str, str], float]


def read_earlier(path: Path) -> Earlier:
    """Returns what an earlier run with `--json` found; ConfigError if the file is not of that kind."""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines() if line]
        return {(each["case"], each["metric"]): float(each["value"]) for each in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} has no results of a benchmark: make it with --json > {path.name}", key="before"
        ) from error


class TableReport:
    """A table a section, beside what an earlier run found if there is one."""

    def __init__(self, bench: str, out: IO[str] | None = None, earlier: Earlier | None = None) -> None:
        self._earlier = earlier
        # With a fixed width, since output to a file would be wrapped at 80 columns.
        self._console = Console(file=out or sys.stdout, width=WIDTH, highlight=False)
        self._console.print(f"[bold]bench {bench}[/bold]")

    def show(self, section: Section) -> None:
        """Title, table, notes."""
        self._console.print()
        if section.measurements:
            self._console.print(_grid(section) if section.grid else _list(section, self._earlier))
        else:
            self._console.print(section.title, style="bold")
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


def _list(section: Section, earlier: Earlier | None) -> Table:
    table = _new_table(section.title)
    table.add_column("case")
    table.add_column("metric")
    compared = ("before", "ratio") if earlier is not None else ()
    for name in (*compared, "value", "goal"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in section.measurements:
        goal = "" if each.goal is None else str(each.goal)
        value = f"{number_text(each.value)} {each.unit}"
        beside = [] if earlier is None else _beside(each, section.prefix, earlier)
        table.add_row(each.case, each.metric, *beside, value, goal, _VERDICT[each.ok])
    return table


def _beside(measurement: Measurement, prefix: str, earlier: Earlier) -> list[str]:
    """Returns what was found before, and what is found now as a part of it."""
    metric = f"{prefix}: {measurement.metric}" if prefix else measurement.metric
    before = earlier.get((measurement.case, metric))
    if before is None:
        return ["", ""]
    return [number_text(before), f"{measurement.value / before:.2f}x" if before else ""]


def markdown(section: Section) -> str:
    """Returns a grid as a table for a page, with its notes below it."""
    cases = list(dict.fromkeys(each.case for each in section.measurements))
    metrics = list(dict.fromkeys(each.metric for each in section.measurements))
    values = {(each.metric, each.case): number_text(each.value) for each in section.measurements}
    lines = [f"| | {' | '.join(cases)} |", "|---" * (len(cases) + 1) + "|"]
    lines += [
        f"| {metric} | {' | '.join(values.get((metric, case), '-') for case in cases)} |"
        for metric in metrics
    ]
    return "\n".join([*lines, "", *(f"- {note}" for note in section.notes)])


def write_page(page: Path, bench: str, sections: Sequence[Section]) -> None:
    """Replace what a page has between the marks of a bench; ConfigError if it has no such marks."""
    begin, end = f"<!-- bench {bench} -->", f"<!-- end of bench {bench} -->"
    text = page.read_text() if page.exists() else ""
    if begin not in text or end not in text:
        text = f"{page} has no lines {begin} and {end}: add them where the tables belong"
        raise ConfigError(text, key="page")
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    # One table for all of them: they have the same cases.
    together = Section(
        bench,
        [each for section in sections for each in section.measurements],
        notes=[note for section in sections for note in section.notes],
    )
    replace_path(page, f"{before}{begin}\n\n{markdown(together)}\n\n{end}{after}".encode())


_VERDICT = {None: "", True: "[green]ok[/green]", False: "[bold red]MISSED[/bold red]"}
