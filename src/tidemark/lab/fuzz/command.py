"""The `fuzz` command: runs the fuzzer and reports what came of it.

Returns an exit code: 0 when the broker and its well-behaved clients did not notice, 1 when they did. A
failure is told with the seed and with what was said last.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import click

from tidemark.lab.fuzz.core_fuzzer import CoreFuzzer, CoreReport
from tidemark.lab.fuzz.fuzzer import Fuzzer, FuzzReport

#: Hostile things said to the core with one seed.
CORE_STEPS = 3_000


def run(
    seconds: float, seed: int, *, as_json: bool, directory: Path | None = None, is_secured: bool = False
) -> int:
    """Fuzz for so many seconds; in `directory` stays what the processes wrote, if one is given."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        report = Fuzzer(directory, seed, is_secured=is_secured).run(seconds)
    else:
        with TemporaryDirectory(prefix="tidemark-fuzz-") as made:
            report = Fuzzer(Path(made), seed, is_secured=is_secured).run(seconds)
    more = "--secure " if is_secured else ""
    click.echo(json.dumps(report.as_dict()) if as_json else render(report, more))
    return int(bool(report.failure))


def run_core(seconds: float, seed: int, *, as_json: bool) -> int:
    """Fuzz the core in memory for so many seconds, with one seed after the other."""
    until, seeds, frames = monotonic() + seconds, 0, 0
    unforeseen: Counter[str] = Counter()
    while monotonic() < until:
        report = CoreFuzzer(seed + seeds).run(CORE_STEPS)
        seeds, frames = seeds + 1, frames + report.frames
        unforeseen += report.unforeseen
        if report.failure:
            break
    if as_json:
        fields = {"seed": report.seed, "failure": report.failure, "last": report.last}
        click.echo(json.dumps({**fields, "seeds": seeds, "frames": frames, "unforeseen": unforeseen}))
    else:
        lines = [f"nobody has foreseen ({count} times): {text}" for text, count in unforeseen.most_common(20)]
        lines.append(f"{frames:,} hostile frames to the core, with {seeds} seeds from {seed} on")
        click.echo("\n".join([*lines, *_verdict(report, "--core --seconds 1")]))
    return int(bool(report.failure))


def render(report: FuzzReport, options: str = "") -> str:
    """Returns the report as text; `options` are those of the command, besides its time."""
    lines = [f"{count:>9,} {kind}" for kind, count in report.kinds.items()]
    lines.append(
        f"{report.frames:,} hostile frames in {report.seconds} s, {report.restarts} restarts; refused: "
        f"{report.counters.get('frames_refused', 0)} in the core, at least {report.malformed} before it"
    )
    lines.append(f"the longest turn of the broker took {1e3 * report.longest_turn:.1f} ms of processor time")
    lines.append(f"not met: {', '.join(report.never) or 'nothing'}")
    lines.append(f"beside them {report.published:,} events published, {report.delivered:,} delivered")
    for text, count in report.unforeseen.items():
        lines.append(f"nobody has foreseen ({count} times): {text}")
    return "\n".join([*lines, *_verdict(report, f"{options}--seconds {report.seconds:.0f}")])


def _verdict(report: FuzzReport | CoreReport, options: str) -> list[str]:
    """Returns the lines that say whether anybody noticed, and how to run the seed again if somebody did."""
    if not report.failure:
        return ["the broker and its clients did not notice"]
    failed = f"seed {report.seed} failed: {report.failure}"
    again = f"  again: tidemark fuzz {options} --seed {report.seed}"
    return ["what was said last:", *report.last, failed, again]
