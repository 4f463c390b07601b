"""The laboratory: verdicts come from the CSV files and from nothing else, and equal runs are equal files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tidemark.cli import main
from tidemark.lab.figures import command
from tidemark.lab.figures.catalogue import EXPERIMENTS
from tidemark.lab.figures.estimates import fitted, median_error, median_interval, slope_between
from tidemark.lab.figures.experiment import (
    Comparison,
    Experiment,
    Figure,
    Panel,
    PlotSeries,
    Tables,
    setting,
    verdict,
)
from tidemark.lab.figures.laboratory import collect, make, run
from tidemark.lab.figures.page import EXPLAINED
from tidemark.lab.figures.table import Table, mean_by, read, read_all


def findings(*held: bool | None) -> list[Comparison]:
    return [Comparison("so", "so", each) for each in held]


def rising(tables: Tables) -> Sequence[Comparison]:
    values = tables["values"].numbers("value")
    return [Comparison("it rises", f"from {values[0]:g} to {values[-1]:g}", bool(values[-1] > values[0]))]


def drawn(tables: Tables) -> Sequence[Panel]:
    values = tables["values"].numbers("value")
    return [Panel("values", "x", "y", [PlotSeries("value", np.arange(float(len(values))), values)])]


def measured(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    say("measuring")
    return [Table("values", ("value",), [(1.0,), (2.0,)]), setting(quick=quick)]


SMALL = Experiment(
    "small", "about", "As it was.", (Figure("figure-1", "Rise", "A paper", drawn, rising),), measured
)


def quiet(_: str) -> None:
    pass


def test_a_table_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    table = Table("t", ("name", "value"))
    table.add("a, b", 0.1234567)
    table.add("c", None)
    table.add("d", 7)
    found = read(table.write(tmp_path))
    assert found.words("name") == ["a, b", "c", "d"]
    assert found.numbers("value").tolist()[::2] == [0.123457, 7.0]
    assert np.isnan(found.numbers("value")[1])
    assert found.where(value=7).words("name") == ["d"]


def test_a_verdict_says_how_much_of_it_holds() -> None:
    assert verdict(findings(True, True)) == "holds"
    assert verdict(findings(True, False)) == "holds in part (1 of 2)"
    assert verdict(findings(False)) == "does not hold"
    assert verdict(findings(True, None)) == "holds in part (1 of 2, 1 cannot be told)"


def test_a_median_is_known_only_as_well_as_its_samples_agree() -> None:
    assert median_interval(np.array([1.0, 2.0, 3.0])) == (float("-inf"), float("inf"))
    assert median_interval(np.arange(1.0, 7.0)) == (1.0, 6.0)
    low, high = median_interval(np.arange(1.0, 101.0))
    assert (low, high) == (40.0, 61.0)


def test_the_error_of_a_median_falls_with_the_root_of_the_number_and_outliers_do_not_count() -> None:
    normal = np.random.default_rng(1).normal(5.0, 2.0, 4_000)
    assert median_error(normal) == pytest.approx(1.2533 * 2.0 / np.sqrt(4_000), rel=0.05)
    assert median_error(np.append(normal, 1e9)) == pytest.approx(median_error(normal), rel=0.01)


def test_a_page_follows_its_csv(tmp_path: Path) -> None:
    (outcome,) = run(SMALL, tmp_path, quiet)
    assert outcome.verdict == "holds"
    page = outcome.page.read_text()
    assert "| it rises | from 1 to 2 | holds |" in page
    assert "Setting: quick False." in page
    assert "Setting: quick True, effort quick." in run(SMALL, tmp_path, quiet, quick=True)[0].page.read_text()
    Table("values", ("value",), [(2.0,), (1.0,)]).write(tmp_path / "small")
    (outcome,) = make(SMALL, tmp_path / "small", real=False)
    assert "The paper's finding: does not hold." in outcome.page.read_text()


def test_a_finding_that_does_not_hold_is_explained_on_the_page(tmp_path: Path) -> None:
    def falling(tables: Tables) -> Sequence[Comparison]:
        rises, *_ = rising(tables)
        return [replace(rises, otherwise="It was held down."), replace(rises, holds=False, otherwise="So.")]

    figure = replace(SMALL.figures[0], compare=falling)
    page = run(replace(SMALL, figures=(figure,)), tmp_path, quiet)[0].page.read_text()
    assert f"{EXPLAINED}\n\n- *it rises*: So.\n" in page
    assert "It was held down." not in page


def test_every_finding_on_the_page_that_does_not_hold_is_explained() -> None:
    page = (Path(__file__).parents[3] / "docs" / "figures.md").read_text()
    for section in page.split("\n## ")[1:]:
        rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
        open_ones = [row[0][2:] for row in rows if row[-1] in ("does not hold |", "cannot be told |")]
        unexplained = [each for each in open_ones if f"- *{each}*: " not in section]
        assert not unexplained, section.splitlines()[0]


def test_all_runs_are_collected_on_one_page(tmp_path: Path) -> None:
    run(SMALL, tmp_path / "out", quiet)
    assert collect([SMALL], tmp_path / "out", tmp_path / "docs") == 1
    page = (tmp_path / "docs" / "figures.md").read_text()
    assert "| A paper | Rise | simulated | holds |" in page


def test_the_page_keeps_what_it_says_of_runs_that_are_not_there(tmp_path: Path) -> None:
    other = replace(SMALL, name="other")
    docs = tmp_path / "docs"
    for each in (SMALL, other):
        run(each, tmp_path / "out", quiet)
    collect([SMALL, other], tmp_path / "out", docs)
    whole = (docs / "figures.md").read_text()
    pictures = {each.name for each in (docs / "figures").iterdir()}
    assert collect([SMALL, other], tmp_path / "nothing", docs) == 0
    assert (docs / "figures.md").read_text() == whole
    Table("values", ("value",), [(2.0,), (1.0,)]).write(tmp_path / "out" / "other")
    (tmp_path / "out" / "small").rename(tmp_path / "gone")
    assert collect([SMALL, other], tmp_path / "out", docs) == 1
    page = (docs / "figures.md").read_text()
    assert page.count("| A paper | Rise | simulated | holds |") == 1
    assert page.count("| A paper | Rise | simulated | does not hold |") == 1
    assert {each.name for each in (docs / "figures").iterdir()} == pictures
    assert collect([other], tmp_path / "out", docs) == 1
    assert "`./run lab small`" not in (docs / "figures.md").read_text()


def test_a_picture_is_drawn_where_there_is_something_to_draw_with(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, second = (run(SMALL, tmp_path / name, quiet)[0].picture for name in ("a", "b"))
    assert first is not None
    assert second is not None
    assert first.read_bytes()[1:4] == b"PNG"
    assert first.read_bytes() == second.read_bytes()


def test_a_line_is_fitted_and_a_slope_taken_between_two_times() -> None:
    line = fitted(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
    assert (round(line.slope, 6), round(line.at_zero, 6), round(line.explained, 6)) == (2.0, 1.0, 1.0)
    assert line.reaches(7.0) == pytest.approx(3.0)
    assert slope_between(np.array([0.0, 10.0]), np.array([0.0, 5.0]), 2.0, 4.0) == pytest.approx(0.5)
    assert mean_by(Table("t", ("k", "v"), [(1, 2), (1, 4), (0, 1)]), "k", "v")[1].tolist() == [1.0, 3.0]


def tidemark(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["lab", *arguments])
    return result.exit_code, result.output


def test_the_command_lists_every_experiment() -> None:
    code, output = tidemark("list")
    assert code == 0
    assert all(name in output for name in EXPERIMENTS)


def test_all_runs_everything_and_makes_the_page_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Experiment("both", "about", "As it was.", SMALL.figures, measured, measured)
    monkeypatch.setattr(command, "EXPERIMENTS", {each.name: each for each in (SMALL, both)})
    monkeypatch.setattr(command, "DOCS", tmp_path / "docs")
    assert tidemark("all", "--quick", "--out", str(tmp_path / "out"))[0] == 0
    assert not (tmp_path / "docs").exists()
    assert tidemark("all", "--out", str(tmp_path / "out"))[0] == 0
    page = (tmp_path / "docs" / "figures.md").read_text()
    assert page.count("| it rises | from 1 to 2 | holds |") == 3
    assert "real processes, `./run lab both --real`" in page


def test_a_run_of_all_goes_on_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()

    def measured_once(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
        calls.append("first")
        return measured(quick, say)

    def interrupted(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
        calls.append("second")
        if calls.count("second") == 1:
            raise KeyboardInterrupt
        return measured(quick, say)

    first = Experiment("first", "about", "As it was.", SMALL.figures, measured_once)
    second = Experiment("second", "about", "As it was.", SMALL.figures, interrupted)
    monkeypatch.setattr(command, "EXPERIMENTS", {each.name: each for each in (first, second)})
    monkeypatch.setattr(command, "DOCS", tmp_path / "docs")
    assert tidemark("all", "--out", str(tmp_path / "out"))[0] != 0
    code, output = tidemark("all", "--out", str(tmp_path / "out"))
    assert code == 0
    assert "first: finished before the interruption" in output
    assert calls == ["first", "second", "second"]
    assert tidemark("all", "--out", str(tmp_path / "out"))[0] == 0
    assert calls[3:] == ["first", "second"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nonsense",), "there is no experiment"),
        (("dsn02-overhead",), "--real"),
        (("mops", "--real"), "lab mops"),
    ],
)
def test_what_cannot_be_run_is_said_with_what_can(arguments: tuple[str, ...], said: str) -> None:
    code, output = tidemark(*arguments)
    assert code == 2
    assert said in output


@pytest.mark.slow
def test_a_simulated_experiment_writes_the_same_files_each_time(tmp_path: Path) -> None:
    tables = []
    for name in ("a", "b"):
        run(EXPERIMENTS["dsn03-crash"], tmp_path / name, quiet, quick=True)
        tables.append(read_all(tmp_path / name / "dsn03-crash"))
    assert {name: table.rows for name, table in tables[0].items()} == {
        name: table.rows for name, table in tables[1].items()
    }
