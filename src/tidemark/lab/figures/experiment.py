"""Experiment: one run of the laboratory, and the figures that are drawn from its tables and judged by them.

A run measures and writes tables; that is all it does. What a figure shows, what it says was found here and
whether the paper's finding holds is computed from the tables as they were read back from their files: a
page can be made again from its CSV, and nothing in it was typed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tidemark.lab.figures.table import Numbers, Table

#: The table in which a run says how it was set: what, value.
SETTING = "setting"
#: Everything that a run has measured, by name.
Tables = Mapping[str, Table]
#: Measure, in full or (True) with less effort, and say now and then how it goes.
Measure = Callable[[bool, Callable[[str], None]], Sequence[Table]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One thing that the paper found or we promise, what was found here, and whether that bears it out.

    None: what was measured varies too much to say.
    """

    paper: str
    here: str
    holds: bool | None

    @property
    def word(self) -> str:
        """In a word or three."""
        return {True: "holds", False: "does not hold", None: "cannot be told"}[self.holds]


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
    #: spans of x that are shaded, with what they are
    spans: Sequence[tuple[float, float, str]] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a paper, or one of our own."""

    #: of its files
    name: str
    title: str
    #: which paper, which figure
    source: str
    draw: Callable[[Tables], Sequence[Panel]]
    compare: Callable[[Tables], Sequence[Comparison]]
    #: no paper has it: what is judged is what we promise
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Experiment:
    """What `tidemark lab NAME` runs."""

    name: str
    about: str
    #: how the experiment is like the paper's, and how it is not
    method: str
    figures: Sequence[Figure]
    #: on simulated time, on real processes; None where it makes no sense
    simulated: Measure | None
    real: Measure | None = None
    #: where the real one is done in another way
    real_method: str = ""


def prose(text: str) -> str:
    """A text that was written over several lines, as one."""
    return " ".join(text.split())


def verdict(findings: Sequence[Comparison]) -> str:
    """Does what the paper found hold here?"""
    words = [each.word for each in findings]
    if len(set(words)) == 1:
        return words[0]
    open_ones = words.count("cannot be told")
    said = f"{words.count('holds')} of {len(words)}" + (f", {open_ones} cannot be told" if open_ones else "")
    return f"holds in part ({said})"


def settings(tables: Tables) -> dict[str, str]:
    """How the run was set."""
    table = tables[SETTING]
    return dict(zip(table.words("what"), table.words("value"), strict=True))


def setting(**values: object) -> Table:
    """The table that says how a run was set; underscores in names become spaces."""
    table = Table(SETTING, ("what", "value"))
    for name, value in values.items():
        table.add(name.replace("_", " "), str(value))
    return table
