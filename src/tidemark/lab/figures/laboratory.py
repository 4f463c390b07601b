"""Laboratory: runs experiments, and writes their tables, pictures and pages to a directory each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import monotonic

from tidemark.lab.figures.drawing import can_draw, draw
from tidemark.lab.figures.experiment import SETTING, Comparison, Experiment, Figure, Tables, verdict
from tidemark.lab.figures.page import (
    PageBlock,
    block_of,
    blocks_in,
    collected,
    command_of,
    page_of,
)
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
    """Write all runs in `out` to the one page docs/figures.md with its pictures; returns how many figures.

    What the page says of other runs stays.
    """
    page, pictures = docs / "figures.md", docs / "figures"
    known = blocks_in(page.read_text()) if page.exists() else {}
    pictures.mkdir(parents=True, exist_ok=True)
    blocks, count = list[PageBlock](), 0
    for experiment, real in product(experiments, (False, True)):
        place, figures = directory_of(experiment, out, real=real), experiment.figures_of(real=real)
        kept = known.get(command_of(experiment, real=real))
        if place.is_dir():
            shown = {each.name: _copied(place / f"{each.name}.png", pictures) for each in figures}
            blocks.append(block_of(experiment, read_all(place), shown, real=real))
            count += len(figures)
        elif kept is not None:
            blocks.append(kept)
    page.write_text(collected(blocks))
    for picture in pictures.iterdir():
        if f"]({pictures.name}/{picture.name})" not in page.read_text():
            picture.unlink()
    return count


def _copied(picture: Path, to: Path) -> str | None:
    if not picture.exists():
        return None
    name = f"{picture.parent.name}-{picture.name}"
    shutil.copyfile(picture, to / name)
    return f"{to.name}/{name}"
