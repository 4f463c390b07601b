"""Pages: a figure as markdown, with its picture, the paper's findings beside ours, and how it was run."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.lab.figures.experiment import Comparison, Experiment, Figure, Tables, settings, verdict

INTRODUCTION = (
    "Every verdict on this page is computed from the CSV files of a run. `./run lab NAME [--real]` runs an "
    "experiment again and writes its files to `out/`; `./run lab docs` makes this page from them, and "
    "`./run lab all` runs all of them and makes the page."
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
    command = f"./run lab {experiment.name}{' --real' if real else ''}"
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


def collected(sections: Sequence[tuple[Experiment, bool, Tables, dict[str, str | None]]]) -> str:
    """Returns the page of all runs; `sections` has (experiment, real, tables, figure -> picture) of each."""
    lines = [GENERATED, "# The papers' figures, run here", "", INTRODUCTION, ""]
    lines += ["| figure | | where | verdict |", "|---|---|---|---|"]
    for experiment, real, tables, _ in sections:
        for figure in experiment.figures_of(real=real):
            where = "real processes" if real else "simulated"
            found = verdict(figure.compare(tables))
            lines.append(f"| {figure.source} | {figure.title} | {where} | {found} |")
    for experiment, real, tables, pictures in sections:
        for figure in experiment.figures_of(real=real):
            lines += ["", f"## {figure.title}", ""]
            lines += section_of(experiment, figure, tables, pictures[figure.name], real=real)
        lines += ["", *method_of(experiment, tables, real=real)]
    return "\n".join(lines) + "\n"
