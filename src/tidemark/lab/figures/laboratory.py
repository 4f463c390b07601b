"""Laboratory: runs experiments, and writes their tables, pictures and pages to a directory each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tidemark.lab.figures.drawing import can_draw, draw
from tidemark.lab.figures.experiment import SETTING, Comparison, Experiment, Figure, Tables, verdict
from tidemark.lab.figures.page import collected, page_of
from tidemark.lab.figures.table import Table, read_all

OUT = Path("out")


@dataclass(frozen=True, slots=True)
class FigureOutcome:
    """A figure that was made, with its findings and files."""

    figure: Figure
    findings: Sequence[Comparison]
    page: Path
    #: None without matplotlib
    picture: Path | None

    @property
    def verdict(self) -> str:
        """Whether the findings hold, in a few words."""
        return verdict(self.findings)


def directory_of(experiment: Experiment, out: Path, *, real: bool) -> Path:
    """Returns the directory for the files of a run."""
    return out / (f"{experiment.name}-real" if real else experiment.name)


def run(
    experiment: Experiment, out: Path, say: Callable[[str], None], *, real: bool = False, quick: bool = False
) -> list[FigureOutcome]:
    """Measure, write the tables, and make the figures from the written tables; returns the figures."""
    directory = directory_of(experiment, out, real=real)
    parts = directory.with_name(f"{directory.name}-parts")
    measure = experiment.measure_of(parts, real=real)
    assert measure is not None
    circumstances, begin = _circumstances(real=real, quick=quick), monotonic()
    tables: Sequence[Table] = measure(quick, say)
    if real:
        circumstances.append(("seconds of the whole run", f"{monotonic() - begin:.0f}"))
    for table in tables:
        if table.name == SETTING:
            table.rows += circumstances
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for table in tables:
        table.write(directory)
    shutil.rmtree(parts, ignore_errors=True)
    return make(experiment, directory, real=real)


def _circumstances(*, real: bool, quick: bool) -> list[tuple[str, str]]:
    """Returns settings that a reader must know: a quick run, the cores and load of the machine."""
    found = [("effort", "quick")] if quick else []
    if real:
        found += [("cores", str(os.cpu_count())), ("load average before", f"{os.getloadavg()[0]:.1f}")]
    return found


def make(experiment: Experiment, directory: Path, *, real: bool) -> list[FigureOutcome]:
    """Make pictures and pages from the tables in a directory; returns the figures."""
    tables = read_all(directory)
    return [
        _make(experiment, figure, tables, directory, real=real) for figure in experiment.figures_of(real=real)
    ]


def _make(
    experiment: Experiment, figure: Figure, tables: Tables, directory: Path, *, real: bool
) -> FigureOutcome:
    picture = directory / f"{figure.name}.png" if can_draw() else None
    if picture is not None:
        draw(figure.draw(tables), f"{figure.title} ({figure.source})", picture)
    page = directory / f"{figure.name}.md"
    shown = None if picture is None else picture.name
    page.write_text(page_of(experiment, figure, tables, shown, real=real))
    return FigureOutcome(figure, figure.compare(tables), page, picture)


def collect(experiments: Sequence[Experiment], out: Path, docs: Path) -> int:
    """Write all runs in `out` as the one page docs/figures.md with its pictures; returns how many figures."""
    runs = [
        (each, real, read_all(place))
        for each in experiments
        for real in (False, True)
        if (place := directory_of(each, out, real=real)).is_dir()
    ]
    pictures = docs / "figures"
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir(parents=True)
    sections = []
    for experiment, real, tables in runs:
        place = directory_of(experiment, out, real=real)
        figures = experiment.figures_of(real=real)
        shown = {each.name: _copied(place / f"{each.name}.png", pictures) for each in figures}
        sections.append((experiment, real, tables, shown))
    (docs / "figures.md").write_text(collected(sections))
    return sum(len(experiment.figures_of(real=real)) for experiment, real, _ in runs)


def _copied(picture: Path, to: Path) -> str | None:
    if not picture.exists():
        return None
    name = f"{picture.parent.name}-{picture.name}"
    shutil.copyfile(picture, to / name)
    return f"{to.name}/{name}"
