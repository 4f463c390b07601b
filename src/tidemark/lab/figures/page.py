"""Pages: a figure as markdown, with its picture, the paper's findings beside ours, and how it was run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.lab.figures.experiment import Comparison, Experiment, Figure, Tables, settings, verdict

INTRODUCTION = (
    "Every verdict on this page is computed from the CSV files of a run. `./run lab NAME [--real]` runs an "
    "experiment again and writes its files to `out/`; `./run lab docs` makes what this page says of the runs "
    "in `out/` anew and leaves the rest, and `./run lab all` runs all of them and makes the page. A run of "
    "all that was interrupted goes on from there when it is started again."
)
#: What stands before the explanations of findings that do not hold.
EXPLAINED = "Why it differs:"
GENERATED = "<!-- Made by `tidemark lab` from the CSV files of a run; do not edit. -->"


def page_of(
    experiment: Experiment, figure: Figure, tables: Tables, picture: str | None, *, real: bool
) -> str:
    """Returns the page of one figure."""
    lines = [GENERATED, f"# {figure.title}", "", *section_of(experiment, figure, tables, picture, real=real)]
    lines += ["", "## How it was run", "", *method_of(experiment, tables, real=real), ""]
    lines += [f"Data: {', '.join(f'`{name}.csv`' for name in sorted(tables))}."]
    return "\n".join(lines) + "\n"


def section_of(
    experiment: Experiment, figure: Figure, tables: Tables, picture: str | None, *, real: bool
) -> list[str]:
    """Returns the lines with verdict, findings and picture of a figure."""
    findings = figure.compare(tables)
    where = "real processes" if real else "simulated"
    command = command_of(experiment, real=real)
    claim, head = (
        ("What is promised", "promised") if figure.is_ours else ("The paper's finding", "the paper found")
    )
    lines = [f"{figure.source}; {where}, `{command}`. **{claim}: {verdict(findings)}.**", ""]
    lines += [f"| {head} | here | |", "|---|---|---|"]
    lines += [f"| {each.paper} | {each.here} | {each.word} |" for each in findings]
    lines += _explanations(findings)
    if picture is not None:
        lines += ["", f"![{figure.title}]({picture})"]
    return lines


def _explanations(findings: Sequence[Comparison]) -> list[str]:
    """Returns the lines that say of each finding that does not hold why that is so."""
    said = [f"- *{each.paper}*: {each.explanation}" for each in findings if each.explanation]
    return ["", EXPLAINED, "", *said] if said else []


def method_of(experiment: Experiment, tables: Tables, *, real: bool) -> list[str]:
    """Returns the lines with the method of a run and its settings."""
    said = ", ".join(f"{what} {value}" for what, value in settings(tables).items())
    return [(experiment.real_method if real else "") or experiment.method, "", f"Setting: {said}."]


@dataclass(frozen=True, slots=True)
class PageBlock:
    """What the page of all runs has of one run: a row for each figure, and the lines about all of them."""

    rows: list[str]
    lines: list[str]


def block_of(
    experiment: Experiment, tables: Tables, pictures: dict[str, str | None], *, real: bool
) -> PageBlock:
    """Returns the block of a run; `pictures` has the picture of each figure by its name."""
    where = "real processes" if real else "simulated"
    rows, lines = list[str](), list[str]()
    for figure in experiment.figures_of(real=real):
        rows.append(f"| {figure.source} | {figure.title} | {where} | {verdict(figure.compare(tables))} |")
        lines += ["", f"## {figure.title}", ""]
        lines += section_of(experiment, figure, tables, pictures[figure.name], real=real)
    return PageBlock(rows, [*lines, "", *method_of(experiment, tables, real=real)])


def command_of(experiment: Experiment, *, real: bool) -> str:
    """Returns the command that runs an experiment."""
    return f"./run lab {experiment.name}{' --real' if real else ''}"


def blocks_in(page: str) -> dict[str, PageBlock]:
    """Returns the blocks of a page of all runs, by the commands that run them."""
    head, *sections = page.rstrip("\n").split("\n## ")
    rows = [line for line in head.splitlines() if line.startswith("| ")][1:]
    found: dict[str, PageBlock] = {}
    for row, section in zip(rows, sections, strict=True):
        command = section.partition("`")[2].partition("`")[0]
        block = found.setdefault(command, PageBlock([], []))
        block.rows.append(row)
        block.lines.extend(["", *f"## {section}".rstrip("\n").split("\n")])
    return found


def collected(blocks: Sequence[PageBlock]) -> str:
    """Returns the page of all runs."""
    lines = [GENERATED, "# The papers' figures, run here", "", INTRODUCTION, ""]
    lines += ["| figure | | where | verdict |", "|---|---|---|---|"]
    lines += [row for block in blocks for row in block.rows]
    lines += [line for block in blocks for line in block.lines]
    return "\n".join(lines) + "\n"
