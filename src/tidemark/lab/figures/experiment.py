"""Experiment: a measurement that writes tables, and the figures that are made from the tables.

A run only measures and writes tables. What a figure shows, what was found here and whether the paper's
finding holds is computed from the tables as they are read back from their files. So a page can be made again
from its CSV files, and nothing in it was typed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from tidemark.lab.figures.table import Numbers, Table

#: Name of the table with the settings of a run: what, value.
SETTING = "setting"
#: name of a table -> table: everything that a run has measured
Tables = Mapping[str, Table]
#: Measures, quickly if the first argument is True, and reports progress through the second.
Measure = Callable[[bool, Callable[[str], None]], Sequence[Table]]
#: Measures as Measure does, and keeps every finished part of the measurement in the directory it is given:
#: a measurement that was interrupted goes on from there.
MeasureInParts = Callable[[Path, bool, Callable[[str], None]], Sequence[Table]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A finding of the paper, or a promise of ours, beside what was found here, and whether it holds.

    `holds` is None if the measurements vary too much to tell.
    """

    paper: str
    here: str
    holds: bool | None
    #: What the page says unless the finding holds: why that is better, or what would have to change.
    otherwise: str = ""

    @property
    def word(self) -> str:
        """The result in a few words."""
        return {True: "holds", False: "does not hold", None: "cannot be told"}[self.holds]

    @property
    def explanation(self) -> str:
        """What a reader is told about a finding that does not hold; empty if it holds."""
        return "" if self.holds else self.otherwise


@dataclass(frozen=True, slots=True)
class PlotSeries:
    """x[point], y[point] under a name."""

    label: str
    x: Numbers
    y: Numbers
    style: Literal["line", "points", "steps", "marked"] = "line"


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    series: Sequence[PlotSeries]
    #: (from x, to x, label) of spans that are shaded
    spans: Sequence[tuple[float, float, str]] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a paper, or one of our own."""

    #: name of its files
    name: str
    title: str
    #: paper and number of the figure
    source: str
    draw: Callable[[Tables], Sequence[Panel]]
    compare: Callable[[Tables], Sequence[Comparison]]
    #: the figure is of no paper, and compares with what we promise
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Experiment:
    """What `tidemark lab NAME` runs."""

    name: str
    about: str
    #: how the experiment resembles the paper's, and how it differs
    method: str
    figures: Sequence[Figure]
    #: the measurement on simulated time, and on real processes; None where there is none
    simulated: Measure | None
    real: Measure | None = None
    #: the method on real processes, where it differs
    real_method: str = ""
    #: figures that only real processes have, or only the simulator, beside the others
    real_figures: Sequence[Figure] = ()
    simulated_figures: Sequence[Figure] = ()
    #: the measurement on simulated time where it takes long; `simulated` is None then
    simulated_in_parts: MeasureInParts | None = None

    def measure_of(self, parts: Path, *, real: bool) -> Measure | None:
        """Returns the measurement, which may keep its parts in the directory; None where there is none."""
        if not real and self.simulated_in_parts is not None:
            return partial(self.simulated_in_parts, parts)
        return self.real if real else self.simulated

    def runs(self, *, real: bool) -> bool:
        """Whether there is a measurement on real processes, or on simulated time."""
        return (self.real if real else self.simulated or self.simulated_in_parts) is not None

    def figures_of(self, *, real: bool) -> Sequence[Figure]:
        """Returns the figures of a run."""
        return (*self.figures, *(self.real_figures if real else self.simulated_figures))


def prose(text: str) -> str:
    """Returns a text of several lines as one line."""
    return " ".join(text.split())


def verdict(findings: Sequence[Comparison]) -> str:
    """Returns in a few words whether the findings hold."""
    words = [each.word for each in findings]
    if len(set(words)) == 1:
        return words[0]
    open_ones = words.count("cannot be told")
    said = f"{words.count('holds')} of {len(words)}" + (f", {open_ones} cannot be told" if open_ones else "")
    return f"holds in part ({said})"


def settings(tables: Tables) -> dict[str, str]:
    """Returns the settings of a run."""
    table = tables[SETTING]
    return dict(zip(table.words("what"), table.words("value"), strict=True))


def setting(**values: object) -> Table:
    """Returns the table of settings; underscores in names become spaces."""
    table = Table(SETTING, ("what", "value"))
    for name, value in values.items():
        table.add(name.replace("_", " "), str(value))
    return table
