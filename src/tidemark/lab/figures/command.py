"""The command `tidemark lab`: lists, runs and collects experiments, and prints their findings."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tidemark.errors import ClientError
from tidemark.lab.figures.catalogue import EXPERIMENTS
from tidemark.lab.figures.drawing import HINT, can_draw
from tidemark.lab.figures.experiment import Experiment
from tidemark.lab.figures.kept_runs import KeptExperiments, fingerprint_of_code
from tidemark.lab.figures.laboratory import FigureOutcome, collect, directory_of
from tidemark.lab.figures.laboratory import run as run_experiment
from tidemark.sim.judging.ground_truth import ViolationError

DOCS = Path("docs")


def run(name: str, out: Path, *, real: bool, quick: bool, as_json: bool) -> int:
    """List, collect or run experiments; returns the exit code."""
    if name == "list":
        return _list(as_json)
    if name == "docs":
        return _collect(out)
    if name == "all":
        return _run_all(out, real=real, quick=quick, as_json=as_json)
    experiment = EXPERIMENTS.get(name)
    if experiment is None or not experiment.runs(real=real):
        return _cannot(name, real=real)
    return _run(experiment, out, real=real, quick=quick, as_json=as_json)


def _run_all(out: Path, *, real: bool, quick: bool, as_json: bool) -> int:
    """Run all experiments in the simulator and then on real processes, or only there, and make the page.

    What the same code has finished before an interruption is not run again, unless the runs are quick.
    """
    ways = (True,) if real else (False, True)
    every = [(each, way) for way in ways for each in EXPERIMENTS.values() if each.runs(real=way)]
    if quick:
        return max(_run(each, out, real=way, quick=True, as_json=as_json) for each, way in every)
    finished, codes = KeptExperiments(out, fingerprint_of_code()), [0]
    for each, way in every:
        directory = directory_of(each, out, real=way)
        if finished.has(directory):
            _say(f"{each.name}: finished before the interruption, in {directory}")
            continue
        codes.append(_run(each, out, real=way, quick=False, as_json=as_json))
        if codes[-1] == 0:
            finished.add(directory)
    code = max(*codes, _collect(out))
    if code == 0:
        finished.forget()
    return code


def _collect(out: Path) -> int:
    found = collect(list(EXPERIMENTS.values()), out, DOCS)
    _say(f"{found} figures in {DOCS / 'figures.md'}")
    return 0


def _list(as_json: bool) -> int:
    for each in EXPERIMENTS.values():
        ways = [way for way, real in (("simulated", False), ("real", True)) if each.runs(real=real)]
        line = {"experiment": each.name, "about": each.about, "ways": ways}
        print(json.dumps(line) if as_json else f"{each.name:<22} {each.about} [{', '.join(ways)}]")
    return 0


def _cannot(name: str, *, real: bool) -> int:
    known = EXPERIMENTS.get(name)
    if known is None:
        _say(f"there is no experiment {name!r}; choose list, all, docs or one of {', '.join(EXPERIMENTS)}")
    else:
        other = f"tidemark lab {name}" + ("" if real else " --real")
        _say(f"{name} does not run {'on real processes' if real else 'in the simulator'}: {other}")
    return 2


def _run(experiment: Experiment, out: Path, *, real: bool, quick: bool, as_json: bool) -> int:
    try:
        outcomes = run_experiment(
            experiment, out, lambda text: _say(f"{experiment.name}: {text}"), real=real, quick=quick
        )
    except (AssertionError, ViolationError) as wrong:
        _say(f"lab {experiment.name}: WRONG: {wrong}")
        return 1
    except (ClientError, TimeoutError) as late:
        _say(f"lab {experiment.name}: the machine was too slow: {late or 'out of time'}")
        return 1
    _show(experiment, outcomes, real=real, as_json=as_json)
    if not can_draw():
        _say(HINT)
    return 0


def _show(experiment: Experiment, outcomes: Sequence[FigureOutcome], *, real: bool, as_json: bool) -> None:
    for outcome in outcomes:
        if as_json:
            print(json.dumps(_line(experiment, outcome, real=real)))
            continue
        print(f"\n{outcome.figure.source}: {outcome.figure.title}: {outcome.verdict}")
        for each in outcome.findings:
            print(f"  {each.word:<15} {each.paper}")
            print(f"                  here: {each.here}")
            if each.explanation:
                print(f"                  because: {each.explanation}")
        print(f"  {outcome.page}")


def _line(experiment: Experiment, outcome: FigureOutcome, *, real: bool) -> dict[str, object]:
    findings = [
        {"paper": each.paper, "here": each.here, "holds": each.holds, "because": each.explanation}
        for each in outcome.findings
    ]
    return {
        "experiment": experiment.name,
        "figure": outcome.figure.name,
        "real": real,
        "verdict": outcome.verdict,
        "findings": findings,
        "page": str(outcome.page),
        "picture": None if outcome.picture is None else str(outcome.picture),
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
